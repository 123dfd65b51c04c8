//! Who holds is told of a loss by the time its validity ends, if its process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::simulate::book::{Attempt, Fact};

/// Timers tick by the millisecond, and the world looks after each window.
const TOLERANCE: Duration = Duration::from_millis(10);

/// After the machine has slept, timers are late: the library looks at its clock this
/// often.
const AFTER_SLEEP: Duration = Duration::from_millis(1_010);

#[derive(Default)]
pub(super) struct Signalled {
    /// Since when a lease has been invalid, untold, on a host that ran all the time.
    untold: BTreeMap<Attempt, Duration>,
    /// Leases of hosts that have stood still.
    slept: BTreeSet<Attempt>,
}

impl Signalled {
    pub(super) fn see(&mut self, at: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Believes(attempt, until, host_runs) => {
                if !host_runs {
                    self.slept.insert(*attempt);
                }
                if until.is_some() || !host_runs {
                    self.untold.remove(attempt);
                    return Ok(());
                }
                let since = *self.untold.entry(*attempt).or_insert(at);
                let slept = self.slept.contains(attempt);
                let within = if slept { AFTER_SLEEP } else { TOLERANCE };
                if at > since + within {
                    return Err(format!(
                        "#{attempt} has not been valid since {since:?}, and nobody was told"
                    ));
                }
            }
            Fact::Lost(attempt, _) | Fact::Leaving { attempt } => {
                self.untold.remove(attempt);
                self.slept.remove(attempt);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{believes, judge};
    use super::*;

    fn invalid(at: u64, host_runs: bool) -> (u64, Fact) {
        (at, believes(None, host_runs))
    }

    #[test]
    fn a_loss_that_nobody_hears_of_is_found() {
        let found = |facts: &[_]| judge(facts).is_err();
        assert!(!found(&[invalid(0, true), invalid(10, true)]));
        assert!(found(&[invalid(0, true), invalid(11, true)]));
        let told = (5, Fact::Lost(1, leasehold::Loss::Unanswered));
        assert!(!found(&[invalid(0, true), told, invalid(11, true)]));
    }

    #[test]
    fn who_does_not_run_cannot_be_told() {
        let awake_at = |told| {
            let facts = [
                invalid(0, false),
                invalid(5000, false),
                invalid(5001, true),
                invalid(told, true),
            ];
            judge(&facts)
        };
        assert!(awake_at(6000).is_ok());
        assert!(awake_at(6100).is_err());
    }
}
