//! The options and verbs that kinds of locks share, each written down once.
//!
//! Each macro writes methods for a type: `options!(Lock)` for the untyped lock itself,
//! `options!(Mutex: lock)` for a type whose field `lock` is one.

/// The options that every kind of lock has.
macro_rules! options {
    ($lock:ty $(: $inner:ident)? $(, $kind:ident: $bound:ident)?) => {
        impl $(<$kind: $bound>)? $lock {
            /// The key.
            #[must_use]
            pub fn key(&self) -> &leasehold_core::Key {
                &self $(.$inner)? .wish.key
            }

            /// Another TTL than the client's.
            ///
            /// # Errors
            /// `Invalid` below 50 ms or above 24 h.
            pub fn with_ttl(mut self, ttl: std::time::Duration) -> Result<Self, crate::Error> {
                self $(.$inner)? .set_ttl(ttl)?;
                Ok(self)
            }

            /// Who renews the lease: the watchdog (the default), the caller, or nobody.
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

            /// The longest that a lease is renewed, counted from its grant: then
            /// it is lost, with [`crate::Loss::MaxHold`]. A shorter one shortens
            /// the TTL too.
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

            /// The least that the key stays taken, counted from the grant, even
            /// when the lease is released sooner or its holder dies: so that a
            /// short job does not run twice on machines whose clocks differ.
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

            /// The piece of work that the claims belong to: see
            /// [`Client::deadlocks`](crate::Client::deadlocks).
            #[must_use]
            pub fn with_context(mut self, context: &leasehold_core::ClaimContext) -> Self {
                self $(.$inner)? .set_context(context);
                self
            }

            /// How others see who holds or waits.
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
            /// Whether anybody holds the key now, in whatever way: also a holder that has
            /// left or died, while its minimum hold or its lease is not over.
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

            /// Who holds the key now, in order of their grants;
            /// [`crate::Client::inspect`] has also those who wait.
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
            /// Gives up fairness for throughput: the key may be taken ahead of those
            /// who wait, and a release leaves it free for whoever comes first. Waiters
            /// can starve. Those who claim the same key fairly keep their order among
            /// themselves.
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
            /// Does not stand in the queue: asks again and again, after the pauses
            /// of `retry`, until the key is free and nobody waits for it, or its owner
            /// holds it. Unfair to whoever asks so; a lock that is
            /// [unfair](crate::Mutex::unfair) too may also pass those who wait.
            ///
            /// Stores that cannot queue do so anyway, with [`crate::Retry::default`].
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
            /// Waits for the key, as long as it takes.
            ///
            /// # Cancel safety
            /// Dropping the future leaves the queue in the background; the place in the queue is
            /// lost.
            ///
            /// # Errors
            /// `Unavailable` when the store gives no answer for longer than the
            /// operation time-out (while waiting: the waiter TTL). `Refused`, `Invalid`,
            /// `Corrupt`: see [`crate::ErrorKind`].
            ///
            /// # Examples
            #[doc = concat!("See [`", stringify!($lock), "`].")]
            pub async fn lock(&self) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .obtain(crate::Wait::Forever).await
            }

            /// Takes the key if it is free and nobody waits, or if its owner holds it;
            /// `None` when it is busy.
            ///
            /// # Cancel safety
            /// Dropping the future releases the key in the background, if it was granted.
            ///
            /// # Errors
            /// Same as [`Self::lock`]: not being able to ask is an error, busy is not.
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

            /// Waits for the key for so long at most.
            ///
            /// # Cancel safety
            /// Same as [`Self::lock`].
            ///
            /// # Errors
            /// `Timeout` when it was not free in time; else as [`Self::lock`].
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

            /// Waits for the key, runs `work` under it, and releases it.
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

            /// The verb behind the others, with every option. `None`: busy, with
            /// [`Wait::No`](crate::Wait::No). On a [`crate::Semaphore`] this is
            /// `acquire_with`: `acquire` takes a permit there.
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
            /// Takes over a lease that was handed over with
            /// [`crate::Lease::into_parts`], with a new claim id and a higher token.
            ///
            /// # Cancel safety
            /// Dropping the future releases what it may have taken, in the background.
            ///
            /// # Errors
            /// `Lost`: the claim has gone, or another process has taken it, or its id was
            /// replaced since the parts were made. `Invalid`: another key or kind, or it
            /// was not handed over. Else as acquiring.
            ///
            /// # Examples
            /// See [`crate::Lease::into_parts`].
            pub async fn adopt(
                &self,
                parts: &crate::LeaseParts<$kind>,
            ) -> Result<crate::Lease<$kind>, crate::Error> {
                self $(.$inner)? .adopt_as(parts).await
            }

            /// Takes over a lease whose holder may still be alive and rely on it: the
            /// holder is told, but **for a while both may work**. Only fencing protects
            /// then. Exclusion holds if the holder is known to be gone.
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

            /// Goes on after a crash: takes over the lease that these parts describe
            /// (as [`Self::adopt_by_force`]: be sure that its holder is gone), or
            /// acquires a new one if that claim has gone. `None`: busy, with
            /// [`crate::Wait::No`].
            ///
            /// # Cancel safety
            /// Same as [`Self::adopt`].
            ///
            /// # Errors
            /// As acquiring.
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
