//! The re-entrant lock: one owner at a time, which can acquire the key again. Most of its methods
//! are in `verbs`.

use leasehold_core::OwnerSecret;
use leasehold_store::debug;

use crate::error::{Error, Operation};
use crate::lock::Lock;
use crate::session::random_u128;

/// The owner of a [`Reentrant`] lock: a value that you make, clone and pass on. It is independent
/// of threads and tasks.
///
/// It is a secret: anyone who knows it can acquire each key that the owner holds. Pass it to a
/// child process through the environment, not as an argument.
///
/// ```
/// use leasehold::Owner;
/// let owner = Owner::new();
/// assert_eq!(Owner::parse(&owner.expose())?, owner);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub(crate) OwnerSecret);

impl Owner {
    /// Makes a new, unique owner of 128 random bits.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        Self(OwnerSecret::from_random(random_u128()))
    }

    /// Parses the output of [`Owner::expose`].
    ///
    /// # Errors
    /// `Invalid` unless it is 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let owner = OwnerSecret::parse(text).map(Self);
        owner.map_err(|invalid| Error::new(Operation::Acquire, None, invalid.into()))
    }

    /// Returns the secret, to make another process the same owner.
    #[must_use]
    pub fn expose(&self) -> String {
        self.0.expose()
    }
}

/// A fair, fenced, re-entrant mutex: its owner can acquire it again while holding it.
///
/// While an [`Owner`] holds the key, each further claim of that owner is granted at once with the
/// same token, also in another task, thread or process. The key is free when the last of these
/// leases was released or has expired, in any order. There is no counter: each claim is a lease
/// of its own.
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
/// assert_eq!(outer.release().await?, leasehold::Released::Held);
/// assert!(client.mutex("menu")?.try_lock().await?.is_none(), "inner holds");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock holds nothing until one of its methods has taken a lease"]
pub struct Reentrant {
    pub(crate) lock: Lock,
    pub(crate) owner: Owner,
}

debug!(Reentrant; |it| key: it.key());

impl Reentrant {
    /// Returns the owner of the claims.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}
