//! What must hold. An invariant, each in a file of its own, sees every fact in the order of time, and
//! says at once what is wrong; what leases mean to one another is read from their [`History`].

mod answers;
mod fencing;
mod history;
mod left;
mod served;
mod signalled;

use std::time::Duration;

use self::served::Served;
use self::signalled::Signalled;
use super::book::Fact;
pub(crate) use history::History;

/// One property of runs.
pub(crate) trait Invariant {
    /// Sees a fact; what is wrong with it, if anything is.
    ///
    /// # Errors
    /// One sentence that names the attempts it is about.
    fn see(&mut self, at: Duration, fact: &Fact) -> Result<(), String>;
}

/// Which deployment it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Deployment {
    /// The core behind a mutex, all clients in one process.
    Memory,
    /// One server.
    Redis,
    /// Three independent servers.
    Redlock,
}

/// An invariant, and its name in reports.
pub(crate) type Named = (&'static str, Box<dyn Invariant>);

/// All of them.
pub(crate) fn all() -> Vec<Named> {
    vec![
        ("fencing", Box::new(fencing::Fencing::default())),
        ("told of a loss in time", Box::new(Signalled::default())),
        ("errors say what is wrong", Box::new(answers::Answers)),
        (
            "everybody is served in the end",
            Box::new(Served::default()),
        ),
        ("nothing is left behind", Box::new(left::Left)),
    ]
}

#[cfg(test)]
mod cases {
    //! Facts for the tests of single invariants.

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

    /// Shows facts to an invariant, with their times; what it says first.
    pub(super) fn judge(
        mut invariant: impl Invariant,
        facts: &[(u64, Fact)],
    ) -> Result<(), String> {
        let mut facts = facts.iter();
        facts.try_for_each(|(at, fact)| invariant.see(millis(*at), fact))
    }
}
