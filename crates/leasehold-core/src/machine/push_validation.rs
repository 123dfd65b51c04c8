//! Decides which pushes a claim trusts, and limits how often the others make it send a request.

use super::timing::{CLOCK_AHEAD, HINT_BURST, HINT_PAUSE};
use crate::{Moment, StoreTime, Token};

/// The last answer about a waiting claim. Later pushes come from the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct LastAnswer {
    /// When its request was sent.
    pub(super) sent: Moment,
    /// When the store took the step.
    pub(super) at: StoreTime,
}

impl LastAnswer {
    /// Whether a grant pushed at `now` can be of a step at `at` with this token: not
    /// older than the answer that the claim waits, and neither further ahead than the
    /// store's clock can have gone since. A token is far ahead of the step's time only where
    /// the clock was stepped back, so none that would fence every later one is believed.
    pub(super) fn allows(&self, now: Moment, at: StoreTime, token: Token) -> bool {
        let passed = now.since(self.sent);
        let latest = self.at + passed + passed / 100 + CLOCK_AHEAD;
        at >= self.at && at <= latest && token.0 <= latest.0
    }
}

/// Limits how often pushes without a proof make a claim send a request, so that a flood of pushes
/// does not become a flood of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HintLimit {
    /// When the last question was allowed.
    asks: Moment,
    /// When all of a burst is allowed again.
    full: Moment,
}

impl HintLimit {
    /// Returns when to ask the store because of a hint at `now`: at once, or a little later
    /// together with earlier hints.
    pub fn ask_at(&mut self, now: Moment) -> Moment {
        if self.asks > now {
            return self.asks;
        }
        self.asks = now.max(self.full.before(HINT_PAUSE * (HINT_BURST - 1)));
        self.full = self.full.max(self.asks) + HINT_PAUSE;
        self.asks
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_grant_is_of_the_time_since_the_last_answer() {
        let second = 1_000_000;
        let answer = LastAnswer {
            sent: Moment(5 * second),
            at: StoreTime(100 * second),
        };
        let allows = |now, at, token| {
            answer.allows(
                Moment(now * second),
                StoreTime(at * second),
                Token(token * second),
            )
        };
        assert!(allows(6, 101, 101));
        assert!(allows(6, 100, 3), "a store may count its tokens otherwise");
        assert!(!allows(6, 99, 99), "before the answer that it waits");
        assert!(!allows(6, 112, 100), "ahead of the clock");
        assert!(
            !allows(6, 101, 112),
            "a token that the clock does not reach for long"
        );
        assert!(allows(26, 131, 131));
    }

    #[test]
    fn a_flood_of_hints_is_asked_about_in_pauses() {
        let mut limit = HintLimit::default();
        let (start, millisecond) = (1_000_000, 1_000);
        let mut asked = Vec::new();
        for hint in 0..10_000 {
            let at = limit.ask_at(Moment(start + hint * millisecond));
            if asked.last() != Some(&at) {
                asked.push(at);
            }
        }
        assert_eq!(asked[0], Moment(start), "the first at once");
        assert!(
            asked.len() <= 16 + 10_000 / 50 + 1,
            "{} questions",
            asked.len()
        );
        let last = Moment(start + 10_000 * millisecond);
        assert!(
            asked[asked.len() - 1] <= last + HINT_PAUSE,
            "and none is put off for long"
        );
        let later = last + Duration::from_secs(1);
        assert_eq!(limit.ask_at(later), later, "after a while at once again");
    }
}
