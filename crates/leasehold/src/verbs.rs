//! Macros for the options and methods that all kinds of locks share.
//!
//! Each macro writes methods for a type: `options!(Lock)` for the untyped lock itself,
//! `options!(Mutex: lock)` for a type whose field `lock` is one.

/// The options that every kind of lock has.
macro_rules! options {
    ($lock:ty $(: $inner:ident)? $(, $kind:ident: $bound:ident)?) => {
        impl $(<$kind: $bound>)? $lock {
            /// Returns the key.
            #[must_use]
            pub fn key(&self) -> &leasehold_core::Key {
                &self $(.$inner)? .request.key
            }

            /// Sets the TTL, instead of the client's.
            ///
            /// # Errors
            /// `Invalid` below 50 ms or above 24 h.
            pub fn with_ttl(mut self, ttl: std::time::Duration) -> Result<Self, crate::Error> {
                self $(.$inner)? .set_ttl(ttl)?;
                Ok(self)
            }

            /// Sets who renews the lease: the watchdog (the default), the caller, or nobody.
            ///
            /// # Errors
            /// `Invalid` for a share of the TTL outside 0.05 to 0.8.
            pub fn with_renewal(
                mut self,
                policy: leasehold_core::RenewalPolicy,
            ) -> Result<Self, crate::Error> {
                self $(.$inner)? .set_renewal(policy)?;
                Ok(self)
            }

            /// Sets the maximum time for which a lease is renewed, counted from its grant. After
            /// that it is lost, with [`crate::Loss::MaxHold`]. If it is shorter than the TTL, it
            /// shortens the TTL too.
            ///
            /// # Errors
            /// `Invalid` below 50 ms.
            pub fn with_max_hold(
                mut self,
                max_hold: std::time::Duration,
            ) -> Result<Self, crate::Error> {
                self $(.$inner)? .set_max_hold(max_hold)?;
                Ok(self)
            }

            /// Sets the minimum time for which the key stays taken, counted from the grant, even
            /// if the lease is released earlier or its holder dies. With it a short scheduled job
            /// does not run twice on machines whose clocks differ.
            ///
            /// # Errors
            /// `Invalid` above 366 days.
            pub fn with_min_hold(
                mut self,
                min_hold: std::time::Duration,
            ) -> Result<Self, crate::Error> {
                self $(.$inner)? .set_min_hold(min_hold)?;
                Ok(self)
            }

            /// Sets the context, which is the piece of work that the claims belong to: see
            /// [`Client::deadlocks`](crate::Client::deadlocks).
            #[must_use]
            pub fn with_context(mut self, context: &leasehold_core::ClaimContext) -> Self {
                self $(.$inner)? .set_context(context);
                self
            }

            /// Sets the label that others see beside the host and process id.
            #[must_use]
            pub fn with_label(mut self, label: impl AsRef<str>) -> Self {
                self $(.$inner)? .set_label(label.as_ref());
                self
            }
        }
    };
}

/// Looking at the key of a lock, without a claim.
macro_rules! looking {
    ($lock:ty $(: $inner:ident)?) => {
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
            /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`].
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
        }
    };
}

/// Giving up the order of arrival.
macro_rules! fairness {
    ($lock:ty $(: $inner:ident)?) => {
        crate::verbs::retrying!($lock $(: $inner)?);

        impl $lock {
            /// Gives up fairness for throughput: a claim may take the key ahead of waiters, and a
            /// release leaves the key free for the first claim that arrives. Waiters can starve.
            /// Fair claims on the same key keep their order among themselves.
            #[must_use]
            pub fn unfair(mut self) -> Self {
                self $(.$inner)? .set_unfair();
                self
            }
        }
    };
}

/// Asking again and again.
macro_rules! retrying {
    ($lock:ty $(: $inner:ident)?) => {
        impl $lock {
            /// Polls instead of waiting in the queue: retries with the pauses of `retry`, until
            /// the key is free and nobody waits for it, or its owner holds it. Waiters in the
            /// queue come first; a lock that is also [unfair](crate::Mutex::unfair) may overtake
            /// them.
            ///
            /// Stores without a queue are always polled, by default with
            /// [`crate::Retry::default`].
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
            #[must_use]
            pub fn retrying(mut self, retry: crate::Retry) -> Self {
                self $(.$inner)? .set_retry(retry);
                self
            }
        }
    };
}

/// The verbs of a lock whose leases are all of one kind.
macro_rules! locking {
    ($lock:ident $(: $inner:ident)?, $kind:ident) => {
        impl $lock {
            /// Waits for the key without a time limit.
            ///
            /// # Cancel safety
            /// Dropping the future leaves the queue in the background; the place in the queue is
            /// lost.
            ///
            /// # Errors
            /// `Unavailable` if the store does not answer for longer than the operation time-out
            /// (while waiting: the waiter TTL). A store that answers that it cannot do it now (a
            /// fail-over, a full disk) is waited for. `Refused`, `Invalid`, `Corrupt`: see
            /// [`crate::ErrorKind`].
            ///
            /// # Examples
            #[doc = concat!("See [`", stringify!($lock), "`].")]
            pub async fn lock(&self) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .obtain(crate::Wait::Forever).await
            }

            /// Acquires the key if it is free and nobody waits, or if its owner already holds it.
            /// Returns `None` if it is busy.
            ///
            /// # Cancel safety
            /// Dropping the future releases the key in the background, if it was granted.
            ///
            /// # Errors
            /// Same as [`Self::lock`]. A busy key is not an error.
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
            pub async fn try_lock(&self) -> Result<Option<crate::Lease<$kind>>, crate::Error> {
                self $(.$inner)? .attempt().await
            }

            /// Waits for the key for at most `limit`.
            ///
            /// # Cancel safety
            /// Same as [`Self::lock`].
            ///
            /// # Errors
            /// `Timeout` if it did not become free in time, although the store answered. If it did
            /// not answer: `Unavailable`, at most 500 ms after `limit`. Otherwise the same as
            /// [`Self::lock`].
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
            /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
            /// # Ok(()) }
            /// ```
            pub async fn lock_within(
                &self,
                limit: std::time::Duration,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .obtain(crate::Wait::For(limit)).await
            }

            /// Waits for the key, runs `work` while holding it, and releases it.
            ///
            /// The work is dropped as soon as the lease is lost, as in [`crate::Lease::run`].
            ///
            /// # Cancel safety
            /// Dropping the future drops the work and releases the lease in the background.
            ///
            /// # Errors
            /// Same as [`Self::lock`]; `Lost` if the lease was lost before the work finished: another
            /// client may hold the key, and the last actions of the work may have overlapped with
            /// its own.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// let client = leasehold::connect("memory:").await?;
            /// let orders = client.mutex("orders/42")?;
            /// let sum = orders.with_lock(async |lease| { println!("{}", lease.token()); 1 + 1 }).await?;
            /// assert_eq!(sum, 2);
            /// assert!(!orders.is_locked().await?);
            /// # Ok(()) }
            /// ```
            pub async fn with_lock<T>(
                &self,
                work: impl AsyncFnOnce(&crate::Lease<$kind>) -> T,
            ) -> Result<T, crate::Error> {
                self $(.$inner)? .with(work).await
            }

            /// Acquires with every option; the other methods call this one. Returns `None` if the
            /// key is busy and the caller does not wait ([`Wait::No`](crate::Wait::No)). On a
            /// [`crate::Semaphore`] this method is `acquire_with`; `acquire` takes one permit.
            ///
            /// # Cancel safety
            /// Same as [`Self::lock`].
            ///
            /// # Errors
            /// Same as [`Self::lock_within`].
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// use leasehold::{Acquire, Wait};
            /// let client = leasehold::connect("memory:").await?;
            /// let how = Acquire::from(Wait::Forever).on_progress(|p| println!("place {}", p.position));
            /// let lease = client.mutex("k")?.acquire(how).await?;
            /// assert!(lease.is_some());
            /// # Ok(()) }
            /// ```
            pub async fn acquire(
                &self,
                how: crate::Acquire,
            ) -> Result<Option<crate::Lease<$kind>>, crate::Error> {
                self $(.$inner)? .acquire_as(how).await
            }
        }
    };
}

/// Taking over a lease, for a lock whose leases are all of one kind.
macro_rules! adopting {
    ($lock:ty $(: $inner:ident)?, $kind:ident) => {
        impl $lock {
            /// Takes over a lease that was handed over with [`crate::Lease::into_parts`]. It gets
            /// a new claim id and a higher token.
            ///
            /// # Cancel safety
            /// Dropping the future releases the lease in the background, if it was taken over.
            ///
            /// # Errors
            /// `Lost`: the claim no longer exists, another process has taken it, or its id was
            /// replaced after the parts were made. `Invalid`: the parts are of another key or
            /// kind, or were not handed over. Otherwise the same errors as acquiring.
            ///
            /// # Examples
            /// See [`crate::Lease::into_parts`].
            pub async fn adopt(
                &self,
                parts: &crate::LeaseParts<$kind>,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .adopt_as(parts).await
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
            pub async fn adopt_by_force(
                &self,
                parts: &crate::LeaseParts<$kind>,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .force_as(parts).await
            }

            /// Recovers a lease after a crash: takes over the lease of these parts, or acquires a
            /// new one if that claim no longer exists. Make sure that the former holder is dead,
            /// as for [`Self::adopt_by_force`]. Returns `None` if the key is busy and the caller
            /// does not wait ([`crate::Wait::No`]).
            ///
            /// # Cancel safety
            /// Same as [`Self::adopt`].
            ///
            /// # Errors
            /// The same as acquiring.
            pub async fn recover(
                &self,
                parts: &crate::LeaseParts<$kind>,
                how: impl Into<crate::Acquire>,
            ) -> Result<Option<crate::Recovered<$kind>>, crate::Error> {
                self $(.$inner)? .recover_as(parts, how.into()).await
            }
        }
    };
}

/// A lock shows its key.
macro_rules! debug {
    ($lock:ident) => {
        impl std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($lock))
                    .field("key", self.key())
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use {adopting, debug, fairness, locking, looking, options, retrying};
