//! What must hold. Most say at once what is wrong, in one sentence that names the attempts it is about;
//! what leases mean to one another is read from their [`History`].

mod fencing;
mod history;
mod served;
mod signalled;

use std::time::Duration;

use leasehold::ErrorKind;
use serde::{Deserialize, Serialize};

use self::fencing::Fencing;
use self::served::Served;
use self::signalled::Signalled;
use super::book::{Fact, Why};
pub(crate) use history::History;

/// Which deployment it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Deployment {
    /// The core behind a mutex, all clients in one process.
    Memory,
    /// One server.
    Redis,
    /// Three independent servers.
    Redlock,
}

/// Those that say at once what is wrong.
#[derive(Default)]
pub(crate) struct Invariants {
    fencing: Fencing,
    signalled: Signalled,
    served: Served,
}

impl Invariants {
    /// Sees a fact, in the order of time.
    ///
    /// # Errors
    /// Which of them, by its name in reports, says what.
    pub(crate) fn see(&mut self, at: Duration, fact: &Fact) -> Result<(), (&'static str, String)> {
        let seen = [
            ("fencing", self.fencing.see(fact)),
            ("told of a loss in time", self.signalled.see(at, fact)),
            ("errors say what is wrong", errors_say_so(fact)),
            ("everybody is served in the end", self.served.see(fact)),
            ("nothing is left behind", nothing_is_left(fact)),
        ];
        let mut seen = seen.into_iter();
        seen.try_for_each(|(name, seen)| seen.map_err(|what| (name, what)))
    }
}

/// A disturbed store makes errors of the kinds that say so, and no others: nothing is damaged, and no
/// valid request is called senseless.
fn errors_say_so(fact: &Fact) -> Result<(), String> {
    let (attempt, kind) = match fact {
        Fact::NotGranted(attempt, Why::Failed(kind)) => (attempt, kind),
        Fact::Left(attempt, Some(Err(kind))) => (attempt, kind),
        _ => return Ok(()),
    };
    match kind {
        ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::Unavailable | ErrorKind::Refused => {
            Ok(())
        }
        kind => Err(format!("#{attempt} failed as {kind}")),
    }
}

/// When all have gone, nothing is left: no claim at the store, no task in a process.
fn nothing_is_left(fact: &Fact) -> Result<(), String> {
    match fact {
        Fact::Remains(what, count) if *count > 0 => Err(format!("{count} {what} are left")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod cases {
    //! Facts for the tests of single invariants; and those of what needs only one.

    use super::*;
    use crate::simulate::book::Attempt;
    use crate::simulate::work::exclusive;

    pub(super) fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    pub(super) fn asked(attempt: Attempt) -> Fact {
        let client = usize::try_from(attempt).unwrap();
        Fact::Asked(attempt, client, exclusive("k"))
    }

    pub(super) fn granted(attempt: Attempt, number: u64, until: u64) -> Fact {
        Fact::Granted {
            attempt,
            number,
            until: millis(until),
            rejoined: 0,
        }
    }

    /// What the first one believes.
    pub(super) fn believes(until: Option<Duration>, host_runs: bool) -> Fact {
        Fact::Believes(1, until, host_runs)
    }

    /// Shows facts with their times; what is said first.
    pub(super) fn judge(facts: &[(u64, Fact)]) -> Result<(), (&'static str, String)> {
        let mut invariants = Invariants::default();
        let mut facts = facts.iter();
        facts.try_for_each(|(at, fact)| invariants.see(millis(*at), fact))
    }

    #[test]
    fn errors_of_other_kinds_are_found() {
        let failed = |kind| judge(&[(0, Fact::NotGranted(1, Why::Failed(kind)))]);
        assert!(failed(ErrorKind::Unavailable).is_ok());
        assert!(failed(ErrorKind::Corrupt).is_err());
        assert!(failed(ErrorKind::Invalid).is_err());
        let left = |kind| judge(&[(0, Fact::Left(1, Some(Err(kind))))]);
        assert!(left(ErrorKind::Unavailable).is_ok());
        assert!(left(ErrorKind::Corrupt).is_err());
    }

    #[test]
    fn what_is_left_is_found() {
        let left = |count| judge(&[(0, Fact::Remains("tasks".to_owned(), count))]);
        assert!(left(0).is_ok());
        assert!(left(1).is_err());
    }
}
