//! Once nothing is disturbed any more, every client gets every key in time, and keeps
//! what it gets.

use std::collections::BTreeSet;

use crate::simulate::book::{Attempt, Fact};

const THOUGH: &str = "though nothing was disturbed any more";

#[derive(Default)]
pub(super) struct Served {
    quiet: bool,
    /// What was asked for since.
    asked: BTreeSet<Attempt>,
}

impl Served {
    pub(super) fn see(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Quiet => self.quiet = true,
            Fact::Asked(attempt, ..) if self.quiet => {
                self.asked.insert(*attempt);
            }
            Fact::Lost(attempt, loss) if self.asked.contains(attempt) => {
                return Err(format!("#{attempt} was lost ({loss}), {THOUGH}"));
            }
            Fact::Served(client, key, None) => {
                return Err(format!("client {client} did not get {key}, {THOUGH}"));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::cases::{asked, granted, judge};
    use super::*;

    #[test]
    fn who_is_not_served_is_found() {
        let served = |within| judge(&[(0, Fact::Served(1, "k", within))]);
        assert!(served(Some(Duration::ZERO)).is_ok());
        assert!(served(None).is_err());
    }

    #[test]
    fn a_lease_that_is_lost_in_the_quiet_is_found() {
        let lost = (3, Fact::Lost(1, leasehold::Loss::Gone));
        let quiet = (0, Fact::Quiet);
        let before = [
            (0, asked(1)),
            quiet.clone(),
            (2, granted(1, 1, 9)),
            lost.clone(),
        ];
        assert!(judge(&before).is_ok());
        let after = [quiet, (0, asked(1)), (2, granted(1, 1, 9)), lost];
        assert!(judge(&after).is_err());
    }
}
