//! What can go wrong, and what to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Invalid, Key};

/// What the caller may do. There are few kinds, each with its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else had the key for all the time allowed. Try later.
    Timeout,
    /// The lease is not ours any more. Stop now: another may hold the key.
    Lost,
    /// The store gave no answer. The outcome is unknown; asking again is safe.
    Unavailable,
    /// The store said no, with its reason. Asking again does not help unless
    /// [`Error::retry_after`] says when.
    Refused,
    /// The store cannot do that.
    Unsupported,
    /// The request makes no sense as it stands. Correct it.
    Invalid,
    /// What stands at the key is not leasehold's, or is damaged. Nothing was overwritten.
    Corrupt,
    /// The client was shut down, or the runtime that it was connected in has ended.
    /// Stop, or connect anew.
    Closed,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Corrupt => "corrupt",
            Self::Closed => "closed",
        })
    }
}

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
    /// Turning a reader into a writer.
    Upgrade,
    /// Changing the number of permits.
    Resize,
    /// Telling the others something.
    Proclaim,
    /// Hearing who leads.
    Observe,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "cannot open the store",
            Self::Acquire => "cannot acquire",
            Self::Renew => "cannot renew",
            Self::Release => "cannot release",
            Self::Hold => "cannot go on holding",
            Self::Inspect => "cannot look at",
            Self::Break => "cannot break",
            Self::Shutdown => "cannot close",
            Self::Rotate => "cannot rotate the claim id of",
            Self::HandOver => "cannot hand over",
            Self::Adopt => "cannot take over",
            Self::Downgrade => "cannot downgrade",
            Self::Upgrade => "cannot upgrade",
            Self::Resize => "cannot resize",
            Self::Proclaim => "cannot proclaim on",
            Self::Observe => "cannot observe",
        })
    }
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// An error of a store: what to do, one sentence, a hint, and the cause.
///
/// Adapters make these; the client adds the key and the operation and hands
/// out an [`Error`]. Messages carry no secrets.
#[derive(Debug, Clone)]
pub struct StoreError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) source: Option<Source>,
}

impl StoreError {
    /// An error of that kind, in one sentence without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retry_after: None,
            source: None,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Adds when asking again may help.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What the caller may do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}

impl From<Invalid> for StoreError {
    fn from(invalid: Invalid) -> Self {
        Self {
            hint: invalid.hint,
            ..Self::new(ErrorKind::Invalid, invalid.message)
        }
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
        self.0.error.kind
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
        &self.0.error.message
    }

    /// What to do about it, where there is a hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.error.hint.as_deref()
    }

    /// When asking again may help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.error.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.operation)?;
        if let Some(key) = &self.0.key {
            write!(f, " {key:?}")?;
        }
        write!(f, ": {}", self.0.error.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.error)
    }
}
