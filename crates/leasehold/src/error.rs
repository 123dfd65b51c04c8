//! The error type of the client, with the operation and the key.

use std::fmt;
use std::time::Duration;

use leasehold_core::Key;
#[doc(inline)]
pub use leasehold_store::{ErrorKind, StoreError};

/// Declares the operations, and how the error of each begins.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident: $failed:literal;)*) => {
        /// The operation that failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $operation,)*
        }

        impl fmt::Display for Operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$operation => $failed,)*
                })
            }
        }
    };
}

operations! {
    /// Opening the store.
    Connect: "cannot open the store";
    /// Getting a lease.
    Acquire: "cannot acquire";
    /// Extending a lease.
    Renew: "cannot renew";
    /// Giving a lease back.
    Release: "cannot release";
    /// Running work under a lease.
    Hold: "cannot keep holding";
    /// Reading keys.
    Inspect: "cannot look at";
    /// Taking a key from its holders.
    Break: "cannot break";
    /// Closing the client.
    Shutdown: "cannot close";
    /// Replacing a claim id.
    Rotate: "cannot rotate the claim id of";
    /// Giving a lease to another process.
    HandOver: "cannot hand over";
    /// Taking a lease over from another process.
    Adopt: "cannot take over";
    /// Turning a writer into a reader.
    Downgrade: "cannot downgrade";
    /// Changing the number of permits.
    Resize: "cannot resize";
    /// Publishing a note.
    Proclaim: "cannot proclaim on";
    /// Watching the leaders.
    Observe: "cannot observe";
    /// Reading the audit log.
    Audit: "cannot read the audit log";
}

impl Operation {
    /// What makes its error of what the store says about a key.
    pub(crate) fn failed_on(self, key: &Key) -> impl Fn(StoreError) -> Error {
        move |error| Error::new(self, Some(key.clone()), error)
    }
}

/// An error of leasehold. [`Error::kind`] says what the caller can do.
///
/// `Display` is one sentence with the operation and the key. The hint and the cause are separate
/// ([`Error::hint`], `source`).
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
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

    /// Returns the kind, which says what the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.error.kind()
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Returns the key, if the error is about one.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// Returns why it failed: the message without the operation and the key.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.0.error.message()
    }

    /// Returns what to do about it, if there is a hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.error.hint()
    }

    /// Returns whether others held the key for all of the time that the caller would wait.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Returns whether a lease was lost: stop, another client may hold the key.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Returns whether the store did not answer, or cannot do it now: the outcome is unknown.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Returns whether the same call may succeed later, without any change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.is_timeout() || self.is_unavailable() || self.retry_after().is_some()
    }

    /// Returns after how long a retry may succeed.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.error.retry_after()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.operation)?;
        match &self.0.key {
            Some(key) => write!(f, " {key:?}")?,
            None if self.0.operation == Operation::Inspect => f.write_str(" the locks")?,
            None => {}
        }
        write!(f, ": {}", self.0.error.message())
    }
}

/// What `unwrap` shows: what there is to know, and no more.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.kind());
        shown.field("operation", &self.operation());
        if let Some(key) = self.key() {
            shown.field("key", &key.as_str());
        }
        shown.field("message", &self.reason());
        if let Some(hint) = self.hint() {
            shown.field("hint", &hint);
        }
        if let Some(cause) = std::error::Error::source(self) {
            shown.field("cause", &cause.to_string());
        }
        shown.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.error)
    }
}

/// What a call that does not wait has acquired: only a key that is busy lets it run out of time.
pub(crate) fn unless_busy<T>(acquired: Result<T, Error>) -> Result<Option<T>, Error> {
    match acquired {
        Err(error) if error.is_timeout() => Ok(None),
        acquired => acquired.map(Some),
    }
}

/// A key that its caller names.
pub(crate) fn check_key(operation: Operation, key: impl AsRef<str>) -> Result<Key, Error> {
    Key::new(key).map_err(|invalid| Error::new(operation, None, invalid.into()))
}

#[cfg(test)]
mod tests {
    use leasehold_store::ErrorKind;

    use super::*;

    #[test]
    fn a_sentence_without_a_key_is_whole() {
        let silent = StoreError::new(ErrorKind::Unavailable, "no answer");
        let error = Error::new(Operation::Inspect, None, silent);
        assert_eq!(error.to_string(), "cannot look at the locks: no answer");
    }

    /// As in a quarantine.
    #[test]
    fn what_is_refused_for_a_while_may_be_tried_again() {
        let refused = StoreError::new(ErrorKind::Refused, "not yet");
        let error = |refused| Error::new(Operation::Acquire, None, refused);
        assert!(!error(refused.clone()).is_retryable());
        let for_a_while = refused.with_retry_after(Duration::from_secs(9));
        assert!(error(for_a_while).is_retryable());
    }
}
