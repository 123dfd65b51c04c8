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
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, id_of,
    now, sleep, sleep_anywhere, timeout,
};

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(not(shuttle))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(shuttle))]
pub(crate) use tokio::time::{sleep, timeout};

/// Which runtime it is.
#[cfg(not(shuttle))]
#[allow(clippy::unnecessary_wraps, reason = "other schedulers' have none")]
pub(crate) fn id_of(runtime: &Runtime) -> Option<tokio::runtime::Id> {
    Some(runtime.id())
}

/// Sleeps by the timers of the runtime in which it is called; where there is none, by
/// those of the blocking face's thread.
#[cfg(not(shuttle))]
pub(crate) async fn sleep_anywhere(duration: std::time::Duration) {
    let sleep = if Runtime::try_current().is_ok() {
        sleep(duration)
    } else {
        let Ok(background) = crate::blocking::background() else {
            // No thread can be started: there is nobody to wake us.
            return std::future::pending().await;
        };
        let _context = background.enter();
        sleep(duration)
    };
    sleep.await;
}
