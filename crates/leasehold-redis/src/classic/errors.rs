//! Converts errors of a server to store errors, in the classic layout.

use leasehold_store::StoreError;
use redis::ServerError;

use crate::errors;

/// An error that the server answered.
pub(in super::super) fn of_server(error: &ServerError) -> StoreError {
    match error.code() {
        "LHTYPE" => foreign(error.details().unwrap_or_default()),
        "LHNATIVE" => native(),
        _ => errors::in_classic(errors::of_server(error)),
    }
}

/// The key contains something that is not a lock of this layout.
pub(super) fn foreign(found: &str) -> StoreError {
    let found = errors::tame(found);
    errors::corrupt(
        format!("the key contains a {found}, which is not a classic lock; nothing was changed"),
        "choose another name or prefix; if it is a lock of leasehold's native layout, leave \
     out layout=classic",
    )
}

/// The key contains a record of the native layout.
pub(super) fn native() -> StoreError {
    errors::corrupt(
        "the key contains a lock of leasehold's native layout; nothing was changed",
        "leave out layout=classic: all clients of a key must use the same layout",
    )
}

/// A grant is named by its token.
pub(in super::super) fn no_tokens() -> StoreError {
    unsupported("its record has no token, so a grant cannot be named")
}

/// What this layout cannot do.
pub(in super::super) fn unsupported(why: &str) -> StoreError {
    errors::unsupported(
        format!("the classic layout cannot do this: {why}"),
        "the classic layout has mutexes and elections only; leave out layout=classic once every \
         client of this key uses leasehold",
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
