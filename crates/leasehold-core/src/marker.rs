//! What a server remembers of itself, so that a loss of its data is noticed.
//!
//! A server that may have forgotten grants, votes or the like is *closed* until
//! all that it may have forgotten has lapsed. One server ([`crate::Queue`], by
//! [`Now`](crate::Now)) and each of several ([`crate::quorum`]) go by the same rule.

use std::time::Duration;

use crate::StoreTime;

/// What a client's settings say about the server, or the set of servers, that it
/// uses. All its clients say the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetTerms {
    /// Names the members and the settings that safety rests on.
    pub set: String,
    /// For how long a server that may have forgotten something grants nothing:
    /// longer than any claim may live, by more than clocks differ.
    /// Zero: it grants at once, and safety is gone.
    pub quarantine: Duration,
}

/// Why a server grants nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closed {
    /// It may have forgotten something.
    Quarantined {
        /// How long that still takes.
        left: Duration,
    },
    /// It belongs to another set, or to clients with other settings.
    Foreign,
}

/// What a server knows about itself: as which process it was last seen, since
/// when it grants, and for which set. It is lost with the data, and that is how
/// a loss is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The run id of the server process.
    pub run: String,
    /// Until when it grants nothing, by its own clock.
    pub until: StoreTime,
    /// The set that it belongs to.
    pub terms: SetTerms,
}

impl Marker {
    /// Whether a server that runs as `run` may grant at `now` to a client with
    /// these `terms`; starts the quarantine where it has to.
    ///
    /// # Errors
    /// [`Closed`], where it may not.
    pub fn admit(
        marker: &mut Option<Self>,
        run: &str,
        terms: &SetTerms,
        now: StoreTime,
    ) -> Result<(), Closed> {
        if let Some(known) = marker {
            if known.terms != *terms {
                return Err(Closed::Foreign);
            }
            if known.run == run {
                let left = known.until.since(now);
                return if left.is_zero() {
                    Ok(())
                } else {
                    Err(Closed::Quarantined { left })
                };
            }
        }
        *marker = Some(Self {
            run: run.to_owned(),
            until: now + terms.quarantine,
            terms: terms.clone(),
        });
        if terms.quarantine.is_zero() {
            return Ok(());
        }
        Err(Closed::Quarantined {
            left: terms.quarantine,
        })
    }

    /// An administrator says that the server is new and has never granted anything.
    /// Believed only where there is no marker; a server that comes from another
    /// set is quarantined for the longer of both settings. Gives what is left of
    /// a quarantine.
    pub fn init(
        marker: &mut Option<Self>,
        run: &str,
        terms: &SetTerms,
        now: StoreTime,
    ) -> Duration {
        let wait = match marker {
            None => Duration::ZERO,
            Some(known) if known.terms == *terms => {
                return match Self::admit(marker, run, terms, now) {
                    Err(Closed::Quarantined { left }) => left,
                    _ => Duration::ZERO,
                };
            }
            Some(known) => known.terms.quarantine.max(terms.quarantine),
        };
        *marker = Some(Self {
            run: run.to_owned(),
            until: now + wait,
            terms: terms.clone(),
        });
        wait
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
        assert_eq!(Marker::admit(&mut marker, "one", &a, at(10)), left(2));
        assert_eq!(Marker::admit(&mut marker, "one", &a, at(11)), left(1));
        assert_eq!(Marker::admit(&mut marker, "one", &a, at(12)), Ok(()));
        assert_eq!(Marker::admit(&mut marker, "two", &a, at(12)), left(2));
        assert_eq!(Marker::admit(&mut marker, "two", &a, at(14)), Ok(()));
        let b = terms("b", 1);
        assert_eq!(
            Marker::admit(&mut marker, "two", &b, at(14)),
            Err(Closed::Foreign)
        );
        assert_eq!(
            Marker::admit(&mut marker, "new", &b, at(14)),
            Err(Closed::Foreign)
        );
        assert_eq!(Marker::admit(&mut marker, "two", &a, at(14)), Ok(()));
    }

    #[test]
    fn only_what_was_never_marked_is_taken_for_new() {
        let (a, b, now) = (terms("a", 5), terms("b", 2), StoreTime(9));
        let mut marker = None;
        assert_eq!(Marker::init(&mut marker, "one", &a, now), Duration::ZERO);
        assert_eq!(Marker::admit(&mut marker, "one", &a, now), Ok(()));
        assert_eq!(Marker::init(&mut marker, "one", &a, now), Duration::ZERO);
        assert_eq!(Marker::init(&mut marker, "two", &a, now), a.quarantine);
        assert_eq!(Marker::init(&mut marker, "two", &a, now), a.quarantine);
        assert_eq!(Marker::init(&mut marker, "two", &b, now), a.quarantine);
        assert_eq!(Marker::init(&mut marker, "two", &b, now), a.quarantine);
    }
}
