//! What tests expect of a text, and of a call that comes too late.

use std::fmt::Display;
use std::time::Duration;

use leasehold::{Error, ErrorKind};

use crate::process::PATIENCE;

/// Expects that a text contains all of these parts.
///
/// # Panics
/// If one is missing, with the part and the text.
#[track_caller]
pub fn says(text: impl Display, parts: impl IntoIterator<Item: AsRef<str>>) {
    let text = text.to_string();
    for part in parts {
        let part = part.as_ref();
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// Expects that a call has failed in this way, and returns the error.
///
/// # Panics
/// If it has not.
#[track_caller]
pub fn fails<T>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it has not failed; expected: {kind}");
    };
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// Expects that a call for what is not free ends with its limit. A store that has not answered by
/// then is [`ErrorKind::Unavailable`], as on a busy machine: it is called again, with more time.
///
/// # Panics
/// If the call gets what it wants, or ends in another way.
pub async fn times_out<T>(call: impl AsyncFn(Duration) -> Result<T, Error>) {
    let mut limit = Duration::from_millis(40);
    loop {
        let error = call(limit).await.err().expect("it is not free");
        match error.kind() {
            ErrorKind::Timeout => return,
            ErrorKind::Unavailable if limit < PATIENCE => limit *= 4,
            _ => panic!("after {limit:?}: {error}"),
        }
    }
}
