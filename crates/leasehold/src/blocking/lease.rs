//! The guards, for threads.

use std::time::Duration;

use leasehold_core::{Key, Loss, Mode, Standpoint, Token};

use super::face::face;
use crate::background::block_within;
use crate::lease::{Any, Exclusive, LeaseKind, Shared};
use crate::store::Acknowledged;
use crate::{Error, GrantNumber, LeaseParts, Released};

/// What all guards have in common.
macro_rules! losing {
    ($lease:ident $(, <$kind:ident: $bound:ident>)?) => {
        face! { impl $(<$kind: $bound>)? $lease $(<$kind>)? {
            /// What other threads watch it by.
            now fn loss_signal(&self) -> LossSignal;
            /// Waits until it is lost: for a thread that stops the work then.
            wait fn lost(&self) -> Loss;
        }}

        impl $(<$kind: $bound>)? $lease $(<$kind>)? {
            /// Waits for so long whether it is lost; `None` if it is not.
            #[must_use]
            pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
                block_within(limit, self.0.lost())
            }
        }
    };
}

pub(super) use losing;

face! {
    /// A hold on a key: as [`crate::Lease`]. Dropping it never blocks.
    #[must_use = "a lease that is dropped is released"]
    struct Lease<K: LeaseKind = Exclusive>;
}

losing!(Lease, <K: LeaseKind>);

face! { impl Lease {
    /// The fencing token.
    now fn token(&self) -> Token;
    /// Turns a writer into a reader.
    wait fn downgrade(self) -> Result<Lease<Shared>, Error>;
}}

face! { impl Lease<Any> {
    /// The fencing token, if the lease fences.
    now fn token(&self) -> Option<Token>;
}}

face! { impl<K: LeaseKind> Lease<K> {
    /// The key.
    now fn key(&self) -> &Key;
    /// The number of the grant.
    now fn number(&self) -> GrantNumber;
    /// How it holds; for permits, how many of how many.
    now fn mode(&self) -> Mode;
    /// Whether the lease may be relied on now. Costs no round trip.
    now fn is_valid(&self) -> bool;
    /// How long the lease may be relied on without another renewal.
    now fn remaining(&self) -> Duration;
    /// What is known about the lease. Costs no round trip.
    now fn standpoint(&self) -> Standpoint;
    /// Why the last renewal failed.
    now fn last_error(&self) -> Option<Error>;
    /// Who has the lease besides the server that granted it.
    now fn acknowledged(&self) -> Option<Acknowledged>;
    /// How long it took to get it.
    now fn waited(&self) -> Duration;
    /// How often the place in the queue was lost while waiting.
    now fn rejoined(&self) -> u32;
    /// Renews the lease now.
    wait fn renew(&self) -> Result<(), Error>;
    /// Renews the lease now, to live `ttl` from now.
    wait fn renew_for(&self, ttl: Duration) -> Result<(), Error>;
    /// Replaces the claim id.
    wait fn rotate(&self) -> Result<(), Error>;
    /// A copy of what the lease is.
    now fn parts(&self) -> LeaseParts<K>;
    /// Turns the lease into data.
    wait fn into_parts(self) -> Result<LeaseParts<K>, Error>;
    /// The same lease, whose mode is known at run time only.
    now fn into_any(self) -> Lease<Any>;
    /// Gives the key back.
    wait fn release(self) -> Result<Released, Error>;
}}

impl Lease<Any> {
    /// The lease as one of that kind: see [`crate::Lease::downcast`].
    ///
    /// # Errors
    /// The lease itself, which goes on.
    pub fn downcast<K: LeaseKind>(self) -> Result<Lease<K>, Self> {
        self.0.downcast().map(Lease).map_err(Self)
    }
}

face! {
    /// Says when a lease is lost, to any thread that watches: as [`crate::LossSignal`].
    ///
    /// ```
    /// use leasehold::blocking;
    /// let client = blocking::connect("memory:")?;
    /// let lease = client.mutex("orders/42")?.lock()?;
    /// let signal = lease.loss_signal();
    /// let watcher = std::thread::spawn(move || signal.lost());
    /// lease.release()?;
    /// assert_eq!(watcher.join().unwrap(), None, "given back, not lost");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[derive(Clone)]
    struct LossSignal;
}

face! { impl LossSignal {
    /// Whether the lease is lost. Costs no round trip.
    now fn is_lost(&self) -> bool;
    /// Why the lease is lost, if it is. Costs no round trip.
    now fn reason(&self) -> Option<Loss>;
    /// Waits until the lease is lost; `None` when it was given back before.
    wait fn lost(&self) -> Option<Loss>;
}}

/// As [`crate::Recovered`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a lease that is dropped is released"]
pub struct Recovered<K: LeaseKind = Exclusive> {
    /// The lease.
    pub lease: Lease<K>,
    /// Whether the old claim had gone, and this is a new one.
    pub anew: bool,
}

impl<K: LeaseKind> From<crate::Recovered<K>> for Recovered<K> {
    fn from(recovered: crate::Recovered<K>) -> Self {
        Self {
            lease: Lease(recovered.lease),
            anew: recovered.anew,
        }
    }
}

face! {
    /// A hold on several keys: as [`crate::MultiLease`].
    #[must_use = "a lease that is dropped is released"]
    struct MultiLease<K: LeaseKind = Exclusive>;
}

losing!(MultiLease, <K: LeaseKind>);

face! { impl<K: LeaseKind> MultiLease<K> {
    /// Whether all parts may be relied on now.
    now fn is_valid(&self) -> bool;
    /// How long all parts may be relied on without another renewal.
    now fn remaining(&self) -> Duration;
    /// How long it took to get all.
    now fn waited(&self) -> Duration;
    /// Renews all parts now.
    wait fn renew(&self) -> Result<(), Error>;
    /// The same lease, whose mode is known at run time only.
    now fn into_any(self) -> MultiLease<Any>;
    /// Gives all keys back.
    wait fn release(self) -> Result<Released, Error>;
}}

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
}
