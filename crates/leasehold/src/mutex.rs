//! The mutex: one holder at a time.

use crate::lease::Exclusive;
use crate::lock::Lock;
use crate::verbs::{adopting, debug, fairness, locking, looking, options};

/// A fair, fenced mutex: one holder at a time, first come, first served.
///
/// A cheap handle without I/O: clone it, keep it, or make a new one each time. Not re-entrant:
/// locking it twice from one task deadlocks (see [`crate::Reentrant`]).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let orders = client.mutex("orders/42")?;
/// orders.with_lock(async |lease| println!("write with token {}", lease.token())).await?;
/// let lease = orders.lock().await?;
/// assert_eq!(lease.release().await?, leasehold::Released::StillOurs);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mutex {
    lock: Lock,
}

options!(Mutex: lock);
looking!(Mutex: lock);
fairness!(Mutex: lock);
locking!(Mutex: lock, Exclusive);
adopting!(Mutex: lock, Exclusive);
debug!(Mutex);

impl Mutex {
    /// Of a lock that is held alone.
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }
}
