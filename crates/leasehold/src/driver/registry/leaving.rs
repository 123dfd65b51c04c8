//! How a claim leaves: told again until somebody has confirmed it.

use std::time::Duration;

use leasehold_core::{Backoff, Moment};

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A claim on its way out: released until somebody has confirmed it, or until
/// it has lapsed anyway.
#[derive(Debug)]
pub(super) struct Leaving {
    until: Moment,
    due: Moment,
    in_flight: bool,
    backoff: Backoff,
}

impl Leaving {
    /// Leaves at `now`, and has lapsed by `until`.
    pub(super) fn new(now: Moment, until: Moment, seed: u64) -> Self {
        Self {
            until,
            due: now,
            in_flight: false,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed),
        }
    }

    /// Pushes may have been missed, and the store is there again.
    pub(super) fn handle_reset(&mut self, now: Moment) {
        self.due = now;
    }

    pub(super) fn poll_transmit(&mut self, now: Moment) -> bool {
        let send = !self.in_flight && now >= self.due;
        self.in_flight |= send;
        send
    }

    pub(super) fn handle_unanswered(&mut self, now: Moment) {
        self.in_flight = false;
        self.due = now + self.backoff.pause();
    }

    pub(super) fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        if self.in_flight {
            return Some(self.until.max(now + Duration::from_secs(1)));
        }
        (now < self.until).then(|| self.due.min(self.until))
    }
}
