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

pub(super) use {adopting, locking, options, unfair_options};
