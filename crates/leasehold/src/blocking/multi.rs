//! Several keys as one lock, for threads.

use std::time::Duration;

use leasehold_core::{Key, Loss, Token};

use super::face::options;
use super::lease::{Lease, LossSignal};
use super::runtime::{block_on, block_within};
use crate::lease::{Exclusive, LeaseKind, Shared};
use crate::{Acquire, Error, Released};

/// Several keys as one lock: as [`crate::MultiLock`].
#[derive(Clone)]
pub struct MultiLock<K: LeaseKind = Exclusive>(pub(super) crate::MultiLock<K>);

options!(MultiLock, crate::MultiLock<K>, K: LeaseKind);

impl MultiLock {
    /// The same keys, as a reader of each.
    #[must_use]
    pub fn shared(self) -> MultiLock<Shared> {
        MultiLock(self.0.shared())
    }
}

impl<K: LeaseKind> MultiLock<K> {
    /// The keys, as they were named.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.0.keys()
    }

    /// Waits for all keys: as [`crate::MultiLock::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self) -> Result<MultiLease<K>, Error> {
        block_on(self.0.lock()).map(MultiLease)
    }

    /// Takes all keys if it can at once: as [`crate::MultiLock::try_lock`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self) -> Result<Option<MultiLease<K>>, Error> {
        Ok(block_on(self.0.try_lock())?.map(MultiLease))
    }

    /// Waits for so long at most: as [`crate::MultiLock::lock_within`].
    ///
    /// # Errors
    /// As there.
    pub fn lock_within(&self, limit: Duration) -> Result<MultiLease<K>, Error> {
        block_on(self.0.lock_within(limit)).map(MultiLease)
    }

    /// Waits for all keys, runs `work` under them, and releases them: as
    /// [`Mutex::with_lock`](super::Mutex::with_lock).
    ///
    /// # Errors
    /// As there.
    pub fn with_lock<T>(&self, work: impl FnOnce(&MultiLease<K>) -> T) -> Result<T, Error> {
        let lease = self.lock()?;
        let done = work(&lease);
        block_on(lease.0.give_back(done))
    }

    /// The verb behind the others: as [`crate::MultiLock::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, how: Acquire) -> Result<Option<MultiLease<K>>, Error> {
        Ok(block_on(self.0.acquire(how))?.map(MultiLease))
    }
}

/// A hold on several keys: as [`crate::MultiLease`].
#[derive(Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct MultiLease<K: LeaseKind = Exclusive>(crate::MultiLease<K>);

impl MultiLease {
    /// Each key with its own fencing token, as they were named.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.0.tokens()
    }
}

impl<K: LeaseKind> MultiLease<K> {
    /// The leases of the keys, each on its own from now on.
    #[must_use = "leases that are dropped are released"]
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.0.into_leases().into_iter().map(Lease).collect()
    }

    /// Whether all parts may be relied on now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// How long all parts may be relied on without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// What other threads watch all parts by.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal(self.0.loss_signal())
    }

    /// Waits until any part is lost.
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Waits for so long whether any part is lost; `None` if not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        block_within(limit, self.0.lost())
    }

    /// Renews all parts now: as [`crate::MultiLease::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<(), Error> {
        block_on(self.0.renew())
    }

    /// Gives all keys back: as [`crate::MultiLease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, Error> {
        block_on(self.0.release())
    }
}
