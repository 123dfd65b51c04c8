//! What tests expect of an error, of a client or of a store.

use std::fmt::{Debug, Display};

use leasehold::{Error, ErrorKind, StoreError};
use leasehold_testkit::expect::says;

/// An error that has a kind.
pub(crate) trait Failure: Debug + Display {
    fn kind(&self) -> ErrorKind;
}

impl Failure for Error {
    fn kind(&self) -> ErrorKind {
        Self::kind(self)
    }
}

impl Failure for StoreError {
    fn kind(&self) -> ErrorKind {
        Self::kind(self)
    }
}

/// Expects an error of this kind, whose message contains all of these parts.
#[track_caller]
pub(crate) fn fails<T: Debug, E: Failure>(
    outcome: Result<T, E>,
    kind: ErrorKind,
    said: &[&str],
) -> E {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    says(&error, said);
    error
}
