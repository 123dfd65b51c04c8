//! The marker of a server, by which clients notice that the server has lost its data.
//!
//! A server that may have lost grants or votes is *closed* until everything that it may have lost
//! has expired. The same rule applies to a single server ([`crate::Queue`], through
//! [`Now`](crate::Now)) and to each server of a set ([`crate::quorum`]).

use std::time::Duration;

use crate::StoreTime;

/// The settings of a server or a set of servers on which all its clients must agree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetTerms {
    /// A name made of the members and the settings that safety depends on.
    pub set: String,
    /// How long a server that may have lost data grants nothing. It must exceed the longest life
    /// of a claim by more than clocks differ. Zero: it grants at once, without safety.
    pub quarantine: Duration,
}

/// Why a server grants nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closed {
    /// It may have lost data.
    Quarantined {
        /// How long the quarantine still lasts.
        left: Duration,
    },
    /// It belongs to another set, or to clients with other settings.
    Foreign,
}

/// The marker of a server: the run id with which it was last seen, when it grants, and its set.
/// The marker is lost together with the data, which makes a loss noticeable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerMarker {
    /// The run id of the server process.
    pub run: String,
    /// Until when it grants nothing, by the server's clock.
    pub until: StoreTime,
    /// The set that it belongs to.
    pub terms: SetTerms,
}

/// The outcome of marking a server as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Marked {
    /// It had no marker. It now has one, and grants at once.
    New,
    /// It was already marked by clients with the same settings, and grants.
    Already,
    /// It belonged to clients with other settings. It now belongs to clients with these settings,
    /// and grants after a quarantine.
    Moved {
        /// How long the quarantine still lasts.
        left: Duration,
    },
    /// It was marked before and may have lost its data since. It is not treated as new, and
    /// grants after its quarantine.
    NotNew {
        /// How long the quarantine still lasts.
        left: Duration,
    },
}

impl Marked {
    /// Returns how long the server still grants nothing.
    #[must_use]
    pub fn left(self) -> Duration {
        match self {
            Self::New | Self::Already => Duration::ZERO,
            Self::Moved { left } | Self::NotNew { left } => left,
        }
    }
}

impl ServerMarker {
    /// Checks whether a server with the run id `run` may grant at `now` to a client with these
    /// `terms`. Starts the quarantine if necessary.
    ///
    /// # Errors
    /// [`Closed`] if it may not grant.
    pub fn admit(
        marker: &mut Option<Self>,
        run: &str,
        terms: &SetTerms,
        now: StoreTime,
    ) -> Result<(), Closed> {
        let known = marker.as_ref();
        if known.is_none_or(|known| known.terms == *terms && known.run != run) {
            let (run, terms, until) = (run.to_owned(), terms.clone(), now + terms.quarantine);
            *marker = Some(Self { run, until, terms });
        }
        Self::look(marker.as_ref(), run, terms, now)
    }

    /// The same check without changes: if a quarantine would have to start, it is not started,
    /// but the server counts as closed.
    ///
    /// # Errors
    /// [`Closed`] if it may not grant.
    pub fn look(
        marker: Option<&Self>,
        run: &str,
        terms: &SetTerms,
        now: StoreTime,
    ) -> Result<(), Closed> {
        let left = match marker {
            Some(known) if known.terms != *terms => return Err(Closed::Foreign),
            Some(known) if known.run == run => known.until.since(now),
            _ => terms.quarantine,
        };
        if left.is_zero() {
            return Ok(());
        }
        Err(Closed::Quarantined { left })
    }

    /// Marks a server as new, on behalf of an administrator. It counts as new only if it has no
    /// marker. A server from another set is quarantined for the longer of both settings.
    pub fn init(marker: &mut Option<Self>, run: &str, terms: &SetTerms, now: StoreTime) -> Marked {
        let (wait, marked) = match marker {
            None => (Duration::ZERO, Marked::New),
            Some(known) if known.terms == *terms => {
                return match Self::admit(marker, run, terms, now) {
                    Err(Closed::Quarantined { left }) => Marked::NotNew { left },
                    _ => Marked::Already,
                };
            }
            Some(known) => {
                let left = known.terms.quarantine.max(terms.quarantine);
                (left, Marked::Moved { left })
            }
        };
        let (run, terms, until) = (run.to_owned(), terms.clone(), now + wait);
        *marker = Some(Self { run, until, terms });
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(set: &str, seconds: u64) -> SetTerms {
        SetTerms {
            set: set.to_owned(),
            quarantine: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn who_may_have_forgotten_grants_nothing_for_a_while() {
        let (a, at) = (terms("a", 2), |s: u64| StoreTime(s * 1_000_000));
        let mut marker = None;
        let left = |seconds| {
            Err(Closed::Quarantined {
                left: Duration::from_secs(seconds),
            })
        };
        assert_eq!(ServerMarker::admit(&mut marker, "one", &a, at(10)), left(2));
        assert_eq!(ServerMarker::admit(&mut marker, "one", &a, at(11)), left(1));
        assert_eq!(ServerMarker::admit(&mut marker, "one", &a, at(12)), Ok(()));
        assert_eq!(ServerMarker::admit(&mut marker, "two", &a, at(12)), left(2));
        assert_eq!(ServerMarker::admit(&mut marker, "two", &a, at(14)), Ok(()));
        let b = terms("b", 1);
        assert_eq!(
            ServerMarker::admit(&mut marker, "two", &b, at(14)),
            Err(Closed::Foreign)
        );
        assert_eq!(
            ServerMarker::admit(&mut marker, "new", &b, at(14)),
            Err(Closed::Foreign)
        );
        assert_eq!(ServerMarker::admit(&mut marker, "two", &a, at(14)), Ok(()));
    }

    #[test]
    fn only_what_was_never_marked_is_taken_for_new() {
        let (a, b, now) = (terms("a", 5), terms("b", 2), StoreTime(9));
        let mut marker = None;
        let left = a.quarantine;
        let mut init = |run, terms| {
            let marked = ServerMarker::init(&mut marker, run, terms, now);
            (marked, ServerMarker::look(marker.as_ref(), run, terms, now))
        };
        let closed = Err(Closed::Quarantined { left });
        assert_eq!(init("one", &a), (Marked::New, Ok(())));
        assert_eq!(init("one", &a), (Marked::Already, Ok(())));
        assert_eq!(init("two", &a), (Marked::NotNew { left }, closed));
        assert_eq!(init("two", &a), (Marked::NotNew { left }, closed));
        assert_eq!(init("two", &b), (Marked::Moved { left }, closed));
        assert_eq!(init("two", &b), (Marked::NotNew { left }, closed));
    }

    #[test]
    fn to_look_starts_no_quarantine() {
        let (a, at) = (terms("a", 2), StoreTime(9));
        let left = a.quarantine;
        assert_eq!(
            ServerMarker::look(None, "one", &a, at),
            Err(Closed::Quarantined { left })
        );
        let mut marker = None;
        assert_eq!(ServerMarker::init(&mut marker, "one", &a, at), Marked::New);
        let before = marker.clone();
        assert_eq!(ServerMarker::look(marker.as_ref(), "one", &a, at), Ok(()));
        assert_eq!(
            ServerMarker::look(marker.as_ref(), "two", &a, at),
            Err(Closed::Quarantined { left })
        );
        assert_eq!(
            ServerMarker::look(marker.as_ref(), "one", &terms("b", 2), at),
            Err(Closed::Foreign)
        );
        assert_eq!(marker, before);
    }
}
