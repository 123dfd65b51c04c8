//! Locks that are held alone, for threads.

use super::face::{adopting, locking, options, unfair_options};
use crate::Owner;
use crate::lease::Exclusive;

/// A fair, fenced mutex: as [`crate::Mutex`].
#[derive(Clone)]
pub struct Mutex(pub(super) crate::Mutex);

options!(Mutex, crate::Mutex);
unfair_options!(Mutex);
adopting!(Mutex, Exclusive);
locking!(Mutex, "Mutex");

/// A fair, fenced mutex that its owner may enter again: as [`crate::Reentrant`].
#[derive(Clone)]
pub struct Reentrant(pub(super) crate::Reentrant);

options!(Reentrant, crate::Reentrant);
adopting!(Reentrant, Exclusive);
locking!(Reentrant, "Reentrant");

impl Reentrant {
    /// Whose claims these are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }
}
