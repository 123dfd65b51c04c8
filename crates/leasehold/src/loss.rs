//! Watching a lease without having it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::select_all;
use leasehold_core::Loss;

use crate::session::live::LiveClaim;

/// Says when a lease is lost, to any task that watches: cheap to clone, and independent of the
/// lease, which stays free to be released.
///
/// Of several leases it tells the first loss. [`Lease::loss_signal`](crate::Lease::loss_signal)
/// makes one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let lease = client.mutex("orders/42")?.lock().await?;
/// let signal = lease.loss_signal();
/// let watcher = tokio::spawn(async move {
///     match signal.lost().await {
///         Some(loss) => eprintln!("stop: {loss}"),
///         None => println!("done"),
///     }
/// });
/// lease.release().await?;
/// watcher.await.unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LossSignal {
    leases: Arc<[Arc<LiveClaim>]>,
}

impl LossSignal {
    pub(crate) fn of(leases: impl IntoIterator<Item = Arc<LiveClaim>>) -> Self {
        Self {
            leases: leases.into_iter().collect(),
        }
    }

    /// Whether the lease is lost. Costs no round trip.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the lease is lost, if it is. Costs no round trip.
    #[must_use]
    pub fn reason(&self) -> Option<Loss> {
        self.leases.iter().find_map(|lease| lease.loss())
    }

    /// Completes when the lease is lost, with the reason, or with `None` when it was given back
    /// before: released or dropped. A lease that was handed over counts as lost.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`LossSignal`].
    pub async fn lost(&self) -> Option<Loss> {
        if self.leases.is_empty() {
            return None;
        }
        let over = self.leases.iter().map(|lease| Box::pin(lease.over()));
        select_all(over).await.0
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal")
            .field("reason", &self.reason())
            .finish_non_exhaustive()
    }
}
