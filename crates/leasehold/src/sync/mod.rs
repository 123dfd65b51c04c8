//! What the shells share between threads and tasks, and how they wait.
//!
//! Every lock and atomic of the client comes from here, so that the same files can be
//! run by a scheduler that tries the orders in which things can happen: built with
//! `--cfg shuttle`, for `leasehold-interleave` only. See `docs/proof/concurrency.md`.

#[cfg(shuttle)]
mod checked;

/// For what belongs to the process, and outlives whatever a scheduler runs.
pub(crate) use std::sync::Mutex as Global;

#[cfg(shuttle)]
pub use self::checked::advance;
#[cfg(shuttle)]
pub(crate) use self::checked::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, now,
    sleep, timeout,
};

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(not(shuttle))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(shuttle))]
pub(crate) use tokio::time::{sleep, timeout};
