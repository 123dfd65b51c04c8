//! The kinds of leases as types, and leases whose kind is known only at run time.

use std::fmt;

use leasehold_core::{Capacity, Mode, Token};

use super::Lease;

/// The kind of a [`Lease`]: [`Exclusive`], [`Shared`], [`Permits`], or [`Any`] of them.
pub trait LeaseKind: sealed::Sealed + Copy + Eq + fmt::Debug + 'static {
    /// Returns whether a lease of that mode is of this kind.
    #[doc(hidden)]
    fn is(mode: Mode) -> bool;
}

mod sealed {
    pub trait Sealed {}
}

/// Declares kinds, and which modes are of them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: |$mode:pat_param| $is:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {}

        impl sealed::Sealed for $kind {}

        impl LeaseKind for $kind {
            fn is($mode: Mode) -> bool {
                $is
            }
        }
    )* };
}

kinds! {
    /// Exclusive: held by one client alone, with a fencing token.
    Exclusive: |mode| mode.is_exclusive();
    /// Shared: held together with other readers.
    Shared: |mode| mode == Mode::SHARED;
    /// Permits of a semaphore: held together with other holders of permits.
    Permits: |mode| mode.capacity() != Capacity::Lock;
    /// A kind that is known only at run time: [`Lease::mode`] returns the mode.
    Any: |_| true;
}

/// A number that orders the grants of a key. It does not fence: leases held at the same time have
/// different numbers, and all of them are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantNumber(pub(super) u64);

impl GrantNumber {
    /// Returns the number.
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

impl Lease<Permits> {
    /// Returns how many permits the lease holds.
    #[must_use]
    pub fn permits(&self) -> u32 {
        u32::try_from(self.mode().weight()).unwrap_or(u32::MAX)
    }
}

impl Lease<Any> {
    /// Returns the fencing token, as [`Lease<Exclusive>::token`](Lease::token) does. `None` if
    /// the lease has none: it is not exclusive, or the store has no tokens.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        let fences = Exclusive::is(self.mode());
        self.claim.slot.token().some().filter(|_| fences)
    }

    /// Converts to a lease of kind `K`, if its mode is of that kind.
    ///
    /// # Errors
    /// The lease itself, unchanged.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Exclusive, Mode, Shared};
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.lock_of("config", Mode::EXCLUSIVE)?.lock().await?;
    /// let lease = lease.downcast::<Shared>().expect_err("it is a writer");
    /// let writer = lease.downcast::<Exclusive>().expect("it is a writer");
    /// let reader = writer.downgrade().await?.into_any();
    /// assert_eq!(reader.token(), None);
    /// # Ok(()) }
    /// ```
    pub fn downcast<K: LeaseKind>(self) -> Result<Lease<K>, Self> {
        match K::is(self.mode()) {
            true => Ok(self.cast()),
            false => Err(self),
        }
    }
}

impl<K: LeaseKind> Lease<K> {
    /// Converts to a lease whose mode is known only at run time.
    pub fn into_any(self) -> Lease<Any> {
        self.cast()
    }
}
