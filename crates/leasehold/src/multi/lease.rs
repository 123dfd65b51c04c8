//! The lease on several keys.

use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Key, Loss, Token};

use crate::error::Error;
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Released, first_lost, run_under};
use crate::loss::LossSignal;

/// A lease on several keys. If one part is lost, the whole lease is lost.
///
/// Dropping it releases all parts in the background, as for a [`Lease`].
#[derive(Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct MultiLease<K: LeaseKind = Exclusive> {
    /// As the keys were named; at least one.
    leases: Vec<Lease<K>>,
}

impl MultiLease {
    /// Returns each key with its own fencing token, in the order in which the keys were given.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.leases.iter().map(|part| (part.key(), part.token()))
    }
}

impl MultiLease<Any> {
    /// Converts to a lease of kind `K`, if its mode is of that kind.
    ///
    /// # Errors
    /// The lease itself, unchanged.
    pub fn downcast<K: LeaseKind>(self) -> Result<MultiLease<K>, Self> {
        if !self.leases.iter().all(|part| K::is(part.mode())) {
            return Err(self);
        }
        let parts = self.leases.into_iter().flat_map(Lease::downcast);
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
    pub(super) fn of(leases: Vec<Lease<K>>) -> Self {
        Self { leases }
    }

    /// Converts to a lease whose mode is known only at run time.
    pub fn into_any(self) -> MultiLease<Any> {
        MultiLease::of(self.leases.into_iter().map(Lease::into_any).collect())
    }

    /// Returns the leases of the keys, in the order in which the keys were given.
    pub fn leases(&self) -> &[Lease<K>] {
        &self.leases
    }

    /// Returns the keys, in the order in which they were given.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.leases.iter().map(Lease::key)
    }

    /// Splits it into the leases of the keys, which are independent from now on.
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.leases
    }

    /// Returns whether all parts are valid now. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.leases.iter().all(Lease::is_valid)
    }

    /// Returns how long all parts are valid without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.leases.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Returns how long the acquisition of all keys took.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let waited = self.leases.iter().map(Lease::waited);
        waited.max().unwrap_or_default()
    }

    /// Returns a signal by which other tasks notice the first loss of a part.
    ///
    /// # Examples
    /// See [`LossSignal`].
    pub fn loss_signal(&self) -> LossSignal {
        let signals = self.leases.iter().map(|part| part.claim.slot.clone());
        LossSignal::of(signals)
    }

    /// Same as [`Lease::work`].
    pub(crate) async fn work<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let done = self.run(work(&self)).await?;
        self.give_back(done).await
    }

    /// Same as [`Lease::give_back`].
    pub(crate) async fn give_back<T>(self, done: T) -> Result<T, Error> {
        let given = self.leases.into_iter().map(|part| part.give_back(()));
        let given: Result<(), Error> = join_all(given).await.into_iter().collect();
        given.map(|()| done)
    }

    /// Completes when any part is lost: stop working then.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Examples
    /// See [`Lease::lost`].
    pub async fn lost(&self) -> Loss {
        first_lost(&self.leases).await.1
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
        run_under(&self.leases, work).await
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
        let renewed = join_all(self.leases.iter().map(Lease::renew)).await;
        renewed.into_iter().collect()
    }

    /// The same as [`MultiLease::run`] for work that may fail.
    ///
    /// # Cancel safety
    /// Same as [`MultiLease::run`].
    ///
    /// # Errors
    /// That of the work, or one made of `Lost`.
    ///
    /// # Examples
    /// See [`Lease::try_run`].
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.run(work).await?
    }

    /// Renews all parts now; they then live `ttl` from now.
    ///
    /// # Cancel safety
    /// Same as [`Lease::renew`].
    ///
    /// # Errors
    /// Same as [`Lease::renew_for`], for the first part that fails.
    ///
    /// # Examples
    /// See [`Lease::renew_for`].
    pub async fn renew_for(&self, ttl: Duration) -> Result<(), Error> {
        let renewed = self.leases.iter().map(|lease| lease.renew_for(ttl));
        join_all(renewed).await.into_iter().collect()
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
        release_all(self.leases).await
    }
}

/// Gives all back; each is tried.
pub(super) async fn release_all<K: LeaseKind>(leases: Vec<Lease<K>>) -> Result<Released, Error> {
    let mut whole = Released::Held;
    // All at once, and each is tried whatever becomes of the others.
    for released in join_all(leases.into_iter().map(Lease::release)).await {
        if released? == Released::AlreadyGone {
            whole = Released::AlreadyGone;
        }
    }
    Ok(whole)
}
