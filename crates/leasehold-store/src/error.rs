//! The errors of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;

/// The kind of an error. Each kind tells the caller what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key did not become free in time. Try later.
    Timeout,
    /// The claim was part of a deadlock and gave up, as its caller had asked. Release all keys of
    /// the same piece of work, and start it again.
    Deadlock,
    /// The lease is lost. Stop now: another client may hold the key.
    Lost,
    /// The store did not answer: the outcome is unknown. Or it answered that it cannot do it now:
    /// then nothing was carried out, and [`retry_after`](StoreError::retry_after) says when to ask
    /// again. A retry is safe.
    Unavailable,
    /// The store refused, with a reason. A retry does not help, unless
    /// [`retry_after`](StoreError::retry_after) says when.
    Refused,
    /// The store does not support the operation.
    Unsupported,
    /// The request is invalid. Correct it.
    Invalid,
    /// The key contains data that is not leasehold's, or is damaged. Nothing was overwritten.
    Corrupt,
    /// The client was shut down, its runtime has ended, or it belongs to the process from which this
    /// one was forked. Stop, or connect again.
    Closed,
}

/// Its name in lower case.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// An error of a store: a kind, one sentence, a hint, and the cause.
///
/// Stores return it. The client adds the key and the operation, and returns its own error type.
/// Messages contain no secrets.
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
    /// Makes an error from a kind and one sentence without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retry_after: None,
            source: None,
        }
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds a hint: what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Takes the hint of another error, or none if that has none.
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

    /// Adds after how long a retry may succeed.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Returns the kind, which says what the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message, as `Display` writes it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns after how long a retry may succeed.
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
