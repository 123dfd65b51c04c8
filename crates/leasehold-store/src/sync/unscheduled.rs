//! Synchronisation as threads and Tokio have it.

use std::pin::Pin;
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

pub use tokio::runtime::Handle as Runtime;
use tokio::time::error::Elapsed;
pub use tokio::time::sleep;

/// As Tokio's; but when the time is over it looks some times more, with others in between: to a process
/// that stood still, what it waits for may have come, and have to be served before it is seen.
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout {
        timed: tokio::time::timeout(limit, future),
        looks: 3,
    }
}

pin_project_lite::pin_project! {
    /// Of [`timeout`].
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        timed: tokio::time::Timeout<F>,
        looks: u8,
    }
}

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

/// Which runtime it is.
#[allow(clippy::unnecessary_wraps, reason = "other schedulers' have none")]
pub fn id_of(runtime: &Runtime) -> Option<tokio::runtime::Id> {
    Some(runtime.id())
}
