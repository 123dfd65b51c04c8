use std::time::Duration;

use leasehold_core::{Mode, OwnerSecret};

use super::TICK;

/// One claim that takes part: how it wants the key.
#[derive(Debug, Clone)]
pub(in crate::model) struct Part {
    pub(super) mode: Mode,
    pub(super) lease: Duration,
    pub(super) waiter: Duration,
    pub(super) wait: bool,
    pub(super) ahead: bool,
    pub(super) secret: Option<OwnerSecret>,
    pub(super) min_hold: Duration,
    /// The client whose claims may be granted one behind the other, of which it is one.
    pub(super) runs: Option<usize>,
}

impl Part {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            lease: 2 * TICK,
            waiter: 2 * TICK,
            wait: true,
            ahead: false,
            secret: None,
            min_hold: Duration::ZERO,
            runs: None,
        }
    }

    pub(in crate::model) fn writer() -> Self {
        Self::new(Mode::EXCLUSIVE)
    }

    pub(in crate::model) fn reader() -> Self {
        Self::new(Mode::SHARED)
    }

    /// So many of three permits.
    pub(in crate::model) fn permits(take: u32) -> Self {
        Self::new(Mode::permits(3, take))
    }

    /// A re-entrant claim of that owner.
    pub(in crate::model) fn of(mut self, owner: u128) -> Self {
        self.secret = Some(OwnerSecret::from_random(owner));
        self
    }

    /// One of the claims of a client, the first of which is the part of this number.
    pub(in crate::model) fn runs(mut self, client: usize) -> Self {
        self.runs = Some(client);
        self
    }

    /// Leaves rather than wait.
    pub(in crate::model) fn tries(mut self) -> Self {
        self.wait = false;
        self
    }

    /// May be granted past those who wait.
    pub(in crate::model) fn ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Keeps the key for so many ticks at least.
    pub(in crate::model) fn keeps(mut self, ticks: u32) -> Self {
        self.min_hold = TICK * ticks;
        self
    }
}
