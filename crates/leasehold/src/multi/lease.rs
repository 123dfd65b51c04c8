//! The lease on several keys.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold_core::{Key, Loss, Token};

use crate::error::{Error, Operation};
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Released};
use crate::loss::LossSignal;

/// A lease on several keys. If one part is lost, the whole lease is lost.
///
/// Dropping it releases all parts in the background, as for a [`Lease`].
#[derive(Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct MultiLease<K: LeaseKind = Exclusive> {
    /// As the keys were named; at least one.
    parts: Vec<Lease<K>>,
}

impl MultiLease {
    /// Returns each key with its own fencing token, in the order in which the keys were given.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.parts.iter().map(|part| (part.key(), part.token()))
    }
}

impl MultiLease<Any> {
    /// Converts to a lease of kind `K`, if its mode is of that kind.
    ///
    /// # Errors
    /// The lease itself, unchanged.
    pub fn downcast<K: LeaseKind>(self) -> Result<MultiLease<K>, Self> {
        if !self.parts.iter().all(|part| K::is(part.mode())) {
            return Err(self);
        }
        let parts = self.parts.into_iter().flat_map(Lease::downcast);
        Ok(MultiLease::of(parts.collect()))
    }
}

/// Converts a lease on one key to a lease on several keys.
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

    /// Converts to a lease whose mode is known only at run time.
    pub fn into_any(self) -> MultiLease<Any> {
        MultiLease::of(self.parts.into_iter().map(Lease::into_any).collect())
    }

    /// Returns the leases of the keys, in the order in which the keys were given.
    pub fn parts(&self) -> &[Lease<K>] {
        &self.parts
    }

    /// Splits it into the leases of the keys, which are independent from now on.
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.parts
    }

    /// Returns whether all parts are valid now. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.iter().all(Lease::is_valid)
    }

    /// Returns how long all parts are valid without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.parts.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Returns how long the acquisition of all keys took.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let waited = self.parts.iter().map(Lease::waited);
        waited.max().unwrap_or_default()
    }

    /// Returns a signal by which other tasks notice the first loss of a part.
    ///
    /// # Examples
    /// See [`LossSignal`].
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        let signals = self.parts.iter().map(|part| part.slot().clone());
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

    /// Runs `work`, and drops it as soon as any part is lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and keeps the lease.
    ///
    /// # Errors
    /// `Lost`: as [`Lease::run`], for the part that was lost.
    ///
    /// # Examples
    /// See [`Lease::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let lost = self.parts.iter().map(|part| Box::pin(part.lost()));
        let done = tokio::select! {
            biased;
            (loss, part, _) = select_all(lost) => {
                Err(self.parts[part].lost_error(Operation::Hold, loss))
            }
            done = work => Ok(done),
        }?;
        self.parts
            .iter()
            .try_for_each(|part| part.check_held(Operation::Hold))?;
        Ok(done)
    }

    /// Renews all parts now, for their whole TTL.
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

    /// Releases all keys. Returns `AlreadyGone` if any part had expired or was taken before.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    ///
    /// # Errors
    /// Same as [`Lease::release`], for the first part that fails; the release of all parts is
    /// tried.
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
