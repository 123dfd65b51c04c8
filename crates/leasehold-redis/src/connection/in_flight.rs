//! Abandoned requests: claims that were given up while their request was in flight.
//!
//! A claim that is given up is released over another connection, and the release may overtake the
//! request. The key remembers released ids, but only a few ([`leasehold_core::TOMBSTONES`]): if
//! many claims are released at once, a late request would hold the key without any client knowing
//! it. So a release waits for abandoned requests.

use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::ClaimId;
use leasehold_store::sync::OnDrop;
use tokio::sync::watch;

use crate::std_ext::lock;

/// What was given up while it was on its way, and has not arrived yet.
#[derive(Default)]
pub(crate) struct AbandonedRequests(Mutex<Vec<Flight>>);

/// A request on its way.
struct Flight {
    claims: Vec<ClaimId>,
    /// The request has landed once the other end of the channel is gone.
    landed: watch::Receiver<()>,
}

impl Flight {
    fn has_landed(&self) -> bool {
        self.landed.has_changed().is_err()
    }
}

/// Kept beside a request until it was answered or cannot be carried out any more.
pub(crate) type CompletionGuard = watch::Sender<()>;

impl AbandonedRequests {
    fn lock(&self) -> MutexGuard<'_, Vec<Flight>> {
        let mut all = lock(&self.0);
        all.retain(|flight| !flight.has_landed());
        all
    }

    /// A request for these claims begins. The first is kept by who waits for the answer.
    pub(crate) fn begin(
        self: &Arc<Self>,
        claims: &[&ClaimId],
    ) -> (OnDrop<impl FnOnce() + use<>>, CompletionGuard) {
        let (guard, landed) = watch::channel(());
        let claims = claims.iter().copied().cloned().collect();
        let (abandoned, flight) = (Arc::clone(self), Flight { claims, landed });
        let claim = OnDrop::new(move || {
            // One that has landed was answered, and has not been given up.
            if !flight.has_landed() {
                abandoned.lock().push(flight);
            }
        });
        (claim, guard)
    }

    /// Waits until nothing that was given up is on its way for this claim.
    pub(crate) async fn landed(&self, claim: &ClaimId) {
        let under_way: Vec<_> = self
            .lock()
            .iter()
            .filter(|flight| flight.claims.contains(claim))
            .map(|flight| flight.landed.clone())
            .collect();
        for mut landed in under_way {
            // Nothing is ever sent: it ends with the landing.
            let _ = landed.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn only_what_was_given_up_is_waited_for() {
        let flights = Arc::new(AbandonedRequests::default());
        let [a, b, c] = [1, 2, 3].map(ClaimId::from_random);
        let (claim, guard) = flights.begin(&[&a, &b]);
        assert!(flights.landed(&a).now_or_never().is_some(), "not given up");
        drop(claim);
        assert!(flights.landed(&c).now_or_never().is_some(), "another");
        let mut waiting = Box::pin(flights.landed(&b));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(guard);
        assert!(waiting.now_or_never().is_some());
        assert!(flights.lock().is_empty());

        let (claim, guard) = flights.begin(&[&a]);
        drop(guard);
        drop(claim);
        assert!(lock(&flights.0).is_empty(), "answered");
        assert!(flights.landed(&a).now_or_never().is_some());
    }
}
