//! How a lease holds, as a type, and leases whose mode is known at run time only.

use std::fmt;

use leasehold_core::{Capacity, Mode, Token};

use super::Lease;

/// Held alone: its token fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {}

/// Held together with other readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {}

/// Held together with other holders of permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {}

/// Held in a mode that is known at run time only: [`Lease::mode`] tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Any {}

/// How a [`Lease`] holds: [`Exclusive`], [`Shared`], [`Permits`], or [`Any`] of them.
pub trait LeaseKind: sealed::Sealed + Copy + Eq + fmt::Debug + 'static {
    /// Whether a claim of that mode is held so.
    #[doc(hidden)]
    fn is(mode: Mode) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::Shared {}
    impl Sealed for super::Permits {}
    impl Sealed for super::Any {}
}

impl LeaseKind for Exclusive {
    fn is(mode: Mode) -> bool {
        mode == Mode::EXCLUSIVE
    }
}

impl LeaseKind for Shared {
    fn is(mode: Mode) -> bool {
        mode == Mode::SHARED
    }
}

impl LeaseKind for Permits {
    fn is(mode: Mode) -> bool {
        mode.capacity() != Capacity::Lock
    }
}

impl LeaseKind for Any {
    fn is(_: Mode) -> bool {
        true
    }
}

/// Orders the grants of a key, and fences nothing: those who hold together have
/// different numbers, and all of them may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantNumber(pub(super) u64);

impl GrantNumber {
    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GrantNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Lease<Any> {
    /// The fencing token, as [`Lease<Exclusive>::token`](Lease::token). `None` where the
    /// lease does not fence: it is not held alone, or the store has no tokens.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        let fences = Exclusive::is(self.mode());
        self.hold.token().some().filter(|_| fences)
    }

    /// The lease as one of that kind, or as it was if it holds in another mode.
    ///
    /// # Errors
    /// The lease itself, which goes on.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Exclusive, Mode, Shared};
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.lock("config", Mode::EXCLUSIVE)?.lock().await?;
    /// let lease = lease.downcast::<Shared>().expect_err("it is a writer");
    /// let writer = lease.downcast::<Exclusive>().expect("it is a writer");
    /// let reader = writer.downgrade().await?.into_any();
    /// assert_eq!(reader.token(), None);
    /// # Ok(()) }
    /// ```
    pub fn downcast<K: LeaseKind>(self) -> Result<Lease<K>, Self> {
        match K::is(self.mode()) {
            true => Ok(Lease::of(self.hold)),
            false => Err(self),
        }
    }
}

impl<K: LeaseKind> Lease<K> {
    /// The same lease, whose mode is known at run time only.
    pub fn into_any(self) -> Lease<Any> {
        Lease::of(self.hold)
    }
}
