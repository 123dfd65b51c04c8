//! Releases a claim: repeats the release until the store has confirmed it.

use std::sync::Arc;

use super::Failure;
use super::timing::RELEASE_AGAIN;
use crate::{Backoff, Command, Moment, Reply};

/// A claim that is being released: the release is repeated until it is confirmed, or until the
/// claim has expired anyway.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Releasing {
    /// One for each id under which it may stand: the id, and the one that may have replaced it.
    release: Arc<Command>,
    another: Option<Arc<Command>>,
    until: Moment,
    pub(super) due: Moment,
    in_flight: bool,
    sends: u32,
    /// Whether it held the key until it was released.
    pub(super) held: bool,
    /// Whether its caller wants to know what the release finds.
    pub(super) reports: bool,
    /// Whether the last request was refused.
    pub(super) refused: bool,
    /// Once a request has failed.
    backoff: Option<Box<Backoff>>,
}

impl Releasing {
    /// Leaves at `now`, and has lapsed by `until`.
    pub(super) fn new(
        release: Command,
        another: Option<Command>,
        now: Moment,
        until: Moment,
        reports: bool,
    ) -> Self {
        Self {
            release: Arc::new(release),
            another: another.map(Arc::new),
            until,
            due: now,
            in_flight: false,
            sends: 0,
            held: false,
            reports,
            refused: false,
            backoff: None,
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Moment) -> Option<Arc<Command>> {
        if self.in_flight || now < self.due {
            return None;
        }
        self.in_flight = true;
        self.sends = self.sends.saturating_add(1);
        Some(self.release.clone())
    }

    /// Whether it has left with this answer. `valid`: so its lease was when it was given back.
    pub(super) fn handle_reply(&mut self, reply: &Reply, valid: bool) -> bool {
        self.in_flight = false;
        self.held |= match reply {
            Reply::Released { held } => *held,
            // An earlier release may have done its work, and its answer was lost.
            _ => valid && self.sends > 1,
        };
        self.sends = 0;
        if let Some(another) = self.another.take() {
            self.release = another;
            return false;
        }
        true
    }

    /// Handles a failed release: it is repeated after a pause.
    pub(super) fn handle_failure(&mut self, now: Moment, failure: Failure, seed: u64) {
        self.in_flight = false;
        if failure != Failure::Unanswered {
            // It was not taken, so it has not released anything.
            self.sends = self.sends.saturating_sub(1);
        }
        self.refused = failure == Failure::Refused;
        let (base, cap) = RELEASE_AGAIN;
        let backoff = || Box::new(Backoff::new(base, cap, seed));
        self.due = now + self.backoff.get_or_insert_with(backoff).pause();
    }

    pub(super) fn poll_timeout(&self) -> Option<Moment> {
        (!self.in_flight).then(|| self.due.min(self.until))
    }

    /// Whether nothing of it can be left by now.
    pub(super) fn has_lapsed(&self, now: Moment) -> bool {
        now >= self.until && !self.in_flight
    }
}
