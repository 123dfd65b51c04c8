//! The options and methods that all kinds of locks share: macros, and `kinds!`, the table of which
//! kind has what, in both faces.
//!
//! Each macro writes methods for a type: `options!(Lock)` for the untyped lock itself,
//! `options!(Mutex: lock)` for a type whose field `lock` is one.

use crate::election::Election;
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Permits, Shared};
use crate::lock::Lock;
use crate::multi::{MultiLease, MultiLock};
use crate::mutex::Mutex;
use crate::reentrant::Reentrant;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;

/// The options that every kind of lock has.
macro_rules! options {
    ($lock:ident $(<$kind:ident: $bound:ident>)? $(: $inner:ident)?) => {
        impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            /// Returns the key.
            #[must_use]
            pub fn key(&self) -> &leasehold_core::Key {
                &self $(.$inner)? .request.key
            }

            /// Sets the TTL, instead of the client's.
            ///
            /// A TTL below 50 ms or above 24 h is `Invalid`: the call that acquires says so, as for
            /// every option that is out of bounds.
            pub fn with_ttl(mut self, ttl: std::time::Duration) -> Self {
                let lock = &mut self $(.$inner)?;
                lock.check(crate::settings::check_ttl(ttl));
                lock.ttl = ttl;
                lock.limit_ttl();
                self
            }

            /// Sets who renews the lease: the watchdog (the default), the caller, or nobody.
            /// `Invalid` for a share of the TTL outside 0.05 to 0.8.
            pub fn with_renewal(mut self, policy: leasehold_core::RenewalPolicy) -> Self {
                let lock = &mut self $(.$inner)?;
                if let leasehold_core::RenewalPolicy::Automatic(share) = policy {
                    lock.check(crate::settings::check_renewal(share));
                }
                lock.terms().policy = policy;
                self
            }

            /// Sets the maximum time for which a lease is renewed, counted from its grant. After
            /// that it is lost, with [`crate::Loss::MaxHold`], or `Expired` if it is not renewed
            /// automatically. If it is shorter than the TTL, it shortens the TTL too. `Invalid`
            /// below 50 ms.
            pub fn with_max_hold(mut self, max_hold: std::time::Duration) -> Self {
                let lock = &mut self $(.$inner)?;
                lock.check(crate::settings::check_max_hold(max_hold));
                lock.terms().max_hold = Some(max_hold);
                lock.limit_ttl();
                self
            }

            /// Sets the minimum time for which the key stays taken, counted from the grant, even
            /// if the lease is released earlier or its holder dies. With it a short scheduled job
            /// does not run twice on machines whose clocks differ. `Invalid` above 366 days.
            pub fn with_min_hold(mut self, min_hold: std::time::Duration) -> Self {
                let lock = &mut self $(.$inner)?;
                lock.check(crate::settings::check_min_hold(min_hold));
                lock.request.min_hold = min_hold;
                self
            }

            /// Sets the context, which is the piece of work that the claims belong to: see
            /// [`Client::deadlocks`](crate::Client::deadlocks).
            pub fn with_context(mut self, context: &leasehold_core::ClaimContext) -> Self {
                let owner = &mut self $(.$inner)? .request.owner;
                *owner = std::mem::take(owner).within(Some(context.clone()));
                self
            }

            /// Sets the label that others see beside the host and process id.
            pub fn with_label(mut self, label: impl AsRef<str>) -> Self {
                let (owner, label) = (&mut self $(.$inner)? .request.owner, Some(label.as_ref()));
                let named = leasehold_core::ClientInfo::new(&owner.host, owner.pid, label);
                *owner = named.within(owner.context.take());
                self
            }
        }
    };
}

/// What every lock on one key has: the options, a look at the key without a claim, and polling for it.
macro_rules! single_key {
    ($lock:ident $(: $inner:ident)?) => {
        options!($lock $(: $inner)?);

        impl $lock {
            /// Returns whether the key is held now, in any mode. A holder that has released or
            /// died counts while its minimum hold or its lease is not over.
            ///
            /// The answer is a snapshot: it may be out of date when it arrives.
            ///
            /// # Cancel safety
            /// Dropping the future has no effect.
            ///
            /// # Errors
            /// Same as [`Client::inspect`](crate::Client::inspect).
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// let client = leasehold::connect("memory:").await?;
            /// let lock = client.mutex("orders/42")?.with_label("billing");
            /// assert!(!lock.is_locked().await?);
            /// let lease = lock.lock().await?;
            /// assert!(lock.is_locked().await?);
            /// assert_eq!(lock.holders().await?[0].owner.label.as_deref(), Some("billing"));
            /// # Ok(()) }
            /// ```
            pub async fn is_locked(&self) -> Result<bool, crate::Error> {
                Ok(!self $(.$inner)? .inspect().await?.holders.is_empty())
            }

            /// Returns the current holders in the order of their grants;
            /// [`crate::Client::inspect`] returns the waiters too.
            ///
            /// The answer is a snapshot: it may be out of date when it arrives.
            ///
            /// # Cancel safety
            /// Dropping the future has no effect.
            ///
            /// # Errors
            /// Same as [`Self::is_locked`].
            ///
            /// # Examples
            /// See [`Self::is_locked`].
            pub async fn holders(&self) -> Result<Vec<crate::HolderInfo>, crate::Error> {
                Ok(self $(.$inner)? .inspect().await?.holders)
            }

            /// Polls instead of waiting in the queue: retries with the pauses of `retry`, of at
            /// least 1 ms, until the key is free and nobody waits for it, or its owner holds it.
            /// Waiters in the queue come first; a lock that is also
            /// [unfair](crate::Mutex::unfair) may overtake them.
            ///
            /// Stores without a queue are always polled, by default with
            /// [`crate::Retry::default`], or with pauses below 150 ms if they do not push either
            /// ([`Capabilities`](crate::store::Capabilities)).
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// use leasehold::{Owner, Retry};
            /// let client = leasehold::connect("memory:").await?;
            /// let owner = Owner::new();
            /// let lock = client.reentrant("menu", &owner)?.retrying(Retry::default());
            /// let outer = lock.lock().await?;
            /// let inner = lock.lock().await?;
            /// assert_eq!(outer.token(), inner.token());
            /// # Ok(()) }
            /// ```
            pub fn retrying(mut self, retry: crate::Retry) -> Self {
                self $(.$inner)? .request.retry = Some(retry);
                self
            }
        }
    };
}

/// Giving up the order of arrival.
macro_rules! fairness {
    ($lock:ident $(: $inner:ident)?) => {
        impl $lock {
            /// Gives up fairness for throughput: a claim may take the key ahead of waiters, and a
            /// release leaves the key free for the first claim that arrives. Waiters can starve.
            /// Fair claims on the same key keep their order among themselves.
            pub fn unfair(mut self) -> Self {
                let lock = &mut self $(.$inner)?;
                // An owner's claims stay fair: the queue does not let them pass others.
                if lock.request.secret.is_none() {
                    lock.terms().hand_off = false;
                }
                self
            }
        }
    };
}

/// The verbs that get a lease, and those that run work under one: what they wait for, what else is
/// `Invalid`, what they obtain it of (`|lock| lock.reader()`, or `|lock, take: u32|` where they are
/// told how much to take), and their names.
macro_rules! locking {
    (
        $lock:ident $(<$kind:ident: $bound:ident>)?, $lease:ty, $what:literal $(, $invalid:literal)?;
        |$this:ident $(, $take:ident: $number:ty)?| $of:expr;
        $wait:ident, $attempt:ident, $wait_within:ident $(, $wait_opts:ident)?;
        $with:ident $(, $within:ident, $try:ident, $fallible:ident)?
    ) => {
        impl $(<$kind: $bound>)? $lock $(<$kind>)? {
            #[doc = concat!("Waits for ", $what, " without a time limit.")]
            ///
            /// # Cancel safety
            /// Dropping the future leaves the queue in the background; the place in the queue is
            /// lost, and what was acquired is released.
            ///
            /// # Errors
            /// `Unavailable` if the store does not answer for longer than the operation time-out
            /// (while waiting: the waiter TTL). A store that answers that it cannot do it now (a
            /// fail-over, a full disk) is waited for. `Refused`, `Unsupported`, `Invalid`,
            /// `Corrupt`: see [`crate::ErrorKind`]. `Closed` if the client is shut down before or
            /// meanwhile, if its runtime has ended, or in a forked process.
            $(#[doc = $invalid])?
            ///
            /// # Examples
            #[doc = concat!("See [`", stringify!($lock), "`].")]
            pub async fn $wait(&self $(, $take: $number)?) -> Result<$lease, crate::Error> {
                let $this = self;
                $of.acquire_as(crate::LockOptions::new()).await
            }

            #[doc = concat!("Acquires ", $what, " if that is possible at once and nobody waits.")]
            /// Returns `None` if it is busy. A re-entrant lock is not busy for the owner that
            /// holds it.
            ///
            /// # Cancel safety
            /// Dropping the future releases the key in the background, if it was granted.
            ///
            /// # Errors
            #[doc = concat!("Same as [`Self::", stringify!($wait), "`]. A busy key is not an error.")]
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// let client = leasehold::connect("memory:").await?;
            /// let lock = client.mutex("nightly")?;
            /// let lease = lock.try_lock().await?;
            /// assert!(lease.is_some());
            /// assert!(lock.try_lock().await?.is_none());
            /// # Ok(()) }
            /// ```
            pub async fn $attempt(&self $(, $take: $number)?) -> Result<Option<$lease>, crate::Error> {
                let $this = self;
                crate::error::unless_busy($of.acquire_as(crate::LockOptions::at_once()).await)
            }

            #[doc = concat!("Waits for ", $what, " for at most `limit`.")]
            ///
            /// # Cancel safety
            #[doc = concat!("Same as [`Self::", stringify!($wait), "`].")]
            ///
            /// # Errors
            /// `Timeout` if it did not become free in time, although the store answered. If it did
            /// not answer: `Unavailable`, at most 500 ms after `limit`.
            #[doc = concat!("Otherwise the same as [`Self::", stringify!($wait), "`].")]
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// use std::time::Duration;
            /// use leasehold::ErrorKind;
            /// let client = leasehold::connect("memory:").await?;
            /// let lock = client.mutex("nightly")?;
            /// let lease = lock.lock().await?;
            /// let late = lock.lock_within(Duration::from_millis(20)).await;
            /// let error = late.unwrap_err();
            /// assert_eq!(error.kind(), ErrorKind::Timeout);
            /// assert!(error.is_timeout() && error.is_retryable() && !error.is_unavailable());
            /// # Ok(()) }
            /// ```
            pub async fn $wait_within(
                &self,
                $($take: $number,)?
                limit: std::time::Duration,
            ) -> Result<$lease, crate::Error> {
                let $this = self;
                $of.acquire_as(crate::LockOptions::new().within(limit)).await
            }

            $(
                #[doc = concat!("Waits for ", $what, " with these options.")]
                ///
                /// # Cancel safety
                #[doc = concat!("Same as [`Self::", stringify!($wait), "`].")]
                ///
                /// # Errors
                #[doc = concat!("Same as [`Self::", stringify!($wait_within), "`]; `Deadlock` with")]
                /// [`deadlock_timeout`](crate::LockOptions::deadlock_timeout).
                ///
                /// # Examples
                /// ```
                /// # #[tokio::main(flavor = "current_thread")]
                /// # async fn main() -> Result<(), leasehold::Error> {
                /// use std::time::Duration;
                /// use leasehold::LockOptions;
                /// let client = leasehold::connect("memory:").await?;
                /// let how = LockOptions::new().within(Duration::from_secs(60));
                /// let how = how.on_progress(|p| println!("place {}", p.position));
                /// let lease = client.mutex("k")?.lock_opts(how).await?;
                /// # drop(lease);
                /// # Ok(()) }
                /// ```
                pub async fn $wait_opts(&self, how: crate::LockOptions) -> Result<$lease, crate::Error> {
                    let $this = self;
                    $of.acquire_as(how).await
                }
            )?

            #[doc = concat!("Waits as [`Self::", stringify!($wait), "`], runs `work` under the lease, and releases it.")]
            ///
            /// The work is dropped as soon as the lease is lost, as in [`crate::Lease::run`].
            ///
            /// # Cancel safety
            /// Dropping the future drops the work and releases the lease in the background.
            ///
            /// # Errors
            #[doc = concat!("Same as [`Self::", stringify!($wait), "`];")]
            /// `Lost` if the lease was lost before the work finished: another client may hold the key,
            /// and the last actions of the work may have overlapped with its own.
            ///
            /// # Examples
            /// See [`crate::Mutex`].
            pub async fn $with<T>(
                &self,
                $($take: $number,)?
                work: impl AsyncFnOnce(&$lease) -> T,
            ) -> Result<T, crate::Error> {
                self.$wait($($take)?).await?.work(work).await
            }

            $(
                #[doc = concat!("The same as [`Self::", stringify!($with), "`], and waits for at most `limit`.")]
                ///
                /// # Cancel safety
                #[doc = concat!("Same as [`Self::", stringify!($with), "`].")]
                ///
                /// # Errors
                #[doc = concat!("Same as [`Self::", stringify!($with), "`]; `Timeout` if it did not become free in time.")]
                pub async fn $within<T>(
                    &self,
                    limit: std::time::Duration,
                    work: impl AsyncFnOnce(&$lease) -> T,
                ) -> Result<T, crate::Error> {
                    self.$wait_within(limit).await?.work(work).await
                }

                #[doc = concat!("The same as [`Self::", stringify!($with), "`] if the key is free and nobody waits; `None`, without any work, if it is busy.")]
                ///
                /// # Cancel safety
                #[doc = concat!("Same as [`Self::", stringify!($with), "`].")]
                ///
                /// # Errors
                #[doc = concat!("Same as [`Self::", stringify!($with), "`]. A busy key is not an error.")]
                pub async fn $try<T>(
                    &self,
                    work: impl AsyncFnOnce(&$lease) -> T,
                ) -> Result<Option<T>, crate::Error> {
                    match self.$attempt().await? {
                        Some(lease) => lease.work(work).await.map(Some),
                        None => Ok(None),
                    }
                }

                #[doc = concat!("The same as [`Self::", stringify!($with), "`] for work that may fail: its error and those of the lock are one.")]
                ///
                /// # Cancel safety
                #[doc = concat!("Same as [`Self::", stringify!($with), "`].")]
                ///
                /// # Errors
                #[doc = concat!("That of the work, or one made of the errors of [`Self::", stringify!($with), "`].")]
                ///
                /// # Examples
                /// See [`crate::Lease::try_run`].
                pub async fn $fallible<T, E: From<crate::Error>>(
                    &self,
                    work: impl AsyncFnOnce(&$lease) -> Result<T, E>,
                ) -> Result<T, E> {
                    self.$with(work).await?
                }
            )?
        }
    };
}

/// Taking over a lease: `|lock, parts| lock.of(parts)` says what takes over the lease of these parts, and
/// `K: LeaseKind` that it may be of several kinds.
macro_rules! adopting {
    ($lock:ident, $kind:ident $(: $bound:ident)?; |$this:ident, $parts:ident| $of:expr) => {
        impl $lock {
            /// Takes over a lease that was handed over with [`crate::Lease::into_parts`]. It gets
            /// a new claim id and a higher token.
            ///
            /// # Cancel safety
            /// Dropping the future releases the lease in the background, if it was taken over.
            ///
            /// # Errors
            /// `Lost`: the claim no longer exists, another process has taken it, its id was replaced
            /// after the parts were made, or the store may have lost data, such as its release.
            /// `Invalid`: the parts are of another key or kind, or were not handed over. Otherwise
            /// the same errors as acquiring: a lease that was taken over by then is released.
            ///
            /// # Examples
            /// See [`crate::Lease::into_parts`].
            pub async fn adopt<$($kind: $bound)?>(
                &self,
                $parts: &crate::LeaseParts<$kind>,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                let $this = self;
                $of.adopt_as($parts).await
            }

            /// Takes over a lease whose holder may still be alive and use it. The holder is
            /// notified, but **for a while both may work**: then only fencing protects. Exclusion
            /// holds if the holder is known to be dead.
            ///
            /// # Cancel safety
            /// Same as [`Self::adopt`].
            ///
            /// # Errors
            /// Same as [`Self::adopt`].
            pub async fn adopt_by_force<$($kind: $bound)?>(
                &self,
                $parts: &crate::LeaseParts<$kind>,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                let $this = self;
                $of.force_as($parts).await
            }

            /// Recovers a lease after a crash: takes over the lease of these parts, or acquires a
            /// new one if that is `Lost`. Make sure that the former holder is dead, as for
            /// [`Self::adopt_by_force`]. To wait for a new one, use `how`: its limit is that of
            /// the whole call.
            ///
            /// # Cancel safety
            /// Same as [`Self::adopt`].
            ///
            /// # Errors
            /// The same as acquiring; `Invalid`: the parts are of another key or kind.
            pub async fn recover<$($kind: $bound)?>(
                &self,
                $parts: &crate::LeaseParts<$kind>,
                how: crate::LockOptions,
            ) -> Result<crate::Recovered<$kind>, crate::Error> {
                let $this = self;
                $of.recover_as($parts, how).await
            }

            /// The same as [`Self::recover`], without waiting: `None` if that lease is `Lost` and
            /// the key is busy.
            ///
            /// # Cancel safety
            /// Same as [`Self::adopt`].
            ///
            /// # Errors
            /// The same as acquiring; `Invalid`: the parts are of another key or kind.
            pub async fn try_recover<$($kind: $bound)?>(
                &self,
                $parts: &crate::LeaseParts<$kind>,
            ) -> Result<Option<crate::Recovered<$kind>>, crate::Error> {
                let $this = self;
                let recovered = $of.recover_as($parts, crate::LockOptions::at_once()).await;
                crate::error::unless_busy(recovered)
            }
        }
    };
}

/// What each kind has: one table for both faces. The blocking face has macros of the same names, so
/// that this table writes its methods there. They ignore what only the async ones need: the field
/// and the closure that lead to the [`Lock`], and the line about `Invalid`.
macro_rules! kinds {
    () => {
        single_key!(Lock);
        fairness!(Lock);
        adopting!(Lock, Any; |it, parts| it);
        kinds!(Lock, Lease<Any>, "the key"; |it| it);

        single_key!(Mutex: lock);
        fairness!(Mutex: lock);
        adopting!(Mutex, Exclusive; |it, parts| it.lock);
        kinds!(Mutex, Lease, "the key"; |it| it.lock);

        single_key!(Reentrant: lock);
        adopting!(Reentrant, Exclusive; |it, parts| it.lock);
        kinds!(Reentrant, Lease, "the key"; |it| it.lock);

        single_key!(RwLock: lock);
        fairness!(RwLock: lock);
        adopting!(RwLock, K: LeaseKind; |it, parts| it.of(parts));
        locking! {
            RwLock, Lease<Shared>, "a read lease"; |it| it.reader();
            read, try_read, read_within, read_opts;
            with_read, with_read_within, with_try_read, try_with_read
        }
        locking! {
            RwLock, Lease, "the write lease"; |it| it.lock;
            write, try_write, write_within, write_opts;
            with_write, with_write_within, with_try_write, try_with_write
        }

        single_key!(Semaphore: lock);
        fairness!(Semaphore: lock);
        adopting!(Semaphore, Permits; |it, parts| it.lock);
        locking! {
            Semaphore, Lease<Permits>, "a permit",
            "`Invalid` also if the key is in use with another number of permits: the message has both.";
            |it| it.lock;
            acquire, try_acquire, acquire_within;
            with_permit, with_permit_within, with_try_permit, try_with_permit
        }
        locking! {
            Semaphore, Lease<Permits>, "`take` permits in one lease",
            "`Invalid` also for zero permits or more than there are, and as for [`Self::acquire`].";
            |it, take: u32| it.many(take);
            acquire_many, try_acquire_many, acquire_many_within;
            with_permits
        }

        options!(MultiLock<K: LeaseKind>: lock);
        kinds!(MultiLock<K: LeaseKind>, MultiLease<K>, "all keys"; |it| it);

        options!(Election: lock);
    };
    // The verbs of a kind that is locked in one way.
    ($($lock:tt)+) => {
        locking! {
            $($lock)+;
            lock, try_lock, lock_within, lock_opts;
            with_lock, with_lock_within, with_try_lock, try_with_lock
        }
    };
}

kinds!();

pub(crate) use kinds;
