//! A disturbed store makes errors of the kinds that say so, and no others: nothing is
//! damaged, and no valid request is called senseless.

use std::time::Duration;

use leasehold::ErrorKind;

use super::Invariant;
use crate::simulate::book::{Fact, Why};

pub(super) struct Answers;

impl Invariant for Answers {
    fn see(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
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
}

#[cfg(test)]
mod tests {
    use super::super::cases::judge;
    use super::*;

    #[test]
    fn errors_of_other_kinds_are_found() {
        let failed = |kind| judge(Answers, &[(0, Fact::NotGranted(1, Why::Failed(kind)))]);
        assert!(failed(ErrorKind::Unavailable).is_ok());
        assert!(failed(ErrorKind::Corrupt).is_err());
        assert!(failed(ErrorKind::Invalid).is_err());
        let left = |kind| judge(Answers, &[(0, Fact::Left(1, Some(Err(kind))))]);
        assert!(left(ErrorKind::Unavailable).is_ok());
        assert!(left(ErrorKind::Corrupt).is_err());
    }
}
