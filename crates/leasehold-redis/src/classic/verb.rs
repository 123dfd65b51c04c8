//! Requests to the scripts of classic locks, and their results.

use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::fork::Lazy;
use redis::Value;

use super::errors;
use crate::codec::script::{Script, unreadable};
use crate::connection::value::text_of;

/// The script that takes every step.
pub(super) static STEP: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/step.lua")));

/// The script that looks.
pub(super) static LOOK: Lazy<Script> = Lazy::new(|| Script::new(include_str!("lua/look.lua")));

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verb {
    /// Its name in the script.
    pub(super) name: &'static str,
    /// Whether it is sent only after everything that was given up on the connection.
    pub(super) last: bool,
}

impl Verb {
    /// The key, for a claim that was never asked for before.
    pub(super) const FIRST: Self = Self::named("first");
    /// The key, again.
    pub(super) const CLAIM: Self = Self::named("claim");
    pub(super) const RENEW: Self = Self::named("renew");
    pub(super) const RELEASE: Self = Self::named("release");
    /// The same, of a claim that was given up before it was answered: whatever asks for it must
    /// arrive first, since the record keeps no released ids.
    pub(super) const WITHDRAW: Self = Self {
        last: true,
        ..Self::RELEASE
    };
    pub(super) const BREAK: Self = Self::named("break");

    const fn named(name: &'static str) -> Self {
        Self { name, last: false }
    }
}

/// How long a key lives; `None`: for ever.
pub(super) type Left = Option<Duration>;

/// The value of a key, and how long it lives; `None`: there is none.
pub(super) type Found = Option<(Vec<u8>, Left)>;

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The claim holds; after a release or a break: the key was held.
    Ours(Left),
    Others(Left),
    /// The key contains this id, from another client.
    Taken,
    Nobodys,
}

/// A TTL as the script takes it, rounded up: the server must not end a lease before its holder
/// does.
pub(super) fn millis(ttl: Duration) -> u64 {
    let millis = ttl.as_micros().div_ceil(1_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// What a script answered.
fn parts(answer: &Value) -> Result<&[Value], StoreError> {
    match answer {
        Value::Array(parts) => Ok(parts),
        Value::ServerError(error) => Err(errors::of_server(error)),
        other => Err(unreadable(other)),
    }
}

/// Reads what the script of the steps answered.
pub(super) fn read(answer: &Value) -> Result<Outcome, StoreError> {
    match parts(answer)? {
        [Value::Int(1), Value::Int(left)] => Ok(Outcome::Ours(read_left(*left))),
        [Value::Int(2), Value::Int(left)] => Ok(Outcome::Others(read_left(*left))),
        [Value::Int(3), Value::Int(_)] => Ok(Outcome::Taken),
        [Value::Int(4), Value::Int(_)] => Ok(Outcome::Nobodys),
        _ => Err(unreadable(answer)),
    }
}

/// What `PTTL` answers.
fn read_left(left: i64) -> Left {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// Reads what it answered: the type, the value and the time to live.
pub(super) fn read_found(answer: &Value) -> Result<Found, StoreError> {
    let answers = parts(answer)?;
    if let Some(kind) = answers.first().and_then(text_of)
        && !matches!(&*kind, "none" | "string")
    {
        return Err(errors::foreign(&kind));
    }
    match answers {
        [_, Value::Nil, Value::Int(_)] => Ok(None),
        [_, Value::BulkString(value), Value::Int(left)] => match value.as_slice() {
            // A native record, of any version.
            [b'l', b'h' | b'q', 1..=31, ..] => Err(errors::native()),
            _ => Ok(Some((value.clone(), read_left(*left)))),
        },
        _ => Err(unreadable(answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that was given up must not arrive after its release.
    #[test]
    fn a_withdrawal_is_a_release_that_is_sent_last() {
        for verb in [
            Verb::FIRST,
            Verb::CLAIM,
            Verb::RENEW,
            Verb::RELEASE,
            Verb::BREAK,
        ] {
            assert!(!verb.last, "{verb:?}");
        }
        let (name, last) = (Verb::RELEASE.name, true);
        assert_eq!(Verb::WITHDRAW, Verb { name, last });
    }

    #[test]
    fn a_ttl_is_rounded_up() {
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
    }

    #[test]
    fn what_is_no_classic_lock_is_left_alone() {
        let text = |text: &str| Value::SimpleString(text.into());
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let seen = |answers: [Value; 3]| read_found(&Value::Array(answers.into()));
        let hash = [text("hash"), Value::Nil, Value::Int(-1)];
        let record = [text("string"), bytes(b"lh\x01rest"), Value::Int(9)];
        for answers in [hash, record] {
            assert!(seen(answers).is_err());
        }
        assert!(matches!(
            seen([text("string"), bytes(b"\xff\x00"), Value::Int(-1)]),
            Ok(Some((value, None))) if value == b"\xff\x00"
        ));
        let nothing = seen([text("none"), Value::Nil, Value::Int(-2)]);
        assert!(matches!(nothing, Ok(None)));
    }
}
