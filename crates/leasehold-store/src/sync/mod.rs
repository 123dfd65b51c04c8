//! What the shells share between threads and tasks, and how they wait.
//!
//! Hidden: for the crates of this repository only.
//!
//! Every lock and atomic of the client comes from here, so that the same files can be
//! run by a scheduler that tries the orders in which things can happen: built with
//! `--cfg shuttle`, for `leasehold-interleave` only. See `docs/proof/concurrency.md`.

#[cfg(shuttle)]
mod checked;

/// For what belongs to the process, and outlives whatever a scheduler runs.
pub use std::sync::Mutex as Global;

#[cfg(shuttle)]
pub use self::checked::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, advance,
    id_of, now, sleep, timeout,
};

#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(not(shuttle))]
pub use tokio::runtime::Handle as Runtime;
#[cfg(not(shuttle))]
pub use tokio::time::{sleep, timeout};

/// Which runtime it is.
#[cfg(not(shuttle))]
#[allow(clippy::unnecessary_wraps, reason = "other schedulers' have none")]
pub fn id_of(runtime: &Runtime) -> Option<tokio::runtime::Id> {
    Some(runtime.id())
}
