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

#[cfg(not(shuttle))]
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
#[cfg(not(shuttle))]
use tokio::time::error::Elapsed;

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

/// As Tokio's; but when the time is over it looks some times more, with others in between: to a process
/// that stood still, what it waits for may have come, and have to be served before it is seen.
#[cfg(not(shuttle))]
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout {
        timed: tokio::time::timeout(limit, future),
        looks: 3,
    }
}

#[cfg(not(shuttle))]
pin_project_lite::pin_project! {
    /// Of [`timeout`].
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        timed: tokio::time::Timeout<F>,
        looks: u8,
    }
}

#[cfg(not(shuttle))]
impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.timed.poll(cx) {
            Poll::Ready(Err(_)) if *this.looks > 0 => {
                *this.looks -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            polled => polled,
        }
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
