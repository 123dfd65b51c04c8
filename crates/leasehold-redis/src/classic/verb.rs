//! Requests and results of classic locks: the rules of `lua/step.lua`, for servers that forbid
//! scripts.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Value};

use super::refusal;
use crate::codec::script::{Call, Script, unreadable};
use crate::connection::step::Failure;

/// The script that takes every step where scripts are allowed.
pub(super) static STEP: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/step.lua").to_owned()));

/// The script that looks, where commands are not sent one by one.
pub(super) static LOOK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/look.lua").to_owned()));

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Verb {
    /// The key, for a claim that was never asked for before.
    First,
    /// The key, again.
    Claim,
    Renew,
    Release,
    /// The same, of a claim that was given up before it was answered: whatever asks for it must
    /// arrive first, since the record keeps no released ids.
    Withdraw,
    Break,
}

/// One step, as it is asked for.
#[derive(Clone, Copy)]
pub(in super::super) struct Step<'a> {
    pub(in super::super) verb: Verb,
    /// The claim; empty for a break.
    pub(in super::super) id: &'a str,
    pub(in super::super) ttl: Duration,
}

/// How long a key lives; `None`: for ever.
pub(in super::super) type Left = Option<Duration>;

/// The content of a key.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) enum Found {
    Nothing,
    Value { value: Vec<u8>, left: Left },
}

impl Found {
    /// Whether both are held, by the same claim.
    pub(in super::super) fn is_same_claim(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value { value, .. }, Self::Value { value: theirs, .. }) => value == theirs,
            _ => false,
        }
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// The claim holds; after a release or a break: the key was held.
    Ours(Left),
    Others(Left),
    /// The key contains this id, from another client.
    Taken,
    Nobodys,
}

/// What a step changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Set,
    Expire,
    Delete,
}

impl Step<'_> {
    /// Rounded up: the server must not end a lease before its holder does.
    pub(super) fn millis(&self) -> u64 {
        let millis = self.ttl.as_micros().div_ceil(1_000);
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    /// The call of the script.
    pub(super) fn call<'a>(&'a self, keys: &'a [&'a str]) -> Call<'a, impl Fn(&mut Cmd) + 'a> {
        Call {
            script: &STEP,
            keys,
            arguments: |call: &mut Cmd| self.add(call),
            last: self.verb == Verb::Withdraw,
        }
    }

    fn add(&self, call: &mut Cmd) {
        let verb = match self.verb {
            Verb::First => "first",
            Verb::Claim => "claim",
            Verb::Renew => "renew",
            Verb::Release | Verb::Withdraw => "release",
            Verb::Break => "break",
        };
        call.arg(verb).arg(self.id).arg(self.millis());
    }

    /// Returns the outcome for a key that contains `found`, and the change to make.
    pub(super) fn decide(&self, found: &Found) -> (Outcome, Change) {
        let ttl = Some(Duration::from_millis(self.millis()));
        let (value, left) = match found {
            Found::Nothing => {
                return match self.verb {
                    Verb::First | Verb::Claim => (Outcome::Ours(ttl), Change::Set),
                    _ => (Outcome::Nobodys, Change::None),
                };
            }
            Found::Value { value, left } => (value, *left),
        };
        let ours = value == self.id.as_bytes();
        match self.verb {
            Verb::Break => (Outcome::Ours(None), Change::Delete),
            _ if !ours => (Outcome::Others(left), Change::None),
            Verb::First => (Outcome::Taken, Change::None),
            Verb::Release | Verb::Withdraw => (Outcome::Ours(None), Change::Delete),
            Verb::Claim | Verb::Renew => match left {
                Some(_) if left >= ttl => (Outcome::Ours(left), Change::None),
                // A lock without end would outlive us.
                _ => (Outcome::Ours(ttl), Change::Expire),
            },
        }
    }

    /// The command of a change.
    pub(super) fn command(&self, change: Change, key: &str) -> Option<Cmd> {
        let mut command = Cmd::new();
        match change {
            Change::None => return None,
            Change::Set => {
                command.arg("SET").arg(key).arg(self.id);
                command.arg("NX").arg("PX").arg(self.millis());
            }
            Change::Expire => {
                command.arg("PEXPIRE").arg(key).arg(self.millis());
            }
            Change::Delete => {
                command.arg("DEL").arg(key);
            }
        }
        Some(command)
    }
}

/// Reads what the script answered.
pub(super) fn read(answer: &Value) -> Result<Outcome, Failure> {
    let (code, left) = match answer {
        Value::Array(items) => match items.as_slice() {
            [Value::Int(code), Value::Int(left)] => (*code, read_left(*left)),
            _ => return Err(unreadable(answer).into()),
        },
        Value::ServerError(error) => return Err(Failure::Server(error.clone())),
        other => return Err(unreadable(other).into()),
    };
    match code {
        1 => Ok(Outcome::Ours(left)),
        2 => Ok(Outcome::Others(left)),
        3 => Ok(Outcome::Taken),
        4 => Ok(Outcome::Nobodys),
        _ => Err(unreadable(answer).into()),
    }
}

/// What `PTTL` answers.
fn read_left(left: i64) -> Left {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// The commands that read the content of a key.
pub(super) fn looks(key: &str) -> [Cmd; 3] {
    ["TYPE", "GET", "PTTL"].map(|name| {
        let mut look = redis::cmd(name);
        look.arg(key);
        look
    })
}

/// Reads what they answered.
pub(super) fn read_found(answers: &[Value]) -> Result<Found, Failure> {
    if let Some(kind) = answers.first().and_then(crate::connection::value::text_of)
        && !matches!(&*kind, "none" | "string")
    {
        return Err(refusal::foreign(&kind).into());
    }
    let refused = answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(error.clone()),
        _ => None,
    });
    if let Some(error) = refused {
        return Err(Failure::Server(error));
    }
    match answers {
        [_, Value::Nil, Value::Int(_)] => Ok(Found::Nothing),
        [_, Value::BulkString(value), Value::Int(left)] => {
            // A native record, of any version.
            if matches!(value.as_slice(), [b'l', b'h' | b'q', 1..=31, ..]) {
                return Err(refusal::native().into());
            }
            // Its time was up between the two looks.
            if *left == -2 {
                return Ok(Found::Nothing);
            }
            let (value, left) = (value.clone(), read_left(*left));
            Ok(Found::Value { value, left })
        }
        _ => Err(unreadable(&Value::Array(Vec::new())).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::script::Request as _;

    const TTL: Duration = Duration::from_secs(10);

    fn step(verb: Verb) -> Step<'static> {
        Step {
            verb,
            id: "mine",
            ttl: TTL,
        }
    }

    fn found(value: &str, left: Left) -> Found {
        Found::Value {
            value: value.into(),
            left,
        }
    }

    #[test]
    fn a_free_key_is_taken_by_a_claim_only() {
        for (verb, expected) in [
            (Verb::First, (Outcome::Ours(Some(TTL)), Change::Set)),
            (Verb::Claim, (Outcome::Ours(Some(TTL)), Change::Set)),
            (Verb::Renew, (Outcome::Nobodys, Change::None)),
            (Verb::Release, (Outcome::Nobodys, Change::None)),
            (Verb::Break, (Outcome::Nobodys, Change::None)),
        ] {
            assert_eq!(step(verb).decide(&Found::Nothing), expected, "{verb:?}");
        }
    }

    #[test]
    fn what_is_anothers_is_touched_by_a_break_only() {
        for left in [None, Some(Duration::ZERO), Some(TTL * 2)] {
            for verb in [Verb::First, Verb::Claim, Verb::Renew, Verb::Release] {
                let decided = step(verb).decide(&found("theirs", left));
                assert_eq!(decided, (Outcome::Others(left), Change::None), "{verb:?}");
            }
            let broken = step(Verb::Break).decide(&found("theirs", left));
            assert_eq!(broken, (Outcome::Ours(None), Change::Delete));
        }
    }

    #[test]
    fn what_is_ours_is_raised_and_never_lowered() {
        for verb in [Verb::Claim, Verb::Renew] {
            for (left, expected) in [
                (Some(TTL / 2), (Outcome::Ours(Some(TTL)), Change::Expire)),
                (None, (Outcome::Ours(Some(TTL)), Change::Expire)),
                (Some(TTL * 2), (Outcome::Ours(Some(TTL * 2)), Change::None)),
            ] {
                assert_eq!(step(verb).decide(&found("mine", left)), expected);
            }
        }
        let ours = found("mine", Some(TTL));
        let released = step(Verb::Release).decide(&ours);
        assert_eq!(released, (Outcome::Ours(None), Change::Delete));
        let taken = step(Verb::First).decide(&ours);
        assert_eq!(taken, (Outcome::Taken, Change::None), "we never claimed it");
    }

    /// A claim that was given up must not arrive after its release.
    #[test]
    fn a_withdrawal_is_a_release_that_is_sent_last() {
        for (verb, last) in [
            (Verb::First, false),
            (Verb::Claim, false),
            (Verb::Renew, false),
            (Verb::Release, false),
            (Verb::Withdraw, true),
            (Verb::Break, false),
        ] {
            assert_eq!(step(verb).call(&["k"]).is_last(), last, "{verb:?}");
        }
        let ours = found("mine", Some(TTL));
        let decided = |verb| step(verb).decide(&ours);
        assert_eq!(decided(Verb::Withdraw), decided(Verb::Release));
    }

    #[test]
    fn a_ttl_is_rounded_up() {
        let ttl = Duration::from_micros(1_001);
        let brief = Step {
            ttl,
            ..step(Verb::Renew)
        };
        assert_eq!(brief.millis(), 2);
    }

    #[test]
    fn what_is_no_classic_lock_is_left_alone() {
        let text = |text: &str| Value::SimpleString(text.into());
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let hash = [text("hash"), Value::Nil, Value::Int(-1)];
        let record = [text("string"), bytes(b"lh\x01rest"), Value::Int(9)];
        for answers in [hash, record] {
            assert!(matches!(read_found(&answers), Err(Failure::Store(_))));
        }
        let theirs = [text("string"), bytes(b"\xff\x00"), Value::Int(-1)];
        assert!(matches!(
            read_found(&theirs),
            Ok(Found::Value { value, left: None }) if value == b"\xff\x00"
        ));
        let lapsed = [text("string"), bytes(b"x"), Value::Int(-2)];
        assert!(matches!(read_found(&lapsed), Ok(Found::Nothing)));
    }
}
