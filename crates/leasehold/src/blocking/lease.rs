//! The guard, for threads.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Key, Loss, Mode, Standpoint, Token};

use super::runtime::{block_on, block_within};
use crate::lease::{Exclusive, LeaseKind, Overlapping, Shared};
use crate::store::Acknowledged;
use crate::{Error, GrantNumber, LeaseParts, Released};

/// A hold on a key: as [`crate::Lease`]. Dropping it never blocks.
#[must_use = "a lease that is dropped is released"]
pub struct Lease<K: LeaseKind = Exclusive>(pub(super) crate::Lease<K>);

impl Lease {
    /// The fencing token: as [`crate::Lease::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// Turns a writer into a reader: as [`crate::Lease::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Lease<Shared>, Error> {
        block_on(self.0.downgrade()).map(Lease)
    }
}

impl Lease<Shared> {
    /// Always refused: as [`crate::Lease::upgrade`], which says why.
    ///
    /// # Errors
    /// `Unsupported`, always; the lease is untouched.
    pub fn upgrade(&self) -> Result<Lease, Error> {
        self.0.upgrade().map(Lease)
    }
}

impl<K: Overlapping> Lease<K> {
    /// The number of the grant: as [`crate::Lease::number`].
    #[must_use]
    pub fn number(&self) -> GrantNumber {
        self.0.number()
    }
}

impl<K: LeaseKind> Lease<K> {
    /// The lease behind it, for async code.
    pub fn as_async(&self) -> &crate::Lease<K> {
        &self.0
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.key()
    }

    /// How it holds; for permits, how many of how many.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// Whether the lease may be relied on now. Costs no round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// How long the lease may be relied on without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// What is known about the lease. Costs no round trip.
    #[must_use]
    pub fn standpoint(&self) -> Standpoint {
        self.0.standpoint()
    }

    /// Why the last renewal failed: as [`crate::Lease::last_error`].
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.0.last_error()
    }

    /// Who has the lease besides the server that granted it: as
    /// [`crate::Lease::acknowledged`].
    #[must_use]
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.0.acknowledged()
    }

    /// How long it took to get it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.waited()
    }

    /// How often the place in the queue was lost while waiting.
    #[must_use]
    pub fn rejoined(&self) -> u32 {
        self.0.rejoined()
    }

    /// What other threads watch the lease by, also while it is released.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal(self.0.loss_signal())
    }

    /// Waits until the lease is lost: for a thread that stops the work then.
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Waits for so long whether the lease is lost; `None` if it is not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        block_within(limit, self.0.lost())
    }

    /// Renews the lease now: as [`crate::Lease::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<(), Error> {
        block_on(self.0.renew())
    }

    /// Renews the lease now, to live `ttl` from now: as
    /// [`crate::Lease::renew_for`].
    ///
    /// # Errors
    /// As there.
    pub fn renew_for(&self, ttl: Duration) -> Result<(), Error> {
        block_on(self.0.renew_for(ttl))
    }

    /// Replaces the claim id: as [`crate::Lease::rotate`].
    ///
    /// # Errors
    /// As there.
    pub fn rotate(&self) -> Result<(), Error> {
        block_on(self.0.rotate())
    }

    /// A copy of what the lease is: as [`crate::Lease::parts`].
    #[must_use]
    pub fn parts(&self) -> LeaseParts<K> {
        self.0.parts()
    }

    /// Turns the lease into data: as [`crate::Lease::into_parts`].
    ///
    /// # Errors
    /// As there.
    pub fn into_parts(self) -> Result<LeaseParts<K>, Error> {
        block_on(self.0.into_parts())
    }

    /// Gives the key back: as [`crate::Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, Error> {
        block_on(self.0.release())
    }
}

impl<K: LeaseKind> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
#[derive(Clone, Debug)]
pub struct LossSignal(pub(super) crate::LossSignal);

impl LossSignal {
    /// The signal behind it, for async code.
    #[must_use]
    pub fn as_async(&self) -> &crate::LossSignal {
        &self.0
    }

    /// Whether the lease is lost. Costs no round trip.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Why the lease is lost, if it is. Costs no round trip.
    #[must_use]
    pub fn reason(&self) -> Option<Loss> {
        self.0.reason()
    }

    /// Waits until the lease is lost; `None` when it was given back before.
    #[must_use]
    pub fn lost(&self) -> Option<Loss> {
        block_on(self.0.lost())
    }
}

/// As [`crate::Recovered`].
#[derive(Debug)]
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
