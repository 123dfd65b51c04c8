//! Synchronisation of the client: that of `leasehold-store`, and a sleep for tasks without a
//! runtime.

#[cfg(shuttle)]
pub use leasehold_store::sync::advance;
pub(crate) use leasehold_store::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Runtime, id_of,
    sleep, timeout,
};

/// All tasks have the same timers.
#[cfg(shuttle)]
pub(crate) use leasehold_store::sync::sleep as sleep_anywhere;

/// Sleeps by the timers of the runtime in which it is called; where there is none, by
/// those of the blocking face's thread.
#[cfg(not(shuttle))]
pub(crate) async fn sleep_anywhere(duration: std::time::Duration) {
    let sleep = if Runtime::try_current().is_ok() {
        sleep(duration)
    } else {
        let Ok(background) = crate::background::enter() else {
            // No thread can be started: there is nobody to wake us.
            return std::future::pending().await;
        };
        let _context = background.enter();
        sleep(duration)
    };
    sleep.await;
}
