//! What can go wrong at a store, and what to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;

/// What the caller may do. There are few kinds, each with its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else had the key for all the time allowed. Try later.
    Timeout,
    /// The claim was part of a deadlock, and gave up as its caller had asked. Release what the
    /// same piece of work holds, and begin it anew.
    Deadlock,
    /// The lease is not ours any more. Stop now: another may hold the key.
    Lost,
    /// The store gave no answer. The outcome is unknown; asking again is safe.
    Unavailable,
    /// The store said no, with its reason. Asking again does not help unless
    /// [`retry_after`](StoreError::retry_after) says when.
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
            Self::Deadlock => "deadlock",
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

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// An error of a store: what to do, one sentence, a hint, and the cause.
///
/// Adapters make these; the client adds the key and the operation and hands
/// out an error of its own. Messages carry no secrets.
#[derive(Debug, Clone)]
pub struct StoreError {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    /// Same as [`retry_after`](Self::retry_after). Hidden: the client reads it as a field.
    #[doc(hidden)]
    pub retry_after: Option<Duration>,
    source: Option<Source>,
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

    /// The same in another sentence: one that says more.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what to do as another error does, or nothing if that does not.
    #[must_use]
    pub fn with_hint_of(mut self, other: &Self) -> Self {
        self.hint.clone_from(&other.hint);
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

    /// The sentence, as `Display` writes it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// When asking again may help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
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
