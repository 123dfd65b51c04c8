//! When all have gone, nothing is left: no claim at the store, no task in a process.

use std::time::Duration;

use super::Invariant;
use crate::simulate::book::Fact;

pub(super) struct Left;

impl Invariant for Left {
    fn see(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Remains(what, count) if *count > 0 => Err(format!("{count} {what} are left")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::judge;
    use super::*;

    #[test]
    fn what_is_left_is_found() {
        let left = |count| judge(Left, &[(0, Fact::Remains("tasks".to_owned(), count))]);
        assert!(left(0).is_ok());
        assert!(left(1).is_err());
    }
}
