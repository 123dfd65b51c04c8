//! The guard of several keys.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold_core::{Key, Loss, Token};

use crate::error::{Error, Operation};
use crate::hold::Released;
use crate::lease::{Any, Exclusive, Lease, LeaseKind};
use crate::loss::LossSignal;

/// A hold on several keys. Losing one part loses the whole.
///
/// Dropping it releases all parts in the background.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct MultiLease<K: LeaseKind = Exclusive> {
    /// As the keys were named; at least one.
    parts: Vec<Lease<K>>,
}

impl MultiLease {
    /// Each key with its own fencing token, as they were named.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.parts.iter().map(|part| (part.key(), part.token()))
    }
}

impl MultiLease<Any> {
    /// The lease as one of that kind, or as it was if it holds in another mode.
    ///
    /// # Errors
    /// The lease itself, which goes on.
    pub fn downcast<K: LeaseKind>(self) -> Result<MultiLease<K>, Self> {
        if !self.parts.iter().all(|part| K::is(part.mode())) {
            return Err(self);
        }
        let parts = self.parts.into_iter().flat_map(Lease::downcast);
        Ok(MultiLease::of(parts.collect()))
    }
}

/// A lease on one key, as one that may be on several.
impl<K: LeaseKind> From<Lease<K>> for MultiLease<K> {
    fn from(lease: Lease<K>) -> Self {
        Self::of(vec![lease])
    }
}

impl<K: LeaseKind> MultiLease<K> {
    /// Of at least one.
    pub(super) fn of(parts: Vec<Lease<K>>) -> Self {
        Self { parts }
    }

    /// The same lease, whose mode is known at run time only.
    pub fn into_any(self) -> MultiLease<Any> {
        MultiLease::of(self.parts.into_iter().map(Lease::into_any).collect())
    }

    /// The leases of the keys, as they were named.
    pub fn parts(&self) -> &[Lease<K>] {
        &self.parts
    }

    /// The leases of the keys, each on its own from now on.
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.parts
    }

    /// Whether all parts may be relied on now. Costs no round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.iter().all(Lease::is_valid)
    }

    /// How long all parts may be relied on without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.parts.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// How long it took to get all.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let waited = self.parts.iter().map(Lease::waited);
        waited.max().unwrap_or_default()
    }

    /// What other tasks watch all parts by: it tells the first loss.
    ///
    /// # Examples
    /// See [`LossSignal`].
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        let signals = self.parts.iter().map(|part| part.hold().claim().clone());
        LossSignal::of(signals)
    }

    /// Same as [`Lease::give_back`].
    pub(crate) async fn give_back<T>(self, done: T) -> Result<T, Error> {
        let given = self.parts.into_iter().map(|part| part.give_back(()));
        for part in join_all(given).await {
            part?;
        }
        Ok(done)
    }

    /// Completes when any part is lost: stop working then.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`Lease::lost`].
    pub async fn lost(&self) -> Loss {
        let lost = self.parts.iter().map(|part| Box::pin(part.lost()));
        select_all(lost).await.0
    }

    /// Runs `work`, and drops it the moment any part is lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lease stays.
    ///
    /// # Errors
    /// `Lost`: as [`Lease::run`].
    ///
    /// # Examples
    /// See [`Lease::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            loss = self.lost() => {
                let hold = self.parts[0].hold();
                Err(hold.lost_error(Operation::Hold, loss))
            }
            done = work => Ok(done),
        }
    }

    /// Renews all parts now, by their whole TTL.
    ///
    /// # Cancel safety
    /// Same as [`Lease::renew`].
    ///
    /// # Errors
    /// Same as [`Lease::renew`], for the first part that fails.
    ///
    /// # Examples
    /// See [`Lease::renew`].
    pub async fn renew(&self) -> Result<(), Error> {
        let renewed = join_all(self.parts.iter().map(Lease::renew)).await;
        renewed.into_iter().collect()
    }

    /// Gives all keys back. `AlreadyGone` if any had gone before.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    ///
    /// # Errors
    /// Same as [`Lease::release`], for the first part that fails; all are tried.
    ///
    /// # Examples
    /// See [`MultiLock`](crate::MultiLock).
    pub async fn release(self) -> Result<Released, Error> {
        release_all(self.parts).await
    }
}

/// Gives all back; each is tried.
pub(super) async fn release_all<K: LeaseKind>(leases: Vec<Lease<K>>) -> Result<Released, Error> {
    let mut whole = Released::StillOurs;
    // All at once, and each is tried whatever becomes of the others.
    for released in join_all(leases.into_iter().map(Lease::release)).await {
        if released? == Released::AlreadyGone {
            whole = Released::AlreadyGone;
        }
    }
    Ok(whole)
}
