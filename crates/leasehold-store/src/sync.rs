//! Locks, atomics, tasks and timers of the client and the stores.
//!
//! Hidden: only for the crates of this repository.
//!
//! All locks and atomics of the client come from here, so that a scheduler can run the same code
//! and try different interleavings: built with `--cfg shuttle`, only for `leasehold-interleave`.
//! See `docs/proof/concurrency.md`.

use leasehold_core::Invalid;

#[cfg(shuttle)]
#[path = "../../../verify/interleave/scheduled.rs"]
mod scheduled;
#[cfg(not(shuttle))]
mod unscheduled;

/// For what belongs to the process, and outlives whatever a scheduler runs.
pub use std::sync::Mutex as Global;

#[cfg(shuttle)]
pub use self::scheduled::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, advance,
    id_of, now, sleep, timeout,
};
#[cfg(not(shuttle))]
pub use self::unscheduled::*;

/// The runtime in which this is called. Without one there are no timers and no sockets.
///
/// # Errors
/// `Invalid`.
pub fn check_runtime() -> Result<Runtime, crate::StoreError> {
    let why = "the call was made outside of a Tokio runtime";
    let hint = "call it inside #[tokio::main] or Runtime::block_on, or use leasehold::blocking";
    Runtime::try_current().map_err(|_| Invalid::new(why, hint).into())
}

/// Does something when it is dropped, unless it is cancelled.
#[allow(
    missing_debug_implementations,
    reason = "a function has nothing to show"
)]
#[must_use = "it acts at once if it is not kept"]
pub struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    /// Does this when it is dropped.
    pub const fn new(act: F) -> Self {
        Self(Some(act))
    }

    /// Does nothing.
    pub fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|act| act());
    }
}

/// Locks, and ignores poisoning: for what is never left half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
