//! The kinds of lock, for threads.

use std::time::Duration;

use leasehold_core::{Key, Mode, RenewalPolicy, Retry};

use super::face::face;
use super::lease::{Lease, MultiLease, Recovered};
use crate::background::block_on;
use crate::lease::{Any, Exclusive, LeaseKind, Permits, Shared};
use crate::{Acquire, Error, HolderInfo, Inspection, LeaseParts, Owner};

/// The options that every kind has.
macro_rules! options {
    ($lock:ident $(, <$kind:ident: $bound:ident>)?) => {
        face! { impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            /// The key.
            now fn key(&self) -> &Key;
            /// Another TTL than the client's.
            now fn with_ttl(self, ttl: Duration) -> Result<Self, Error>;
            /// Who renews the lease.
            now fn with_renewal(self, policy: RenewalPolicy) -> Result<Self, Error>;
            /// The longest that a lease is renewed.
            now fn with_max_hold(self, max_hold: Duration) -> Result<Self, Error>;
            /// The least that the key stays taken.
            now fn with_min_hold(self, min_hold: Duration) -> Result<Self, Error>;
            /// The piece of work that the claims belong to.
            now fn with_context(self, context: &leasehold_core::ClaimContext) -> Self;
            /// How others see who holds or waits.
            now fn with_label(self, label: impl AsRef<str>) -> Self;
        }}
    };
}

/// Looking at the key, without a claim.
macro_rules! looking {
    ($lock:ident) => {
        face! { impl $lock {
            /// Whether anybody holds the key now.
            wait fn is_locked(&self) -> Result<bool, Error>;
            /// Who holds the key now.
            wait fn holders(&self) -> Result<Vec<HolderInfo>, Error>;
        }}
    };
}

/// Asking again and again.
macro_rules! retrying {
    ($lock:ident) => {
        face! { impl $lock {
            /// Asks again and again instead of standing in line.
            now fn retrying(self, retry: Retry) -> Self;
        }}
    };
}

/// Giving up the order of arrival.
macro_rules! fairness {
    ($lock:ident) => {
        retrying!($lock);
        face! { impl $lock {
            /// Gives up fairness for throughput.
            now fn unfair(self) -> Self;
        }}
    };
}

/// The verbs of a lock whose leases are all of one kind.
macro_rules! locking {
    ($lock:ident, $lease:ty $(, <$kind:ident: $bound:ident>)?) => {
        face! { impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            /// Waits for the key, as long as it takes.
            wait fn lock(&self) -> Result<$lease, Error>;
            /// Takes the key if it can be had at once; `None` when it is busy.
            wait fn try_lock(&self) -> Result<Option<$lease>, Error>;
            /// Waits for so long at most.
            wait fn lock_within(&self, limit: Duration) -> Result<$lease, Error>;
            /// The verb behind the others.
            wait fn acquire(&self, how: Acquire) -> Result<Option<$lease>, Error>;
        }}
        working!($lock, with_lock, lock, $lease $(, <$kind: $bound>)?);
    };
}

/// Runs `work` under a lease, and releases it. A thread cannot be stopped from outside: `work`
/// looks at the lease itself, and the loss is told when it has ended.
macro_rules! working {
    ($lock:ident, $name:ident, $acquire:ident, $lease:ty $(, <$kind:ident: $bound:ident>)?) => {
        impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            #[doc = concat!("Waits as [`Self::", stringify!($acquire), "`], runs `work` under the lease, and releases it.")]
            ///
            /// Nothing stops a thread from outside: work that takes long looks at
            /// [`is_valid`](crate::Lease::is_valid) itself.
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($acquire), "`];")]
            /// `Lost` when the lease was lost before the work was done: another may
            /// hold the key, and what the work did last may have overlapped with it.
            pub fn $name<T>(&self, work: impl FnOnce(&$lease) -> T) -> Result<T, Error> {
                let lease = self.$acquire()?;
                let done = work(&lease);
                block_on(lease.0.give_back(done))
            }
        }
    };
}

/// Taking over a lease, for a lock whose leases are all of one kind.
macro_rules! adopting {
    ($lock:ident, $kind:ident) => {
        face! { impl $lock {
            /// Takes over a lease that was handed over.
            wait fn adopt(&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error>;
            /// Takes over a lease whose holder may still rely on it.
            wait fn adopt_by_force(&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error>;
            /// Goes on after a crash.
            wait fn recover(&self, parts: &LeaseParts<$kind>, how: impl Into<Acquire>) -> Result<Option<Recovered<$kind>>, Error>;
        }}
    };
}

pub(super) use options;

face! {
    /// A lock whose mode is a value: as [`crate::Lock`].
    ///
    /// ```
    /// use leasehold::{Mode, blocking};
    /// let client = blocking::connect("memory:")?;
    /// let both = client.lock("a", Mode::EXCLUSIVE)?.on_all(["a", "b"])?;
    /// let leases = both.lock()?.into_leases();
    /// assert!(leases.iter().all(|lease| lease.token().is_some()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[derive(Clone)]
    struct Lock;
}

options!(Lock);
looking!(Lock);
fairness!(Lock);
locking!(Lock, Lease<Any>);
adopting!(Lock, Any);

face! { impl Lock {
    /// How the key is claimed.
    now fn mode(&self) -> Mode;
    /// Claims as this owner, who may enter again where it holds.
    now fn with_owner(self, owner: &Owner) -> Result<Self, Error>;
    /// What is told to those who look at the key.
    now fn with_note(self, note: impl AsRef<str>) -> Result<Self, Error>;
    /// The same on these keys, as one lock.
    now fn on_all(&self, keys: impl IntoIterator<Item: AsRef<str>>) -> Result<MultiLock<Any>, Error>;
    /// Looks at the key: who holds it and who waits.
    wait fn inspect(&self) -> Result<Inspection, Error>;
}}

face! {
    /// A fair, fenced mutex: as [`crate::Mutex`].
    #[derive(Clone)]
    struct Mutex;
}

options!(Mutex);
looking!(Mutex);
fairness!(Mutex);
locking!(Mutex, Lease);
adopting!(Mutex, Exclusive);

face! {
    /// A fair, fenced mutex that its owner may enter again: as [`crate::Reentrant`].
    #[derive(Clone)]
    struct Reentrant;
}

options!(Reentrant);
looking!(Reentrant);
retrying!(Reentrant);
locking!(Reentrant, Lease);
adopting!(Reentrant, Exclusive);

face! { impl Reentrant {
    /// Whose claims these are.
    now fn owner(&self) -> &Owner;
}}

face! {
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
    struct RwLock;
}

options!(RwLock);
looking!(RwLock);
fairness!(RwLock);
working!(RwLock, with_read, read, Lease<Shared>);
working!(RwLock, with_write, write, Lease);

face! { impl RwLock {
    /// Waits to read.
    wait fn read(&self) -> Result<Lease<Shared>, Error>;
    /// Reads if it can at once.
    wait fn try_read(&self) -> Result<Option<Lease<Shared>>, Error>;
    /// Waits to read for so long at most.
    wait fn read_within(&self, limit: Duration) -> Result<Lease<Shared>, Error>;
    /// Waits to write.
    wait fn write(&self) -> Result<Lease, Error>;
    /// Writes if it can at once.
    wait fn try_write(&self) -> Result<Option<Lease>, Error>;
    /// Waits to write for so long at most.
    wait fn write_within(&self, limit: Duration) -> Result<Lease, Error>;
    /// The verb behind those that read.
    wait fn acquire_read(&self, how: Acquire) -> Result<Option<Lease<Shared>>, Error>;
    /// The verb behind those that write.
    wait fn acquire_write(&self, how: Acquire) -> Result<Option<Lease>, Error>;
    /// Takes over a lease that was handed over.
    wait fn adopt<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error>;
    /// Takes over a lease whose holder may still rely on it.
    wait fn adopt_by_force<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error>;
    /// Goes on writing after a crash.
    wait fn recover_write(&self, parts: &LeaseParts<Exclusive>, how: impl Into<Acquire>) -> Result<Option<Recovered>, Error>;
}}

face! {
    /// So many at a time: as [`crate::Semaphore`].
    #[derive(Clone)]
    struct Semaphore;
}

options!(Semaphore);
looking!(Semaphore);
fairness!(Semaphore);
adopting!(Semaphore, Permits);
working!(Semaphore, with_permit, acquire, Lease<Permits>);

face! { impl Semaphore {
    /// How many permits there are, says this handle.
    now fn permits(&self) -> u32;
    /// How many permits nobody holds now.
    wait fn available_permits(&self) -> Result<u32, Error>;
    /// Waits for a permit.
    wait fn acquire(&self) -> Result<Lease<Permits>, Error>;
    /// Waits for `take` permits.
    wait fn acquire_many(&self, take: u32) -> Result<Lease<Permits>, Error>;
    /// Takes a permit if it can at once.
    wait fn try_acquire(&self) -> Result<Option<Lease<Permits>>, Error>;
    /// Takes `take` permits if it can at once.
    wait fn try_acquire_many(&self, take: u32) -> Result<Option<Lease<Permits>>, Error>;
    /// Waits for a permit for so long at most.
    wait fn acquire_within(&self, limit: Duration) -> Result<Lease<Permits>, Error>;
    /// Waits for `take` permits for so long at most.
    wait fn acquire_many_within(&self, take: u32, limit: Duration) -> Result<Lease<Permits>, Error>;
    /// The verb behind the others.
    wait fn acquire_with(&self, take: u32, how: Acquire) -> Result<Option<Lease<Permits>>, Error>;
    /// Changes the number of permits.
    wait fn resize(&self, permits: u32) -> Result<Self, Error>;
}}

face! {
    /// Several keys as one lock: as [`crate::MultiLock`].
    #[derive(Clone)]
    struct MultiLock<K: LeaseKind = Exclusive>;
}

options!(MultiLock, <K: LeaseKind>);
locking!(MultiLock, MultiLease<K>, <K: LeaseKind>);

face! { impl MultiLock {
    /// The same keys, as a reader of each.
    now fn shared(self) -> MultiLock<Shared>;
}}

face! { impl<K: LeaseKind> MultiLock<K> {
    /// The keys, as they were named.
    now fn keys(&self) -> &[Key];
    /// The same lock, whose mode is known at run time only.
    now fn into_any(self) -> MultiLock<Any>;
}}
