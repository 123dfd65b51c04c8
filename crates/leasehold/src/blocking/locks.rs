//! Blocking mutex, read-write lock, semaphore, re-entrant lock and multi-lock.

use std::time::Duration;

use leasehold_core::{Key, Mode, RenewalPolicy, Retry};

use super::election::Election;
use super::face::face;
use super::lease::{Lease, MultiLease, Recovered};
use crate::lease::{Any, Exclusive, LeaseKind, Permits, Shared};
use crate::verbs::kinds;
use crate::{Error, HolderInfo, Inspection, LeaseParts, LockOptions, Owner};

/// The options that every kind has.
macro_rules! options {
    ($lock:ident $(<$kind:ident: $bound:ident>)? $(: $inner:ident)?) => {
        face! { impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            /// Returns the key.
            now fn key(&self) -> &Key;
            /// Sets the TTL, instead of the client's.
            now fn with_ttl(self, ttl: Duration) -> Self;
            /// Sets who renews the lease.
            now fn with_renewal(self, policy: RenewalPolicy) -> Self;
            /// Sets the maximum time for which a lease is renewed.
            now fn with_max_hold(self, max_hold: Duration) -> Self;
            /// Sets the minimum time for which the key stays taken.
            now fn with_min_hold(self, min_hold: Duration) -> Self;
            /// Sets the context: the piece of work that the claims belong to.
            now fn with_context(self, context: &leasehold_core::ClaimContext) -> Self;
            /// Sets the label that others see.
            now fn with_label(self, label: impl AsRef<str>) -> Self;
        }}
    };
}

/// What every lock on one key has: the options, a look at the key without a claim, and polling for it.
macro_rules! single_key {
    ($lock:ident $(: $inner:ident)?) => {
        options!($lock);
        face! { impl $lock {
            /// Returns whether the key is held now.
            wait fn is_locked(&self) -> Result<bool, Error>;
            /// Returns the holders of the key.
            wait fn holders(&self) -> Result<Vec<HolderInfo>, Error>;
            /// Polls instead of waiting in the queue.
            now fn retrying(self, retry: Retry) -> Self;
        }}
    };
}

/// Giving up the order of arrival.
macro_rules! fairness {
    ($lock:ident $(: $inner:ident)?) => {
        face! { impl $lock {
            /// Gives up fairness for throughput.
            now fn unfair(self) -> Self;
        }}
    };
}

/// The verbs that get a lease, and those that run `work` under one and release it. A thread cannot be
/// stopped from outside: `work` looks at the lease itself, and the loss is told when it has ended.
macro_rules! locking {
    (
        $lock:ident $(<$kind:ident: $bound:ident>)?, $lease:ty, $what:literal $(, $invalid:literal)?;
        |$this:ident $(, $take:ident: $number:ty)?| $of:expr;
        $wait:ident, $attempt:ident, $wait_within:ident $(, $wait_opts:ident)?;
        $with:ident $(, $within:ident, $try:ident, $fallible:ident)?
    ) => {
        face! { impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            #[doc = concat!("Waits for ", $what, " without a time limit.")]
            wait fn $wait(&self $(, $take: $number)?) -> Result<$lease, Error>;
            #[doc = concat!("Acquires ", $what, " if that is possible at once; `None` if it is busy.")]
            wait fn $attempt(&self $(, $take: $number)?) -> Result<Option<$lease>, Error>;
            #[doc = concat!("Waits for ", $what, " for at most `limit`.")]
            wait fn $wait_within(&self $(, $take: $number)?, limit: Duration) -> Result<$lease, Error>;
            $(
                #[doc = concat!("Waits for ", $what, " with these options.")]
                wait fn $wait_opts(&self, how: LockOptions) -> Result<$lease, Error>;
            )?
        }}

        impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            #[doc = concat!("Waits as [`Self::", stringify!($wait), "`], runs `work` under the lease, and releases it.")]
            ///
            /// A thread cannot be stopped from outside: long work must check
            /// [`is_valid`](crate::Lease::is_valid) itself.
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($wait), "`];")]
            /// `Lost` if the lease was lost before the work finished: another client may hold the
            /// key, and the last actions of the work may have overlapped with its own.
            pub fn $with<T>(
                &self,
                $($take: $number,)?
                work: impl FnOnce(&$lease) -> T,
            ) -> Result<T, Error> {
                self.$wait($($take)?)?.work(work)
            }

            $(
                #[doc = concat!("The same as [`Self::", stringify!($with), "`], and waits for at most `limit`.")]
                ///
                /// # Errors
                #[doc = concat!("As [`Self::", stringify!($with), "`]; `Timeout` if it did not become free in time.")]
                pub fn $within<T>(&self, limit: Duration, work: impl FnOnce(&$lease) -> T) -> Result<T, Error> {
                    self.$wait_within(limit)?.work(work)
                }

                #[doc = concat!("The same as [`Self::", stringify!($with), "`] if the key is free and nobody waits; `None`, without any work, if it is busy.")]
                ///
                /// # Errors
                #[doc = concat!("As [`Self::", stringify!($with), "`]. A busy key is not an error.")]
                pub fn $try<T>(&self, work: impl FnOnce(&$lease) -> T) -> Result<Option<T>, Error> {
                    self.$attempt()?.map(|lease| lease.work(work)).transpose()
                }

                #[doc = concat!("The same as [`Self::", stringify!($with), "`] for work that may fail: its error and those of the lock are one.")]
                ///
                /// # Errors
                #[doc = concat!("That of the work, or one made of the errors of [`Self::", stringify!($with), "`].")]
                pub fn $fallible<T, E: From<Error>>(
                    &self,
                    work: impl FnOnce(&$lease) -> Result<T, E>,
                ) -> Result<T, E> {
                    self.$with(work)?
                }
            )?
        }
    };
}

/// Taking over a lease; `K: LeaseKind` says that it may be of several kinds.
macro_rules! adopting {
    ($lock:ident, $kind:ident $(: $bound:ident)?; |$this:ident, $parts:ident| $of:expr) => {
        face! { impl $lock {
            /// Takes over a lease that was handed over.
            wait fn adopt $(<$kind: $bound>)? (&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error>;
            /// Takes over a lease whose holder may still rely on it.
            wait fn adopt_by_force $(<$kind: $bound>)? (&self, parts: &LeaseParts<$kind>) -> Result<Lease<$kind>, Error>;
            /// Recovers a lease after a crash.
            wait fn recover $(<$kind: $bound>)? (&self, parts: &LeaseParts<$kind>, how: LockOptions) -> Result<Recovered<$kind>, Error>;
            /// Recovers a lease after a crash, without waiting.
            wait fn try_recover $(<$kind: $bound>)? (&self, parts: &LeaseParts<$kind>) -> Result<Option<Recovered<$kind>>, Error>;
        }}
    };
}

// By the macros above.
kinds!();

face! {
    /// A lock whose mode is a value: the blocking version of [`crate::Lock`].
    ///
    /// ```
    /// use leasehold::{Mode, blocking};
    /// let client = blocking::connect("memory:")?;
    /// let both = client.lock_of("a", Mode::EXCLUSIVE)?.on_all(["a", "b"])?;
    /// let leases = both.lock()?.into_leases();
    /// assert!(leases.iter().all(|lease| lease.token().is_some()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[derive(Clone)]
    #[must_use = "a lock holds nothing until one of its methods has taken a lease"]
    struct Lock;
}

face! { impl Lock {
    /// Returns the mode in which the key is claimed.
    now fn mode(&self) -> Mode;
    /// Makes the lock re-entrant for this owner.
    now fn with_owner(self, owner: &Owner) -> Result<Self, Error>;
    /// Sets the note that is shown to those who inspect the key.
    now fn with_note(self, note: impl AsRef<str>) -> Result<Self, Error>;
    /// Makes one lock on these keys, with the same options.
    now fn on_all(&self, keys: impl IntoIterator<Item: AsRef<str>>) -> Result<MultiLock<Any>, Error>;
    /// Reads who holds the key and who waits for it.
    wait fn inspect(&self) -> Result<Inspection, Error>;
}}

face! {
    /// A fair, fenced mutex: the blocking version of [`crate::Mutex`].
    #[derive(Clone)]
    #[must_use = "a mutex holds nothing until one of its methods has taken a lease"]
    struct Mutex;
}

face! {
    /// A fair, fenced, re-entrant mutex: the blocking version of [`crate::Reentrant`].
    #[derive(Clone)]
    #[must_use = "a lock holds nothing until one of its methods has taken a lease"]
    struct Reentrant;
}

face! { impl Reentrant {
    /// Returns the owner of the claims.
    now fn owner(&self) -> &Owner;
}}

face! {
    /// A read-write lock: the blocking version of [`crate::RwLock`].
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
    #[must_use = "a lock holds nothing until one of its methods has taken a lease"]
    struct RwLock;
}

face! {
    /// A semaphore: the blocking version of [`crate::Semaphore`].
    #[derive(Clone)]
    #[must_use = "a semaphore holds nothing until one of its methods has taken a lease"]
    struct Semaphore;
}

face! { impl Semaphore {
    /// Returns the number of permits, as this handle has it.
    now fn permits(&self) -> u32;
    /// Returns how many permits are free.
    wait fn available_permits(&self) -> Result<u32, Error>;
    /// Waits for `take` permits with these options.
    wait fn acquire_opts(&self, take: u32, how: LockOptions) -> Result<Lease<Permits>, Error>;
    /// Changes the number of permits.
    wait fn resize(&self, permits: u32) -> Result<Self, Error>;
}}

face! {
    /// One lock on several keys: the blocking version of [`crate::MultiLock`].
    #[derive(Clone)]
    #[must_use = "a lock holds nothing until one of its methods has taken a lease"]
    struct MultiLock<K: LeaseKind = Exclusive>;
}

face! { impl MultiLock {
    /// Converts to a lock that reads each key.
    now fn shared(self) -> MultiLock<Shared>;
}}

face! { impl<K: LeaseKind> MultiLock<K> {
    /// Returns whether any of the keys is held now.
    wait fn is_locked(&self) -> Result<bool, Error>;
    /// Returns the keys, in the order in which they were given.
    now fn keys(&self) -> &[Key];
    /// Converts to a lock whose mode is known only at run time.
    now fn into_any(self) -> MultiLock<Any>;
}}
