//! The errors of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;

/// The kind of an error. Each kind tells the caller what to do. Its number (`kind as u8`) stays, for
/// bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum ErrorKind {
    /// The key did not become free in time. Try later.
    Timeout = 1,
    /// The claim was part of a deadlock and gave up, as its caller had asked. Release all keys of
    /// the same piece of work, and start it again.
    Deadlock = 2,
    /// The lease is lost. Stop now: another client may hold the key.
    Lost = 3,
    /// The store did not answer: the outcome is unknown. Or it answered that it cannot do it now:
    /// then nothing was carried out, and [`retry_after`](StoreError::retry_after) says when to ask
    /// again. A retry is safe.
    Unavailable = 4,
    /// The store refused, with a reason. A retry does not help, unless
    /// [`retry_after`](StoreError::retry_after) says when.
    Refused = 5,
    /// The store does not support the operation.
    Unsupported = 6,
    /// The request is invalid. Correct it.
    Invalid = 7,
    /// The key contains data that is not leasehold's, or is damaged. Nothing was overwritten.
    Corrupt = 8,
    /// The client was shut down, its runtime has ended, or it belongs to the process from which this
    /// one was forked. Stop, or connect again.
    Closed = 9,
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

crate::setters! { StoreError {
    /// Replaces the message.
    #[must_use]
    with_message(message: impl Into<String>): message = message.into();
    /// Adds a hint: what to do about it.
    #[must_use]
    with_hint(hint: impl Into<String>): hint = Some(hint.into());
    /// Takes the hint of another error, or none if that has none.
    #[must_use]
    with_hint_of(other: &Self): hint = other.hint.clone();
    /// Adds the cause.
    #[must_use]
    with_source(source: impl std::error::Error + Send + Sync + 'static): source = Some(Arc::new(source));
    /// Adds after how long a retry may succeed.
    #[must_use]
    with_retry_after(after: Duration): retry_after = Some(after);
}}

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

    /// Makes it `Unavailable`, for one who has used the same settings before: the file, the password or
    /// the certificate that it is about may be about to be replaced.
    #[must_use]
    pub fn into_unavailable(self) -> Self {
        if self.kind == ErrorKind::Unavailable {
            return self;
        }
        Self::new(ErrorKind::Unavailable, &*self.message)
            .with_hint_of(&self)
            .with_source(self)
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

/// The cause, if it says more than the message: who shows all causes shows nothing twice.
impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let first = self.source.as_deref()? as &(dyn std::error::Error + 'static);
        let causes = std::iter::successors(Some(first), |cause| (*cause).source());
        let causes: Vec<_> = causes.map(|cause| (cause, cause.to_string())).collect();
        let is_said = |said: &str| self.message.contains(said);
        if causes.last().is_some_and(|(_, said)| is_said(said)) {
            return None;
        }
        let news = causes.iter().skip_while(|(_, said)| is_said(said));
        // What a cause and its own say with the same words, the inner one says.
        let (_, words) = news.clone().next()?;
        let same = news.take_while(|(_, said)| said == words);
        same.last().map(|(cause, _)| *cause)
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

/// The store does not answer, or cannot do it now.
#[doc(hidden)]
pub fn unavailable(message: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, message)
}

/// The store refuses what was asked, until somebody does what the hint says.
#[doc(hidden)]
pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Refused, message).with_hint(hint)
}

/// Something at a key or in an answer is not what it should be.
#[doc(hidden)]
pub fn corrupt(message: impl Into<String>, hint: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, message).with_hint(hint)
}

/// The store, or this build, cannot do it.
#[doc(hidden)]
pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Unsupported, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use super::*;

    /// One that says what its cause says.
    #[derive(Debug)]
    struct Wraps(io::Error);

    impl fmt::Display for Wraps {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl Error for Wraps {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn chain(error: &StoreError) -> Vec<String> {
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        causes.map(ToString::to_string).collect()
    }

    #[test]
    fn causes_say_what_was_not_said() {
        let unavailable = |message| StoreError::new(ErrorKind::Unavailable, message);
        let refused = || Wraps(io::Error::other("refused (os error 111)"));
        let short = unavailable("cannot connect to h: refused").with_source(refused());
        assert_eq!(chain(&short), ["refused (os error 111)"]);
        let whole = unavailable("cannot connect to h: refused (os error 111)");
        assert!(chain(&whole.with_source(refused())).is_empty());
        let outer = unavailable("no primary: cannot connect to h: refused").with_source(short);
        assert_eq!(chain(&outer), ["refused (os error 111)"]);
        let other = unavailable("the server is gone").with_source(refused());
        assert_eq!(chain(&other).len(), 1);
        assert!(unavailable("alone").source().is_none());
    }
}
