//! Synchronisation of the client: that of `leasehold-store`, and a sleep for tasks without a
//! runtime.

#[cfg(shuttle)]
pub use leasehold_store::sync::advance;
pub(crate) use leasehold_store::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, OnDrop, Ordering, Runtime,
    check_runtime, id_of, lock, sleep, timeout,
};

/// All tasks have the same timers.
#[cfg(shuttle)]
pub(crate) async fn with_timers<T>(work: impl Future<Output = T>) -> T {
    work.await
}

/// Runs `work` with the timers of the runtime in which it is polled; where there is none, with
/// those of the blocking face's thread.
#[cfg(not(shuttle))]
pub(crate) async fn with_timers<T>(work: impl Future<Output = T>) -> T {
    if Runtime::try_current().is_ok() {
        return work.await;
    }
    let Ok(background) = crate::background::enter() else {
        // No thread can be started: there is nobody to wake us.
        return std::future::pending().await;
    };
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let _timers = background.enter();
        work.as_mut().poll(context)
    })
    .await
}

/// Sleeps, in a runtime or outside of one.
pub(crate) async fn sleep_anywhere(duration: std::time::Duration) {
    with_timers(async { sleep(duration).await }).await;
}
