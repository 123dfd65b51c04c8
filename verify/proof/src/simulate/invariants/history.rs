//! Exclusion, tokens and the order of arrival: the facts of a run as a history, which the checkers read
//! that read those of real clients. What was asked for before the store forgot does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Deployment;
use crate::faults::check::{self, Finding};
use crate::faults::history::{Grant, Micros, Op, OpId};
use crate::simulate::book::{Attempt, Fact};

/// Whole nanoseconds are lost where one clock is counted in another.
const ROUNDING: Duration = Duration::from_micros(1);

/// How often the checkers read all that has happened so far.
const PAUSE: Duration = Duration::from_secs(5);

/// What has become of each attempt.
pub(crate) struct History {
    ops: BTreeMap<Attempt, Op>,
    /// Asked for before the store forgot who holds.
    forgotten: BTreeSet<Attempt>,
    /// Whether there is one queue.
    in_order: bool,
    checked: Duration,
}

fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Nothing is believed of it from then on.
fn end(op: &mut Op, at: Micros) {
    if let Some(grant) = &mut op.grant {
        grant.until = grant.until.min(at);
        grant.releasing.get_or_insert(at);
    }
}

impl History {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Self {
            ops: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            in_order: deployment != Deployment::Redlock,
            checked: Duration::ZERO,
        }
    }

    /// Sees a fact, in the order of time.
    ///
    /// # Errors
    /// What is wrong with those before it: looked for from time to time, and before a store forgets.
    pub(crate) fn see(&mut self, at: Duration, fact: &Fact) -> Result<(), Finding> {
        let forgets = matches!(fact, Fact::Forgot { .. });
        if forgets || at >= self.checked + PAUSE {
            self.checked = at;
            self.check()?;
        }
        self.add(micros(at), fact);
        Ok(())
    }

    /// Has the checkers read all that has happened so far.
    ///
    /// # Errors
    /// What was wrong first.
    pub(crate) fn check(&self) -> Result<(), Finding> {
        let ops: Vec<_> = self.ops.values().cloned().collect();
        let is_known = |op: &&Op| !self.forgotten.contains(&op.id.number);
        let known: Vec<_> = ops.iter().filter(is_known).cloned().collect();
        let mut found = [check::exclusion(&known), check::tokens(&ops)].concat();
        if self.in_order {
            found.extend(check::order(&ops));
        }
        let first = found.into_iter().min_by_key(|finding| finding.at);
        first.map_or(Ok(()), Err)
    }

    /// How many attempts there were, and how many of them were granted.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let granted = self.ops.values().filter(|op| op.grant.is_some());
        (self.ops.len() as u64, granted.count() as u64)
    }

    fn of_client(&mut self, client: usize) -> impl Iterator<Item = &mut Op> {
        let ops = self.ops.values_mut();
        ops.filter(move |op| op.id.client == client)
    }

    fn add(&mut self, at: Micros, fact: &Fact) {
        match fact {
            Fact::Asked(attempt, client, wanted) => {
                let (client, number) = (*client, *attempt);
                let op = Op::new(OpId { client, number }, at, wanted.key, wanted.mode);
                let fair = wanted.fair;
                self.ops.insert(number, Op { fair, ..op });
            }
            Fact::Deaf { client } => {
                let waiting = self.of_client(*client).filter(|op| op.grant.is_none());
                waiting.for_each(|op| op.queued = None);
            }
            Fact::Died { client } => self.of_client(*client).for_each(|op| end(op, at)),
            Fact::Forgot { holders } => {
                self.ops.values_mut().for_each(|op| op.fair = false);
                if *holders {
                    self.forgotten.extend(self.ops.keys());
                }
            }
            Fact::Queued { attempt, .. }
            | Fact::Granted { attempt, .. }
            | Fact::Believes(attempt, ..)
            | Fact::Lost(attempt, _)
            | Fact::Leaving { attempt } => {
                if let Some(op) = self.ops.get_mut(attempt) {
                    happened(op, at, fact);
                }
            }
            _ => {}
        }
    }
}

/// What happens to one attempt.
fn happened(op: &mut Op, at: Micros, fact: &Fact) {
    let certain = |until: &Duration| micros(until.saturating_sub(ROUNDING));
    match fact {
        // With another place it does not certainly stand where it stood.
        Fact::Queued { rejoined, .. } => {
            let since = op.queued.unwrap_or(at);
            op.queued = (*rejoined == 0).then_some(since);
        }
        Fact::Granted {
            number,
            until,
            rejoined,
            ..
        } => {
            op.grant = Some(Grant {
                at,
                token: Some(*number),
                until: certain(until),
                rejoined: *rejoined,
                ..Grant::default()
            });
        }
        Fact::Believes(_, until, _) => {
            let grant = op.grant.as_mut();
            if let Some(grant) = grant.filter(|grant| grant.releasing.is_none()) {
                grant.until = match until {
                    Some(until) => certain(until),
                    None => grant.until.min(at),
                };
            }
        }
        _ => end(op, at),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{asked, believes, granted, millis};
    use super::*;

    fn judge(facts: &[(u64, Fact)]) -> Result<(), Finding> {
        let mut history = History::new(Deployment::Redis);
        let mut facts = facts.iter();
        facts.try_for_each(|(at, fact)| history.see(millis(*at), fact))?;
        history.check()
    }

    fn two(until: u64, at: u64) -> Vec<(u64, Fact)> {
        vec![
            (0, asked(1)),
            (0, asked(2)),
            (1, granted(1, 5, until)),
            (at, granted(2, 6, 900)),
        ]
    }

    /// What comes of facts, if this one is among them.
    fn with(mut facts: Vec<(u64, Fact)>, at: u64, fact: Fact) -> Result<(), Finding> {
        let place = facts.partition_point(|(before, _)| *before <= at);
        facts.insert(place, (at, fact));
        judge(&facts)
    }

    #[test]
    fn two_at_a_time_are_found() {
        assert_eq!(judge(&two(100, 101)), Ok(()));
        let found = judge(&two(100, 99)).unwrap_err().to_string();
        assert!(found.contains("op 1") && found.contains("op 2"), "{found}");
    }

    #[test]
    fn what_goes_wrong_is_found_while_the_run_goes_on() {
        let mut history = History::new(Deployment::Redis);
        for (at, fact) in two(100, 99) {
            assert_eq!(history.see(millis(at), &fact), Ok(()));
        }
        assert_eq!(history.see(PAUSE - millis(1), &Fact::Quiet), Ok(()));
        assert!(history.see(PAUSE, &Fact::Quiet).is_err());
    }

    #[test]
    fn who_leaves_dies_or_is_told_does_not_hold() {
        for end in [
            Fact::Leaving { attempt: 1 },
            Fact::Lost(1, leasehold::Loss::Gone),
            Fact::Died { client: 1 },
            believes(None, true),
        ] {
            assert_eq!(with(two(100, 50), 40, end), Ok(()));
        }
    }

    #[test]
    fn a_renewal_that_comes_too_late_is_found() {
        let late = believes(Some(Duration::from_secs(1)), true);
        assert!(with(two(100, 150), 160, late.clone()).is_err());
        // Also if it was not valid any more, and comes back to life.
        let mut again = two(100, 150);
        again.insert(3, (120, believes(None, true)));
        assert_eq!(judge(&again), Ok(()));
        assert!(with(again, 160, late).is_err());
    }

    #[test]
    fn what_a_store_forgot_does_not_count_and_what_came_later_does() {
        let forgot = |holders| (50, Fact::Forgot { holders });
        let later = [(60, asked(3)), (70, granted(3, 6, 900))];
        let before = [&two(100, 99)[..3], &[forgot(true)], &later].concat();
        assert_eq!(judge(&before), Ok(()));
        let after = [&[forgot(true)], &two(200, 99)[..]].concat();
        assert!(judge(&after).is_err());
        let only_the_line = with(two(100, 99), 50, forgot(false).1);
        assert!(only_the_line.is_err());
        let earlier = with(two(100, 40), 50, forgot(true).1);
        assert!(earlier.is_err(), "it had gone wrong before");
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let after = |number| {
            let first = [(0, asked(1)), (1, granted(1, 5, 2))];
            let second = [(2, asked(2)), (3, granted(2, number, 9))];
            judge(&[first, second].concat())
        };
        assert_eq!(after(6), Ok(()));
        assert!(after(5).is_err() && after(4).is_err());
    }

    fn queued(attempt: Attempt, rejoined: u32) -> Fact {
        Fact::Queued { attempt, rejoined }
    }

    /// What comes of facts, if these are granted behind them, one after the other.
    fn served(facts: &[(u64, Fact)], attempts: &[Attempt]) -> Result<(), Finding> {
        let grant = |(at, attempt): (u64, &Attempt)| (at, granted(*attempt, at, at + 1));
        let grants: Vec<_> = (10..).zip(attempts).map(grant).collect();
        judge(&[facts, &grants].concat())
    }

    /// The first stands in line, the second asks; then that happens, and the second is granted first.
    fn passed_after(what: Fact) -> Result<(), Finding> {
        let line = [(0, asked(1)), (1, queued(1, 0)), (2, asked(2)), (3, what)];
        served(&line, &[2, 1])
    }

    #[test]
    fn who_overtakes_is_found() {
        let line = [(0, asked(1)), (1, queued(1, 0)), (2, asked(2))];
        assert_eq!(served(&line, &[1, 2]), Ok(()));
        assert!(served(&line, &[2, 1]).is_err());
        // It may not have stood there yet, or has lost its place.
        let late = [(0, asked(1)), (1, asked(2)), (2, queued(1, 0))];
        assert_eq!(served(&late, &[2, 1]), Ok(()));
        assert_eq!(passed_after(queued(1, 1)), Ok(()));
    }

    #[test]
    fn who_did_not_hear_of_its_turn_or_was_forgotten_can_be_passed() {
        assert_eq!(passed_after(Fact::Deaf { client: 1 }), Ok(()));
        assert!(passed_after(Fact::Deaf { client: 2 }).is_err());
        for holders in [false, true] {
            assert_eq!(passed_after(Fact::Forgot { holders }), Ok(()));
        }
        // It finds itself in line again, behind whoever passed it; those who ask later do not pass.
        let back = [
            (0, asked(1)),
            (1, queued(1, 0)),
            (2, asked(2)),
            (3, Fact::Deaf { client: 1 }),
            (4, queued(1, 0)),
            (5, asked(3)),
        ];
        assert_eq!(served(&back, &[2, 1, 3]), Ok(()));
        assert!(served(&back, &[2, 3, 1]).is_err());
    }
}
