//! What can go wrong, and what to do about it.

use std::fmt;
use std::time::Duration;

use leasehold_core::Key;
#[doc(inline)]
pub use leasehold_store::{ErrorKind, StoreError};

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening the store.
    Connect,
    /// Getting a lease.
    Acquire,
    /// Extending a lease.
    Renew,
    /// Giving a lease back.
    Release,
    /// Working under a lease.
    Hold,
    /// Looking at keys.
    Inspect,
    /// Taking a key from its holders.
    Break,
    /// Closing the client.
    Shutdown,
    /// Replacing a claim id.
    Rotate,
    /// Giving a lease to another process.
    HandOver,
    /// Taking a lease over from another process.
    Adopt,
    /// Turning a writer into a reader.
    Downgrade,
    /// Changing the number of permits.
    Resize,
    /// Telling the others something.
    Proclaim,
    /// Hearing who leads.
    Observe,
    /// Reading the audit log.
    Audit,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "cannot open the store",
            Self::Acquire => "cannot acquire",
            Self::Renew => "cannot renew",
            Self::Release => "cannot release",
            Self::Hold => "cannot keep holding",
            Self::Inspect => "cannot look at",
            Self::Break => "cannot break",
            Self::Shutdown => "cannot close",
            Self::Rotate => "cannot rotate the claim id of",
            Self::HandOver => "cannot hand over",
            Self::Adopt => "cannot take over",
            Self::Downgrade => "cannot downgrade",
            Self::Resize => "cannot resize",
            Self::Proclaim => "cannot proclaim on",
            Self::Observe => "cannot observe",
            Self::Audit => "cannot read the audit log",
        })
    }
}

/// An error of leasehold: [`Error::kind`] says what to do.
///
/// `Display` is one sentence with the operation and the key; the hint and the
/// cause stand apart ([`Error::hint`], `source`).
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    operation: Operation,
    key: Option<Key>,
    error: StoreError,
}

impl Error {
    /// Puts an error of a store into its context.
    pub(crate) fn new(operation: Operation, key: Option<Key>, error: StoreError) -> Self {
        Self(Box::new(Inner {
            operation,
            key,
            error,
        }))
    }

    /// What the caller may do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.error.kind()
    }

    /// What was being done.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The key it was about.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// Why it failed: the sentence without the operation and the key.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.0.error.message()
    }

    /// What to do about it, where there is a hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.error.hint()
    }

    /// When asking again may help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.error.retry_after()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.operation)?;
        if let Some(key) = &self.0.key {
            write!(f, " {key:?}")?;
        }
        write!(f, ": {}", self.0.error.message())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.error)
    }
}
