//! A register that compares tokens takes no write out of their order, and loses none
//! that it has acknowledged: every holder claims with its token, reads, and writes one
//! more. Under every fault.

use std::collections::BTreeMap;

use crate::simulate::book::{Fact, Outcome};

#[derive(Default)]
pub(super) struct Fencing {
    /// Per key, which token has written which value.
    done: BTreeMap<&'static str, BTreeMap<u64, u64>>,
}

impl Fencing {
    pub(super) fn see(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Wrote {
                key,
                token,
                value,
                outcome: Outcome::Done,
            } => {
                let done = self.done.entry(key).or_default();
                if let Some(other) = done.insert(*value, *token) {
                    return Err(format!(
                        "the register of {key} was set to {value} with token {token}, and with {other} before: one write was lost"
                    ));
                }
                let before = done.range(..value).next_back();
                let before = before.is_some_and(|(_, other)| other > token);
                let after = done.range(value + 1..).next();
                let after = after.is_some_and(|(_, other)| other < token);
                if before || after {
                    return Err(format!(
                        "the register of {key} took the write of {value} with token {token} out of order"
                    ));
                }
            }
            Fact::Stands { key, value } => {
                let highest = self.done.get(key).and_then(|done| done.keys().next_back());
                if let Some(highest) = highest.filter(|highest| *highest > value) {
                    return Err(format!(
                        "the register of {key} has {value} in the end, and {highest} was acknowledged"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::judge;
    use super::*;

    fn wrote(token: u64, value: u64) -> (u64, Fact) {
        (
            value,
            Fact::Wrote {
                key: "k",
                token,
                value,
                outcome: Outcome::Done,
            },
        )
    }

    #[test]
    fn a_lost_write_and_one_out_of_order_are_found() {
        assert!(judge(&[wrote(1, 1), wrote(1, 2), wrote(4, 3)]).is_ok());
        assert!(judge(&[wrote(1, 1), wrote(2, 1)]).is_err());
        assert!(judge(&[wrote(4, 1), wrote(2, 2)]).is_err());
        assert!(judge(&[wrote(4, 2), wrote(5, 1)]).is_err());
        let end = (9, Fact::Stands { key: "k", value: 1 });
        assert!(judge(&[wrote(1, 1), end.clone()]).is_ok());
        assert!(judge(&[wrote(1, 1), wrote(1, 2), end]).is_err());
    }
}
