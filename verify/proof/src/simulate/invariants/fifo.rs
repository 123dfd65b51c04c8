//! First come, first served: who certainly stood in line when another began to ask, and
//! kept that place, has the lower number. Lines that a store forgot do not count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Invariant;
use crate::simulate::book::{Attempt, Fact, Wanted};

#[derive(Default)]
pub(super) struct Fifo {
    asked: BTreeMap<Attempt, (Wanted, Vec<Attempt>)>,
    clients: BTreeMap<Attempt, usize>,
    /// Who knows that it stands in line, and has not been served yet.
    queued: BTreeMap<Attempt, &'static str>,
    /// The numbers that were granted.
    granted: BTreeMap<Attempt, u64>,
}

impl Invariant for Fifo {
    fn see(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Asked(attempt, client, wanted) => {
                self.clients.insert(*attempt, *client);
                let ahead = self.queued.iter().filter(|(_, key)| **key == wanted.key);
                let ahead = ahead.map(|(attempt, _)| *attempt).collect();
                self.asked.insert(*attempt, (*wanted, ahead));
            }
            Fact::Queued { attempt, rejoined } => match self.asked.get(attempt) {
                Some((wanted, _)) if wanted.fair && *rejoined == 0 => {
                    self.queued.insert(*attempt, wanted.key);
                }
                // Its place is another now.
                _ => drop(self.queued.remove(attempt)),
            },
            Fact::Deaf { client } => {
                let clients = &self.clients;
                let theirs = |attempt: &Attempt| clients.get(attempt) == Some(client);
                self.queued.retain(|attempt, _| !theirs(attempt));
                // Whoever asked before may have passed them meanwhile, also if they find
                // themselves in line again.
                for (_, ahead) in self.asked.values_mut() {
                    ahead.retain(|attempt| !theirs(attempt));
                }
            }
            Fact::NotGranted(attempt, _) => drop(self.queued.remove(attempt)),
            Fact::Granted {
                attempt,
                number,
                rejoined,
                ..
            } => {
                let kept_its_place = self.queued.remove(attempt).is_some() && *rejoined == 0;
                self.granted.insert(*attempt, *number);
                if kept_its_place {
                    let overtook = |(other, lower): (&Attempt, &u64)| {
                        let (wanted, ahead) = self.asked.get(other)?;
                        (wanted.fair && ahead.contains(attempt) && lower < number).then_some(*other)
                    };
                    if let Some(other) = self.granted.iter().find_map(overtook) {
                        return Err(format!(
                            "#{other} was granted before #{attempt}, which stood in line when it asked"
                        ));
                    }
                }
            }
            Fact::Forgot { .. } => {
                self.asked.clear();
                self.queued.clear();
                self.granted.clear();
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

    fn queued(attempt: Attempt, rejoined: u32) -> Fact {
        Fact::Queued { attempt, rejoined }
    }

    /// The first stands in line, the second asks; then that happens, and the second is granted first.
    fn passed_after(what: Fact) -> Result<(), String> {
        let line = [(0, asked(1)), (1, queued(1, 0)), (2, asked(2)), (3, what)];
        let grants = [(4, granted(2, 5, 99)), (5, granted(1, 6, 99))];
        judge(Fifo::default(), &[&line[..], &grants].concat())
    }

    #[test]
    fn who_overtakes_is_found() {
        let order = |first, second| {
            let facts = [
                (0, asked(1)),
                (1, queued(1, 0)),
                (2, asked(2)),
                (3, granted(2, second, 99)),
                (4, granted(1, first, 99)),
            ];
            judge(Fifo::default(), &facts)
        };
        // The lower number was granted first, whoever hears of it first.
        assert!(order(5, 6).is_ok());
        assert!(order(6, 5).is_err());
    }

    #[test]
    fn a_line_that_a_store_forgot_does_not_count() {
        for holders in [false, true] {
            let found = passed_after(Fact::Forgot { holders });
            assert!(found.is_ok(), "holders: {holders}");
        }
    }

    #[test]
    fn who_did_not_hear_of_its_turn_can_be_passed() {
        let deaf = |client| passed_after(Fact::Deaf { client });
        assert!(deaf(1).is_ok());
        assert!(deaf(2).is_err());

        // It finds itself in line again, behind whoever passed it; those who ask later do not pass.
        let back = |later: Vec<(u64, Fact)>| {
            let facts = [
                (0, asked(1)),
                (1, queued(1, 0)),
                (2, asked(2)),
                (3, Fact::Deaf { client: 1 }),
                (3, granted(2, 5, 99)),
                (4, queued(1, 0)),
            ];
            judge(Fifo::default(), &[&facts[..], &later].concat())
        };
        assert!(back(vec![(5, granted(1, 6, 99))]).is_ok());
        let passed = [(6, granted(3, 6, 99)), (7, granted(1, 7, 99))];
        assert!(back([&[(5, asked(3))], &passed[..]].concat()).is_err());
    }

    #[test]
    fn who_was_not_in_line_yet_or_lost_its_place_can_be_passed() {
        let late = [
            (0, asked(1)),
            (1, asked(2)),
            (2, queued(1, 0)),
            (3, granted(2, 5, 99)),
            (4, granted(1, 6, 99)),
        ];
        assert!(judge(Fifo::default(), &late).is_ok());
        assert!(passed_after(queued(1, 1)).is_ok());
    }
}
