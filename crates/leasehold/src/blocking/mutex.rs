//! Locks that are held alone, for threads.

use super::face::{adopting, locking, looking, options, unfair_options, working};
use super::lease::Lease;
use crate::Owner;
use crate::lease::Exclusive;

/// A fair, fenced mutex: as [`crate::Mutex`].
#[derive(Clone)]
pub struct Mutex(pub(super) crate::Mutex);

options!(Mutex, crate::Mutex);
unfair_options!(Mutex);
adopting!(Mutex, Exclusive);
locking!(Mutex, "Mutex");
looking!(Mutex);
working!(Mutex, with_lock, lock, Lease);

/// A fair, fenced mutex that its owner may enter again: as [`crate::Reentrant`].
#[derive(Clone)]
pub struct Reentrant(pub(super) crate::Reentrant);

options!(Reentrant, crate::Reentrant);
adopting!(Reentrant, Exclusive);
locking!(Reentrant, "Reentrant");
looking!(Reentrant);
working!(Reentrant, with_lock, lock, Lease);

impl Reentrant {
    /// Asks again and again instead of standing in line: as
    /// [`crate::Reentrant::retrying`].
    #[must_use]
    pub fn retrying(self, retry: leasehold_core::Retry) -> Self {
        Self(self.0.retrying(retry))
    }

    /// Whose claims these are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }
}
