//! Decides whether to make another claim, with a new id, after one has ended.

use std::time::Duration;

use super::End;
use super::timing::LATE;
use crate::Backoff;

/// Decides about the next claim: one after the other, until one is granted or there is a reason
/// to stop.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rejoining {
    rejoined: u32,
    late: u32,
    pauses: Backoff,
}

impl Rejoining {
    /// For a first claim.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (first, longest) = (Duration::from_millis(5), Duration::from_secs(1));
        Self {
            rejoined: 0,
            late: 0,
            pauses: Backoff::new(first, longest, seed),
        }
    }

    /// Returns how often a claim has lost its place and another has joined the queue at the end.
    #[must_use]
    pub fn rejoined(&self) -> u32 {
        self.rejoined
    }

    /// Returns the pause before the next claim, after a claim has ended with `end`.
    ///
    /// # Errors
    /// The end, if no further claim is to be made.
    pub fn after(&mut self, end: End) -> Result<Duration, End> {
        match end {
            End::Late => self.late += 1,
            End::Gone => self.late = 0,
            _ => return Err(end),
        }
        if self.late == LATE {
            return Err(End::TooLate);
        }
        self.rejoined += 1;
        Ok(self.pauses.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_and_again_is_an_end() {
        let ends = |ends: &[End]| {
            let mut rejoining = Rejoining::new(1);
            let last = ends.iter().map(|end| rejoining.after(*end).err()).last();
            (last.flatten(), rejoining.rejoined())
        };
        use End::{Gone, Late};
        assert_eq!(ends(&[Gone; 9]), (None, 9));
        assert_eq!(ends(&[Late, Late, Late]), (Some(End::TooLate), 2));
        assert_eq!(ends(&[Late, Late, Gone, Late, Late]), (None, 5));
        assert_eq!(ends(&[Gone, End::Taken]), (Some(End::Taken), 1));
        assert_eq!(ends(&[End::TimedOut]), (Some(End::TimedOut), 0));
    }
}
