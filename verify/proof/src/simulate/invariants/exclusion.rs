//! At most as many leases are valid at a time as the key can bear, each by the clock of
//! its own client. What was asked for before the store forgot does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Invariant;
use crate::simulate::book::{Attempt, Fact, Wanted};

/// Whole nanoseconds are lost where one clock is counted in another.
const ROUNDING: Duration = Duration::from_micros(1);

#[derive(Default)]
pub(super) struct Exclusion {
    /// Who wants what, and has not ended.
    asked: BTreeMap<Attempt, (usize, Wanted)>,
    /// Until when each believes.
    valid: BTreeMap<Attempt, Duration>,
}

impl Exclusion {
    fn check(&self, at: Duration, wanted: &Wanted) -> Result<(), String> {
        let valid: Vec<_> = self
            .valid
            .iter()
            .filter(|(_, until)| **until > at + ROUNDING)
            .filter_map(|(attempt, _)| Some((attempt, self.asked.get(attempt)?)))
            .filter(|(_, (_, other))| other.key == wanted.key)
            .collect();
        let weight: u32 = valid.iter().map(|(_, (_, wanted))| wanted.weight).sum();
        if weight <= wanted.capacity {
            return Ok(());
        }
        let who: Vec<_> = valid
            .iter()
            .map(|(attempt, (client, _))| format!("#{attempt} of client {client}"))
            .collect();
        let (key, who) = (wanted.key, who.join(", "));
        Err(format!("{key} is held by {who} at the same time"))
    }
}

impl Invariant for Exclusion {
    fn see(&mut self, at: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Asked(attempt, client, wanted) => {
                self.asked.insert(*attempt, (*client, *wanted));
            }
            Fact::Granted { attempt, until, .. } | Fact::Believes(attempt, Some(until), _) => {
                if let Some((_, wanted)) = self.asked.get(attempt).copied() {
                    self.valid.insert(*attempt, *until);
                    return self.check(at, &wanted);
                }
            }
            Fact::Believes(attempt, None, _) => {
                self.valid.remove(attempt);
            }
            Fact::Lost(attempt, _) | Fact::Leaving { attempt } => {
                self.asked.remove(attempt);
                self.valid.remove(attempt);
            }
            Fact::Died { client } => {
                self.asked.retain(|_, (of, _)| of != client);
                self.valid
                    .retain(|attempt, _| self.asked.contains_key(attempt));
            }
            Fact::Forgot { holders: true } => {
                self.asked.clear();
                self.valid.clear();
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{asked, asked_for, believes, granted, judge};
    use super::*;

    fn two(until: u64, at: u64) -> Vec<(u64, Fact)> {
        vec![
            (0, asked(1)),
            (0, asked(2)),
            (1, granted(1, 5, until)),
            (at, granted(2, 6, 900)),
        ]
    }

    #[test]
    fn two_at_a_time_are_found() {
        assert!(judge(Exclusion::default(), &two(100, 101)).is_ok());
        let found = judge(Exclusion::default(), &two(100, 99)).unwrap_err();
        assert!(found.contains("#1") && found.contains("#2"), "{found}");
    }

    #[test]
    fn who_leaves_dies_or_is_told_does_not_hold() {
        for end in [
            Fact::Leaving { attempt: 1 },
            Fact::Lost(1, leasehold::Loss::Gone),
            Fact::Died { client: 1 },
            believes(None, true),
        ] {
            let mut facts = two(100, 50);
            facts.insert(3, (40, end));
            assert!(judge(Exclusion::default(), &facts).is_ok());
        }
    }

    #[test]
    fn a_renewal_that_comes_too_late_is_found() {
        let mut facts = two(100, 150);
        facts.push((160, believes(Some(Duration::from_secs(1)), true)));
        assert!(judge(Exclusion::default(), &facts).is_err());
    }

    #[test]
    fn what_a_store_forgot_does_not_count_and_what_came_later_does() {
        let forgot = (50, Fact::Forgot { holders: true });
        let before = [
            &two(100, 99)[..3],
            &[forgot.clone(), (60, asked(2)), (70, granted(2, 6, 900))],
        ]
        .concat();
        assert!(judge(Exclusion::default(), &before).is_ok());
        let after = [&[forgot], &two(200, 99)[..]].concat();
        assert!(judge(Exclusion::default(), &after).is_err());
    }

    #[test]
    fn who_holds_counts_where_only_the_line_is_forgotten() {
        let mut facts = two(100, 99);
        facts.insert(3, (50, Fact::Forgot { holders: false }));
        assert!(judge(Exclusion::default(), &facts).is_err());
    }

    #[test]
    fn a_lease_that_comes_back_to_life_is_found() {
        let mut facts = two(100, 150);
        facts.insert(3, (120, believes(None, true)));
        assert!(judge(Exclusion::default(), &facts).is_ok());
        facts.push((160, believes(Some(Duration::from_secs(1)), true)));
        assert!(judge(Exclusion::default(), &facts).is_err());
    }

    #[test]
    fn permits_are_counted_by_weight() {
        let permits = Wanted {
            capacity: 3,
            weight: 2,
            ..super::super::cases::MUTEX
        };
        let ask = |attempt, weight| (0, asked_for(attempt, Wanted { weight, ..permits }));
        let grants = [(1, granted(1, 1, 100)), (2, granted(2, 2, 100))];
        let with = |weight| [&[ask(1, 2), ask(2, weight)], &grants[..]].concat();
        assert!(judge(Exclusion::default(), &with(1)).is_ok());
        assert!(judge(Exclusion::default(), &with(2)).is_err());
    }
}
