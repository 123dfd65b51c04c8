//! The mutex: one holder at a time. Its methods are in `verbs`.

use leasehold_store::debug;

use crate::lock::Lock;

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
/// assert_eq!(lease.release().await?, leasehold::Released::Held);
/// # Ok(()) }
/// ```
///
/// What holds nothing is named by the compiler, with what is missing:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// fn pay(client: &leasehold::Client) -> Result<(), leasehold::Error> {
///     client.mutex("orders/42")?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
#[must_use = "a mutex holds nothing until one of its methods has taken a lease"]
pub struct Mutex {
    pub(crate) lock: Lock,
}

debug!(Mutex; |it| key: it.key());
