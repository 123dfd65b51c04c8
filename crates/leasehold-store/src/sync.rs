//! Locks, atomics, tasks and timers of the client and the stores.
//!
//! Hidden: only for the crates of this repository.
//!
//! All locks and atomics of the client come from here, so that a scheduler can run the same code
//! and try different interleavings: built with `--cfg shuttle`, only for `leasehold-interleave`.
//! See `docs/proof/concurrency.md`.

#[cfg(shuttle)]
#[path = "../../../verify/interleave/scheduled.rs"]
mod scheduled;

use std::time::Duration;

#[cfg(not(shuttle))]
use std::{future::Future, pin::pin};
#[cfg(not(shuttle))]
use tokio::time::{Instant, error::Elapsed};

/// For what belongs to the process, and outlives whatever a scheduler runs.
pub use std::sync::Mutex as Global;

#[cfg(shuttle)]
pub use self::scheduled::{
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
pub use tokio::time::sleep;

/// Who is that late has stood still, as a process that was stopped.
pub const STOOD_STILL: Duration = Duration::from_millis(100);

/// As Tokio's; but who has stood still until after the end gets a moment more, since what it waits for
/// may be there and others have to be served before it is seen.
#[cfg(not(shuttle))]
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, began) = (pin!(future), Instant::now());
    match tokio::time::timeout(limit, &mut future).await {
        Err(_) if began.elapsed().saturating_sub(limit) >= STOOD_STILL => {
            tokio::time::timeout(STOOD_STILL, future).await
        }
        answer => answer,
    }
}

/// The runtime in which this is called. Without one there are no timers and no sockets.
///
/// # Errors
/// `Invalid`.
pub fn check_runtime() -> Result<Runtime, crate::StoreError> {
    Runtime::try_current().map_err(|_| {
        crate::StoreError::new(
            crate::ErrorKind::Invalid,
            "the call was made outside of a Tokio runtime",
        )
        .with_hint("call it inside #[tokio::main] or Runtime::block_on, or use leasehold::blocking")
    })
}

/// Locks, and ignores poisoning: for what is never left half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which runtime it is.
#[cfg(not(shuttle))]
#[allow(clippy::unnecessary_wraps, reason = "other schedulers' have none")]
pub fn id_of(runtime: &Runtime) -> Option<tokio::runtime::Id> {
    Some(runtime.id())
}
