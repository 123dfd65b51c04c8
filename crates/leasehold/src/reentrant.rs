//! One owner at a time, who may enter again.

use leasehold_core::OwnerSecret;

use crate::error::{Error, Operation};
use crate::lease::Exclusive;
use crate::lock::Lock;
use crate::session::random_u128;
use crate::verbs::{adopting, debug, locking, looking, options, retrying};

/// Who owns a [`Reentrant`] lock: a value that you make, clone and pass on. It
/// has nothing to do with threads or tasks.
///
/// It is a secret: whoever knows it enters wherever that owner is. Hand it to a
/// child process through its environment, not its arguments.
///
/// ```
/// use leasehold::Owner;
/// let owner = Owner::new();
/// assert_eq!(Owner::parse(&owner.expose())?, owner);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(OwnerSecret);

impl Owner {
    /// A new owner, unlike any other: 128 random bits.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        Self(OwnerSecret::from_random(random_u128()))
    }

    /// Reads what [`Owner::expose`] gave.
    ///
    /// # Errors
    /// `Invalid` unless it is 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let secret = OwnerSecret::parse(text);
        let secret =
            secret.map_err(|invalid| Error::new(Operation::Acquire, None, invalid.into()))?;
        Ok(Self(secret))
    }

    pub(crate) fn secret(&self) -> OwnerSecret {
        self.0
    }

    /// The secret, for a process that is to be the same owner.
    #[must_use]
    pub fn expose(&self) -> String {
        self.0.expose()
    }
}

/// A fair, fenced mutex that its owner may enter again.
///
/// While an [`Owner`] holds the key, each further claim of that owner is granted
/// at once, with the same token, wherever it is made: another task, another
/// thread, another process. The key is free when the last of them has been
/// released or has lapsed, in whatever order. There is no counter that could
/// drift: each claim is a lease of its own.
///
/// It excludes mutexes and writers on the same key.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Owner;
/// let client = leasehold::connect("memory:").await?;
/// let owner = Owner::new();
/// let menu = client.reentrant("menu", &owner)?;
/// let outer = menu.lock().await?;
/// let inner = menu.lock().await?; // does not wait for itself
/// assert_eq!(inner.token(), outer.token());
/// outer.release().await?;
/// assert!(client.mutex("menu")?.try_lock().await?.is_none(), "inner holds");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Reentrant {
    lock: Lock,
    owner: Owner,
}

options!(Reentrant: lock);
looking!(Reentrant: lock);
retrying!(Reentrant: lock);
locking!(Reentrant: lock, Exclusive);
adopting!(Reentrant: lock, Exclusive);
debug!(Reentrant);

impl Reentrant {
    pub(crate) fn new(lock: Lock, owner: &Owner) -> Result<Self, Error> {
        Ok(Self {
            lock: lock.with_owner(owner)?,
            owner: *owner,
        })
    }

    /// Whose claims these are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}
