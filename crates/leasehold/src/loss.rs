//! Signals that tell other tasks when a lease is lost.

use std::sync::Arc;

use futures_util::future::select_all;
use leasehold_core::Loss;
use leasehold_store::debug;

use crate::session::claim_slot::ClaimSlot;

/// A signal that tells other tasks when a lease is lost. Cheap to clone, and independent of the
/// lease, which can still be released.
///
/// For a lease on several keys it reports the first loss.
/// [`Lease::loss_signal`](crate::Lease::loss_signal) makes one.
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
/// drop(lease);
/// watcher.await.unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a signal does nothing until somebody waits for it or looks at it"]
pub struct LossSignal {
    leases: Arc<[Arc<ClaimSlot>]>,
}

impl LossSignal {
    pub(crate) fn of(leases: impl IntoIterator<Item = Arc<ClaimSlot>>) -> Self {
        let leases = leases.into_iter().collect();
        Self { leases }
    }

    /// Returns whether the lease is lost. No round trip.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Returns why the lease is lost, if it is. No round trip.
    #[must_use]
    pub fn reason(&self) -> Option<Loss> {
        self.leases.iter().find_map(|lease| lease.loss())
    }

    /// Completes with the reason when the lease is lost, or with `None` when it was released or
    /// dropped first. A lease that was handed over counts as lost.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`LossSignal`].
    #[must_use = "it says whether the lease was lost or released"]
    pub async fn lost(&self) -> Option<Loss> {
        let over = self.leases.iter().map(|lease| Box::pin(lease.over()));
        // What was lost before the others were given back is a loss, whichever is seen first.
        select_all(over).await.0.or_else(|| self.reason())
    }
}

debug!(LossSignal; |it| reason: it.reason());
