//! What a server's refusals mean in the classic layout.

use redis::ServerError;

use super::super::refusal;
use crate::error::{ErrorKind, StoreError};

/// What a user needs, with scripts.
pub(in super::super) const ACL: &str = "ACL SETUSER <name> on ><password> resetchannels ~<prefix>* -@all \
    +evalsha +script|load +type +get +set +pttl +pexpire +del +scan +info +ping";

/// What goes instead of `+evalsha +script|load` where scripts are not to be allowed.
const WITHOUT_SCRIPTS: &str = "+watch +unwatch +multi +exec";

/// Why a step was not taken, or may not have been.
#[derive(Debug)]
pub(in super::super) enum Failure {
    /// The server said so: nothing was changed.
    Server(ServerError),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Self {
        Self::Store(refusal::of_connection(error))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Server(error) => of_server(&error),
            Failure::Store(error) => error,
        }
    }
}

/// An error that the server answered.
pub(in super::super) fn of_server(error: &ServerError) -> StoreError {
    let detail = error.details().unwrap_or_default();
    match error.code() {
        "LHTYPE" => foreign(detail),
        "LHNATIVE" => native(),
        "NOPERM" => StoreError::new(
            ErrorKind::Refused,
            format!("the user may not do this: {detail}"),
        )
        .with_hint(format!(
            "this rule is enough: {ACL}; or {WITHOUT_SCRIPTS} instead of +evalsha +script|load"
        )),
        _ => refusal::of_server(error),
    }
}

/// Something that is no lock of this layout stands at the key.
pub(super) fn foreign(found: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("a {found} stands at the key, which is no classic lock; it was left as it is"),
    )
    .with_hint("choose another name or prefix; leave out layout=classic if it is leasehold's own")
}

/// A record of the native layout stands at the key.
pub(super) fn native() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "a lock of leasehold's native layout stands at the key; it was left as it is",
    )
    .with_hint("leave out layout=classic: all who use a key have to use one layout")
}

/// What this layout cannot do.
pub(in super::super) fn unsupported(why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unsupported,
        format!("the classic layout cannot do this: {why}"),
    )
    .with_hint(
        "leave out layout=classic once every client of this key is leasehold; until then there \
         are mutexes and elections",
    )
}
