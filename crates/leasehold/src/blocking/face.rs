//! What the kinds of lock have in common: each verb of the async one, which waits.

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
            pub fn key(&self) -> &leasehold_core::Key {
                self.0.key()
            }

            /// Another TTL than the client's: as [`crate::Mutex::with_ttl`].
            ///
            /// # Errors
            /// As there.
            pub fn with_ttl(self, ttl: std::time::Duration) -> Result<Self, $crate::Error> {
                self.0.with_ttl(ttl).map(Self)
            }

            /// Who renews the lease: as [`crate::Mutex::with_renewal`].
            ///
            /// # Errors
            /// As there.
            pub fn with_renewal(self, policy: leasehold_core::RenewalPolicy) -> Result<Self, $crate::Error> {
                self.0.with_renewal(policy).map(Self)
            }

            /// The longest that a lease is renewed: as
            /// [`crate::Mutex::with_max_hold`].
            ///
            /// # Errors
            /// As there.
            pub fn with_max_hold(self, max_hold: std::time::Duration) -> Result<Self, $crate::Error> {
                self.0.with_max_hold(max_hold).map(Self)
            }

            /// The least that the key stays taken: as
            /// [`crate::Mutex::with_min_hold`].
            ///
            /// # Errors
            /// As there.
            pub fn with_min_hold(self, min_hold: std::time::Duration) -> Result<Self, $crate::Error> {
                self.0.with_min_hold(min_hold).map(Self)
            }

            /// How others see who holds or waits.
            #[must_use]
            pub fn with_label(self, label: impl AsRef<str>) -> Self {
                Self(self.0.with_label(label))
            }
        }

        impl $(<$kind: $bound>)? std::fmt::Debug for $lock $(<$kind>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
            pub fn retrying(self, retry: leasehold_core::Retry) -> Self {
                Self(self.0.retrying(retry))
            }
        }
    };
}

/// Looking at the key, without a claim.
macro_rules! looking {
    ($lock:ident) => {
        impl $lock {
            /// Whether anybody holds the key now: as [`crate::Mutex::is_locked`].
            ///
            /// # Errors
            /// As there.
            pub fn is_locked(&self) -> Result<bool, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.is_locked())
            }

            /// Who holds the key now: as [`crate::Mutex::holders`].
            ///
            /// # Errors
            /// As there.
            pub fn holders(&self) -> Result<Vec<$crate::HolderInfo>, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.holders())
            }
        }
    };
}

/// Runs `work` under a lease, and releases it. A thread cannot be stopped from outside: `work`
/// looks at the lease itself, and the loss is told when it has ended.
macro_rules! working {
    ($lock:ident, $name:ident, $acquire:ident, $lease:ty) => {
        impl $lock {
            #[doc = concat!("Waits as [`Self::", stringify!($acquire), "`], runs `work` under the lease, and releases it.")]
            ///
            /// Nothing stops a thread from outside: work that takes long looks at
            /// [`is_valid`](crate::Lease::is_valid) itself.
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($acquire), "`];")]
            /// `Lost` when the lease was lost before the work was done: another may
            /// hold the key, and what the work did last may have overlapped with it.
            pub fn $name<T>(&self, work: impl FnOnce(&$lease) -> T) -> Result<T, $crate::Error> {
                let lease = self.$acquire()?;
                let done = work(&lease);
                $crate::blocking::runtime::block_on(lease.0.give_back(done))
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
            pub fn adopt(
                &self,
                parts: &$crate::LeaseParts<$kind>,
            ) -> Result<$crate::blocking::Lease<$kind>, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.adopt(parts))
                    .map($crate::blocking::Lease)
            }

            /// Takes over a lease whose holder may still rely on it: as
            /// [`crate::Mutex::adopt_by_force`].
            ///
            /// # Errors
            /// As there.
            pub fn adopt_by_force(
                &self,
                parts: &$crate::LeaseParts<$kind>,
            ) -> Result<$crate::blocking::Lease<$kind>, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.adopt_by_force(parts))
                    .map($crate::blocking::Lease)
            }

            /// Goes on after a crash: as [`crate::Mutex::recover`].
            ///
            /// # Errors
            /// As there.
            pub fn recover(
                &self,
                parts: &$crate::LeaseParts<$kind>,
                how: impl Into<$crate::Acquire>,
            ) -> Result<Option<$crate::blocking::Recovered<$kind>>, $crate::Error> {
                let recovered = $crate::blocking::runtime::block_on(self.0.recover(parts, how))?;
                Ok(recovered.map($crate::blocking::Recovered::from))
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
            pub fn lock(&self) -> Result<$crate::blocking::Lease, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.lock()).map($crate::blocking::Lease)
            }

            #[doc = concat!("Takes the key if it can be had at once: as [`crate::", $async, "::try_lock`].")]
            ///
            /// # Errors
            /// As there.
            pub fn try_lock(&self) -> Result<Option<$crate::blocking::Lease>, $crate::Error> {
                Ok($crate::blocking::runtime::block_on(self.0.try_lock())?.map($crate::blocking::Lease))
            }

            #[doc = concat!("Waits for so long at most: as [`crate::", $async, "::lock_within`].")]
            ///
            /// # Errors
            /// As there.
            pub fn lock_within(&self, limit: std::time::Duration) -> Result<$crate::blocking::Lease, $crate::Error> {
                $crate::blocking::runtime::block_on(self.0.lock_within(limit)).map($crate::blocking::Lease)
            }

            #[doc = concat!("The verb behind the others: as [`crate::", $async, "::acquire`].")]
            ///
            /// # Errors
            /// As there.
            pub fn acquire(&self, how: $crate::Acquire) -> Result<Option<$crate::blocking::Lease>, $crate::Error> {
                Ok($crate::blocking::runtime::block_on(self.0.acquire(how))?.map($crate::blocking::Lease))
            }
        }
    };
}

pub(super) use {adopting, locking, looking, options, unfair_options, working};
