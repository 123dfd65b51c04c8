//! One owner at a time, who may enter again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Key, Mode, OwnerSecret, Retry};

use crate::error::{Error, Operation};
use crate::face::{Face, looking, options};
use crate::lease::Lease;
use crate::parts::adopting;
use crate::session::{Session, random_u128};
use crate::waiting::{Acquire, Wait};

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
    face: Face,
    owner: Owner,
}

options!(Reentrant);
looking!(Reentrant);
adopting!(Reentrant, crate::Exclusive);

impl Reentrant {
    pub(crate) fn new(
        session: Arc<Session>,
        key: Key,
        who: leasehold_core::Owner,
        owner: Owner,
    ) -> Self {
        let mut face = Face::new(session, key, who, Mode::EXCLUSIVE);
        face.wish.secret = Some(owner.0);
        Self { face, owner }
    }

    /// Whose claims these are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Enters, or waits until no other owner holds the key.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// See [`Reentrant`].
    pub async fn lock(&self) -> Result<Lease, Error> {
        self.face.obtain(Wait::Forever).await
    }

    /// Enters if this owner holds the key, or if nobody holds it or waits;
    /// `None` when it is busy.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::try_lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`].
    ///
    /// # Examples
    /// See [`crate::Mutex::try_lock`].
    pub async fn try_lock(&self) -> Result<Option<Lease>, Error> {
        self.face.attempt().await
    }

    /// Enters, or waits for so long at most.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_within`].
    pub async fn lock_within(&self, limit: Duration) -> Result<Lease, Error> {
        self.face.obtain(Wait::For(limit)).await
    }

    /// Does not stand in the queue: asks again and again, after the pauses of `retry`, until
    /// the key is free and nobody waits for it, or its owner holds it. Unfair to whoever asks
    /// so, as [`crate::Mutex::retrying`].
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
    pub fn retrying(mut self, retry: Retry) -> Self {
        self.face.set_retry(retry);
        self
    }

    /// Waits for the key, runs `work` under it, and releases it.
    ///
    /// The work is dropped the moment the lease is lost, as by [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases in the background.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; `Lost` when the lease was lost before the work was done:
    /// another may hold the key, and what the work did last may have overlapped with it.
    ///
    /// # Examples
    /// See [`crate::Mutex::with_lock`].
    pub async fn with_lock<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        self.face.with(work).await
    }

    /// The verb behind the others, with every option. `None`: busy, with
    /// [`Wait::No`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire(&self, how: Acquire) -> Result<Option<Lease>, Error> {
        self.face.acquire(how).await
    }
}

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reentrant")
            .field("key", self.key())
            .finish_non_exhaustive()
    }
}
