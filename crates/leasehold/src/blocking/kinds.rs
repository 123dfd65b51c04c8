//! The kinds of lock, for threads: each verb of the async one, which waits.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Key, Loss, RenewalPolicy, Retry, Token};

use super::lease::{Lease, Recovered};
use super::runtime::block_on;
use crate::lease::{Exclusive, LeaseKind, Permits, Shared};
use crate::{Acquire, Error, Leader, LeaseParts, Owner, Released};

/// The options that every kind has; `$async` is what it is a face of.
macro_rules! options {
    ($lock:ident, $async:ty $(, $kind:ident: $bound:ident)?) => {
        impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            /// The lock behind it, for async code.
            #[must_use]
            pub fn as_async(&self) -> &$async {
                &self.0
            }

            /// The key.
            #[must_use]
            pub fn key(&self) -> &Key {
                self.0.key()
            }

            /// Another TTL than the client's: as [`crate::Mutex::with_ttl`].
            ///
            /// # Errors
            /// As there.
            pub fn with_ttl(self, ttl: Duration) -> Result<Self, Error> {
                self.0.with_ttl(ttl).map(Self)
            }

            /// Who renews the lease: as [`crate::Mutex::with_renewal`].
            ///
            /// # Errors
            /// As there.
            pub fn with_renewal(self, policy: RenewalPolicy) -> Result<Self, Error> {
                self.0.with_renewal(policy).map(Self)
            }

            /// The longest that a lease is renewed: as
            /// [`crate::Mutex::with_max_hold`].
            ///
            /// # Errors
            /// As there.
            pub fn with_max_hold(self, max_hold: Duration) -> Result<Self, Error> {
                self.0.with_max_hold(max_hold).map(Self)
            }

            /// The least that the key stays taken: as
            /// [`crate::Mutex::with_min_hold`].
            ///
            /// # Errors
            /// As there.
            pub fn with_min_hold(self, min_hold: Duration) -> Result<Self, Error> {
                self.0.with_min_hold(min_hold).map(Self)
            }

            /// How others see who holds or waits.
            #[must_use]
            pub fn with_label(self, label: impl AsRef<str>) -> Self {
                Self(self.0.with_label(label))
            }
        }

        impl $(<$kind: $bound>)? fmt::Debug for $lock $(<$kind>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// The options of those that may give up the order of arrival.
macro_rules! unfair_options {
    ($lock:ident) => {
        impl $lock {
            /// Gives up fairness for throughput: as [`crate::Mutex::unfair`].
            #[must_use]
            pub fn unfair(self) -> Self {
                Self(self.0.unfair())
            }

            /// Asks again and again instead of standing in line: as
            /// [`crate::Mutex::retrying`].
            #[must_use]
            pub fn retrying(self, retry: Retry) -> Self {
                Self(self.0.retrying(retry))
            }
        }
    };
}

/// The verbs of those whose leases another process can take over.
macro_rules! adopting {
    ($lock:ident, $kind:ty) => {
        impl $lock {
            /// Takes over a lease that was handed over: as
            /// [`crate::Mutex::adopt`].
            ///
            /// # Errors
            /// As there.
            pub fn adopt(&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error> {
                block_on(self.0.adopt(parts)).map(Lease)
            }

            /// Takes over a lease whose holder may still rely on it: as
            /// [`crate::Mutex::adopt_by_force`].
            ///
            /// # Errors
            /// As there.
            pub fn adopt_by_force(&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error> {
                block_on(self.0.adopt_by_force(parts)).map(Lease)
            }

            /// Goes on after a crash: as [`crate::Mutex::recover`].
            ///
            /// # Errors
            /// As there.
            pub fn recover(
                &self,
                parts: &LeaseParts<$kind>,
                how: impl Into<Acquire>,
            ) -> Result<Option<Recovered<$kind>>, Error> {
                let recovered = block_on(self.0.recover(parts, how))?;
                Ok(recovered.map(Recovered::from))
            }
        }
    };
}

/// The verbs of a lock that is held alone.
macro_rules! locking {
    ($lock:ident, $async:literal) => {
        impl $lock {
            #[doc = concat!("Waits for the key: as [`crate::", $async, "::lock`].")]
            ///
            /// # Errors
            /// As there.
            pub fn lock(&self) -> Result<Lease, Error> {
                block_on(self.0.lock()).map(Lease)
            }

            #[doc = concat!("Takes the key if it can be had at once: as [`crate::", $async, "::try_lock`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_lock(&self) -> Result<Option<Lease>, Error> {
                Ok(block_on(self.0.try_lock())?.map(Lease))
            }

            #[doc = concat!("Waits for so long at most: as [`crate::", $async, "::lock_within`].")]
            ///
            /// # Errors
            /// As there.
            pub fn lock_within(&self, limit: Duration) -> Result<Lease, Error> {
                block_on(self.0.lock_within(limit)).map(Lease)
            }

            #[doc = concat!("The verb behind the others: as [`crate::", $async, "::acquire`].")]
            ///
            /// # Errors
            /// As there.
            pub fn acquire(&self, how: Acquire) -> Result<Option<Lease>, Error> {
                Ok(block_on(self.0.acquire(how))?.map(Lease))
            }
        }
    };
}

/// A fair, fenced mutex: as [`crate::Mutex`].
#[derive(Clone)]
pub struct Mutex(pub(super) crate::Mutex);

options!(Mutex, crate::Mutex);
unfair_options!(Mutex);
adopting!(Mutex, Exclusive);
locking!(Mutex, "Mutex");

/// A fair, fenced mutex that its owner may enter again: as [`crate::Reentrant`].
#[derive(Clone)]
pub struct Reentrant(pub(super) crate::Reentrant);

options!(Reentrant, crate::Reentrant);
adopting!(Reentrant, Exclusive);
locking!(Reentrant, "Reentrant");

impl Reentrant {
    /// Whose claims these are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }
}

/// Many readers, or one writer: as [`crate::RwLock`].
///
/// ```
/// use leasehold::blocking;
/// let client = blocking::connect("memory:")?;
/// let config = client.rwlock("config")?;
/// let writer = config.write()?;
/// let reader = writer.downgrade()?;
/// assert!(config.try_read()?.is_some() && config.try_write()?.is_none());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct RwLock(pub(super) crate::RwLock);

options!(RwLock, crate::RwLock);
unfair_options!(RwLock);

impl RwLock {
    /// Waits to read: as [`crate::RwLock::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<Lease<Shared>, Error> {
        block_on(self.0.read()).map(Lease)
    }

    /// Reads if it can at once: as [`crate::RwLock::try_read`].
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<Option<Lease<Shared>>, Error> {
        Ok(block_on(self.0.try_read())?.map(Lease))
    }

    /// Waits to read for so long at most: as [`crate::RwLock::read_within`].
    ///
    /// # Errors
    /// As there.
    pub fn read_within(&self, limit: Duration) -> Result<Lease<Shared>, Error> {
        block_on(self.0.read_within(limit)).map(Lease)
    }

    /// Waits to write: as [`crate::RwLock::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<Lease, Error> {
        block_on(self.0.write()).map(Lease)
    }

    /// Writes if it can at once: as [`crate::RwLock::try_write`].
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.try_write())?.map(Lease))
    }

    /// Waits to write for so long at most: as [`crate::RwLock::write_within`].
    ///
    /// # Errors
    /// As there.
    pub fn write_within(&self, limit: Duration) -> Result<Lease, Error> {
        block_on(self.0.write_within(limit)).map(Lease)
    }

    /// The verb behind those that read: as [`crate::RwLock::acquire_read`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_read(&self, how: Acquire) -> Result<Option<Lease<Shared>>, Error> {
        Ok(block_on(self.0.acquire_read(how))?.map(Lease))
    }

    /// The verb behind those that write: as [`crate::RwLock::acquire_write`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_write(&self, how: Acquire) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.acquire_write(how))?.map(Lease))
    }

    /// Takes over a lease that was handed over: as [`crate::RwLock::adopt`].
    ///
    /// # Errors
    /// As there.
    pub fn adopt<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error> {
        block_on(self.0.adopt(parts)).map(Lease)
    }

    /// Takes over a lease whose holder may still rely on it: as
    /// [`crate::RwLock::adopt_by_force`].
    ///
    /// # Errors
    /// As there.
    pub fn adopt_by_force<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error> {
        block_on(self.0.adopt_by_force(parts)).map(Lease)
    }

    /// Goes on writing after a crash: as [`crate::RwLock::recover_write`].
    ///
    /// # Errors
    /// As there.
    pub fn recover_write(
        &self,
        parts: &LeaseParts<Exclusive>,
        how: impl Into<Acquire>,
    ) -> Result<Option<Recovered>, Error> {
        let recovered = block_on(self.0.recover_write(parts, how))?;
        Ok(recovered.map(Recovered::from))
    }
}

/// So many at a time: as [`crate::Semaphore`].
#[derive(Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

options!(Semaphore, crate::Semaphore);
unfair_options!(Semaphore);
adopting!(Semaphore, Permits);

impl Semaphore {
    /// How many permits there are, says this handle.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// Waits for a permit: as [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// Waits for `take` permits: as [`crate::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many(&self, take: u32) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_many(take)).map(Lease)
    }

    /// Takes a permit if it can at once: as [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }

    /// Takes `take` permits if it can at once: as [`crate::Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_many(&self, take: u32) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.try_acquire_many(take))?.map(Lease))
    }

    /// Waits for a permit for so long at most: as [`crate::Semaphore::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// Waits for `take` permits for so long at most: as [`crate::Semaphore::acquire_many_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many_within(&self, take: u32, limit: Duration) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_many_within(take, limit)).map(Lease)
    }

    /// The verb behind the others: as [`crate::Semaphore::acquire_with`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_with(&self, take: u32, how: Acquire) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.acquire_with(take, how))?.map(Lease))
    }

    /// Changes the number of permits: as [`crate::Semaphore::resize`].
    ///
    /// # Errors
    /// As there.
    pub fn resize(&self, permits: u32) -> Result<Self, Error> {
        block_on(self.0.resize(permits)).map(Self)
    }
}

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

    /// Waits until any part is lost.
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Waits for so long whether any part is lost; `None` if not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        let lost = async { tokio::time::timeout(limit, self.0.lost()).await };
        block_on(lost).ok()
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

/// One leader at a time: as [`crate::Election`].
#[derive(Clone)]
pub struct Election(pub(super) crate::Election);

options!(Election, crate::Election);

impl Election {
    /// Waits until it leads: as [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error> {
        block_on(self.0.campaign(note)).map(Leadership)
    }

    /// Leads if it can at once: as [`crate::Election::try_campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error> {
        Ok(block_on(self.0.try_campaign(note))?.map(Leadership))
    }

    /// Waits until it leads, for so long at most: as [`crate::Election::campaign_within`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign_within(
        &self,
        note: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Leadership, Error> {
        block_on(self.0.campaign_within(note, limit)).map(Leadership)
    }

    /// The verb behind the others: as [`crate::Election::campaign_with`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign_with(
        &self,
        note: impl AsRef<str>,
        how: Acquire,
    ) -> Result<Option<Leadership>, Error> {
        Ok(block_on(self.0.campaign_with(note, how))?.map(Leadership))
    }

    /// Who leads now: as [`crate::Election::leader`].
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        block_on(self.0.leader())
    }

    /// The leaders from now on: as [`crate::Election::observe`].
    #[must_use]
    pub fn observe(&self) -> Leaders {
        Leaders(self.0.observe())
    }
}

/// A term of office: as [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership(crate::Leadership);

impl Leadership {
    /// The term: the fencing token.
    #[must_use]
    pub fn term(&self) -> Token {
        self.0.term()
    }

    /// Whether it leads, and may rely on it.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0.is_leader()
    }

    /// The lease behind it, on its own.
    pub fn into_lease(self) -> Lease {
        Lease(self.0.into_lease())
    }

    /// Tells those who observe something else: as [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, note: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.proclaim(note))
    }

    /// Waits until it does not lead any more.
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Waits for so long whether it does not lead any more; `None` if not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        let lost = async { tokio::time::timeout(limit, self.0.lost()).await };
        block_on(lost).ok()
    }

    /// Steps down: as [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// As there.
    pub fn resign(self) -> Result<Released, Error> {
        block_on(self.0.resign())
    }
}

/// The leaders of an election, one after the other: as [`crate::Leaders`], as
/// an iterator that does not end.
#[derive(Debug)]
pub struct Leaders(crate::Leaders);

impl Iterator for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(block_on(self.0.next()))
    }
}
