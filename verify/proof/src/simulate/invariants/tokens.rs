//! Tokens rise: who asked after another was granted has the higher one, and no two have
//! the same. Under every fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Invariant;
use crate::simulate::book::{Attempt, Fact, Wanted};

#[derive(Default)]
pub(super) struct Tokens {
    /// What was asked, and the highest token of the key that was known by then.
    asked: BTreeMap<Attempt, (Wanted, u64)>,
    highest: BTreeMap<&'static str, u64>,
    seen: BTreeSet<(&'static str, u64)>,
}

impl Invariant for Tokens {
    fn see(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Asked(attempt, _, wanted) => {
                let known = self.highest.get(wanted.key).copied().unwrap_or(0);
                self.asked.insert(*attempt, (*wanted, known));
            }
            Fact::Granted {
                attempt, number, ..
            } => {
                let Some((wanted, known)) = self.asked.get(attempt) else {
                    return Err(format!("#{attempt} was granted and nobody asked"));
                };
                let key = wanted.key;
                let has = format!("#{attempt} has {number} for {key}");
                if number <= known {
                    return Err(format!("{has}, and {known} was granted before it asked"));
                }
                if !self.seen.insert((key, *number)) {
                    return Err(format!("{has}, as another had"));
                }
                let highest = self.highest.entry(key).or_default();
                *highest = (*highest).max(*number);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{asked, granted, judge};
    use super::*;

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let after = |number| {
            let facts = [
                (0, asked(1)),
                (1, granted(1, 5, 9)),
                (2, asked(2)),
                (3, granted(2, number, 9)),
            ];
            judge(Tokens::default(), &facts)
        };
        assert!(after(6).is_ok());
        assert!(after(5).is_err());
        assert!(after(4).is_err());
    }

    #[test]
    fn who_asks_at_the_same_time_may_have_the_lower_one_but_not_the_same() {
        let both = |number| {
            let facts = [
                (0, asked(1)),
                (0, asked(2)),
                (1, granted(1, 5, 9)),
                (3, granted(2, number, 9)),
            ];
            judge(Tokens::default(), &facts)
        };
        assert!(both(4).is_ok());
        assert!(both(5).is_err());
    }
}
