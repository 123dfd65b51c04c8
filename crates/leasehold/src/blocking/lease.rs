//! Blocking leases.

use std::time::Duration;

use leasehold_core::{Key, LeaseState, Loss, Mode, Token};

use super::face::face;
use crate::background::{block_on, block_within};
use crate::lease::{Any, Exclusive, LeaseKind, Permits, Shared};
use crate::store::Acknowledged;
use crate::{Error, GrantNumber, LeaseParts, Released};

/// What all guards have in common.
macro_rules! losing {
    ($lease:ident $(, <$kind:ident: $bound:ident>)?) => {
        face! { impl $(<$kind: $bound>)? $lease $(<$kind>)? {
            /// Returns a signal by which other threads notice a loss.
            now fn loss_signal(&self) -> LossSignal;
            /// Waits until the lease is lost, for a thread that then stops the work.
            wait fn lost(&self) -> Loss;
        }}

        impl $(<$kind: $bound>)? $lease $(<$kind>)? {
            /// Waits for at most `limit` until the lease is lost; `None` if it is not lost by
            /// then.
            #[must_use]
            pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
                block_within(limit, self.0.lost())
            }
        }
    };
}

pub(super) use losing;

/// What the leases of locks have in common, on one key or several.
macro_rules! holding {
    ($lease:ident) => {
        losing!($lease, <K: LeaseKind>);

        face! { impl<K: LeaseKind> $lease<K> {
            /// Returns whether the lease is valid now. No round trip.
            now fn is_valid(&self) -> bool;
            /// Returns how long the lease is valid without another renewal.
            now fn remaining(&self) -> Duration;
            /// Returns how long the acquisition took.
            now fn waited(&self) -> Duration;
            /// Renews the lease now.
            wait fn renew(&self) -> Result<(), Error>;
            /// Renews the lease now; it then lives `ttl` from now.
            wait fn renew_for(&self, ttl: Duration) -> Result<(), Error>;
            /// Converts to a lease whose mode is known only at run time.
            now fn into_any(self) -> $lease<Any>;
            /// Releases the lease.
            wait fn release(self) -> Result<Released, Error>;
        }}

        impl<K: LeaseKind> $lease<K> {
            pub(super) fn work<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
                let done = work(&self);
                block_on(self.0.give_back(done))
            }
        }

        impl $lease<Any> {
            #[doc = concat!("Converts to a lease of kind `K`: see [`crate::", stringify!($lease), "::downcast`].")]
            ///
            /// # Errors
            /// The lease itself, unchanged.
            pub fn downcast<K: LeaseKind>(self) -> Result<$lease<K>, Self> {
                self.0.downcast().map($lease).map_err(Self)
            }
        }
    };
}

face! {
    /// A lease on a key: the blocking version of [`crate::Lease`]. Dropping it never blocks.
    #[must_use = "a lease that is dropped is released"]
    struct Lease<K: LeaseKind = Exclusive>;
}

holding!(Lease);

face! { impl Lease {
    /// Returns the fencing token.
    now fn token(&self) -> Token;
    /// Downgrades a writer to a reader.
    wait fn downgrade(self) -> Result<Lease<Shared>, Error>;
}}

face! { impl Lease<Permits> {
    /// Returns how many permits the lease holds.
    now fn permits(&self) -> u32;
}}

face! { impl Lease<Any> {
    /// Returns the fencing token, if the lease has one.
    now fn token(&self) -> Option<Token>;
}}

face! { impl<K: LeaseKind> Lease<K> {
    /// Returns the key.
    now fn key(&self) -> &Key;
    /// Returns the number of the grant.
    now fn number(&self) -> GrantNumber;
    /// Returns the mode of the lease; for permits, how many of how many.
    now fn mode(&self) -> Mode;
    /// Returns the state of the lease: held, unknown or lost. No round trip.
    now fn state(&self) -> LeaseState;
    /// Returns why the last renewal failed.
    now fn last_error(&self) -> Option<Error>;
    /// Returns which replicas acknowledged the lease.
    now fn acknowledged(&self) -> Option<Acknowledged>;
    /// Returns how often the place in the queue was lost while waiting.
    now fn rejoined(&self) -> u32;
    /// Replaces the claim id.
    wait fn rotate(&self) -> Result<(), Error>;
    /// Publishes a note with the lease.
    wait fn set_note(&self, note: impl AsRef<str>) -> Result<(), Error>;
    /// Returns a copy of the lease as data.
    now fn parts(&self) -> Result<LeaseParts<K>, Error>;
    /// Turns the lease into data, to hand it over.
    wait fn into_parts(self) -> Result<LeaseParts<K>, Error>;
}}

/// Converts a lease on one key to a lease on several keys.
impl<K: LeaseKind> From<Lease<K>> for MultiLease<K> {
    fn from(lease: Lease<K>) -> Self {
        Self(lease.0.into())
    }
}

face! {
    /// Tells other threads when a lease is lost: the blocking version of [`crate::LossSignal`].
    ///
    /// ```
    /// use leasehold::blocking;
    /// let client = blocking::connect("memory:")?;
    /// let lease = client.mutex("orders/42")?.lock()?;
    /// let signal = lease.loss_signal();
    /// let watcher = std::thread::spawn(move || signal.lost());
    /// assert_eq!(lease.release()?, leasehold::Released::Held);
    /// assert_eq!(watcher.join().unwrap(), None, "given back, not lost");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[derive(Clone)]
    #[must_use = "a signal does nothing until somebody waits for it or looks at it"]
    struct LossSignal;
}

face! { impl LossSignal {
    /// Returns whether the lease is lost. No round trip.
    now fn is_lost(&self) -> bool;
    /// Returns why the lease is lost, if it is. No round trip.
    now fn reason(&self) -> Option<Loss>;
    /// Waits until the lease is lost; `None` if it was released first.
    wait fn lost(&self) -> Option<Loss>;
}}

/// A recovered lease: the blocking version of [`crate::Recovered`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a lease that is dropped is released"]
pub struct Recovered<K: LeaseKind = Exclusive> {
    /// The lease.
    pub lease: Lease<K>,
    /// Whether the old claim was lost, so that this is a new one.
    pub is_new: bool,
}

impl<K: LeaseKind> From<crate::Recovered<K>> for Recovered<K> {
    fn from(recovered: crate::Recovered<K>) -> Self {
        let (lease, is_new) = (Lease(recovered.lease), recovered.is_new);
        Self { lease, is_new }
    }
}

face! {
    /// A lease on several keys: the blocking version of [`crate::MultiLease`].
    #[must_use = "a lease that is dropped is released"]
    struct MultiLease<K: LeaseKind = Exclusive>;
}

holding!(MultiLease);

impl MultiLease {
    /// Returns each key with its own fencing token, in the order in which the keys were given.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.0.tokens()
    }
}

impl<K: LeaseKind> MultiLease<K> {
    /// Returns the keys, in the order in which they were given.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    /// Splits it into the leases of the keys, which are independent from now on.
    #[must_use = "leases that are dropped are released"]
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.0.into_leases().into_iter().map(Lease).collect()
    }
}
