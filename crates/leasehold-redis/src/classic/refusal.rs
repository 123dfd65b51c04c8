//! What a server's refusals mean in the classic layout.

use leasehold_store::{ErrorKind, StoreError};
use redis::ServerError;

use crate::connection::step::Failure;
use crate::refusal;

/// What a user needs, with scripts.
pub(in super::super) const ACL: &str = "ACL SETUSER <name> on ><password> resetchannels ~<prefix>* -@all \
    +evalsha +script|load +type +get +set +pttl +pexpire +del +scan +info +ping";

/// What goes instead of `+evalsha +script|load` where scripts are not to be allowed.
const WITHOUT_SCRIPTS: &str = "+watch +unwatch +multi +exec";

/// What the caller of a step that was not taken is told.
pub(in super::super) fn of(failure: Failure) -> StoreError {
    failure.or(of_server)
}

/// An error that the server answered.
pub(in super::super) fn of_server(error: &ServerError) -> StoreError {
    let detail = error.details().unwrap_or_default();
    match error.code() {
        "LHTYPE" => foreign(detail),
        "LHNATIVE" => native(),
        "NOPERM" => StoreError::new(
            ErrorKind::Refused,
            format!("the user may not do this: {}", refusal::tame(detail)),
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
        format!(
            "a {} stands at the key, which is no classic lock; it was left as it is",
            refusal::tame(found)
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_shown_in_one_line() {
        let odd = format!("\u{1b}[2J\r\n{}", "x".repeat(10_000));
        let noperm = format!("-NOPERM \u{1b}[2J{}\r\n", "x".repeat(10_000));
        let Ok(redis::Value::ServerError(noperm)) = redis::parse_redis_value(noperm.as_bytes())
        else {
            panic!("no error");
        };
        for said in [foreign(&odd), of_server(&noperm)] {
            let said = said.to_string();
            assert!(said.contains("[2Jx") && said.len() < 1_000, "{said}");
            assert!(!said.contains(char::is_control), "{said:?}");
        }
    }
}
