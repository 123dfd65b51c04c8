//! The scripts, what they are given and what they answer.
//!
//! The wire format is this file, `record.rs` and `push.rs`; the header of each
//! script says the same for those who write a client in another language.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::{
    Arrival, Claim, Mode, Owner, Release, Renew, Reply, Standing, StoreTime, Token,
};
use redis::{Cmd, Value};

use super::record::Bytes;
use super::refusal;
use crate::error::{ErrorKind, StoreError};

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

/// What the scripts share, by the name in their `-- include` lines.
const PARTS: [(&str, &str); 4] = [
    ("open", include_str!("lua/open.lua")),
    ("claims", include_str!("lua/claims.lua")),
    ("queue", include_str!("lua/queue.lua")),
    ("record", include_str!("lua/record.lua")),
];

impl Script {
    pub(super) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    fn assemble(text: &str) -> Self {
        let include = |text: String, (name, part): (&str, &str)| {
            text.replace(&format!("-- include {name}.lua\n"), part)
        };
        Self::new(PARTS.into_iter().fold(text.to_owned(), include))
    }
}

/// One script a verb.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) break_key: Script,
    pub(super) inspect: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    claim: Script::assemble(include_str!("lua/claim.lua")),
    renew: Script::assemble(include_str!("lua/renew.lua")),
    release: Script::assemble(include_str!("lua/release.lua")),
    break_key: Script::assemble(include_str!("lua/break.lua")),
    inspect: Script::assemble(include_str!("lua/inspect.lua")),
});

/// How the claim scripts count their flags.
mod flag {
    pub(super) const WAIT: u8 = 1;
    pub(super) const AHEAD: u8 = 2;
    pub(super) const HAND_OFF: u8 = 1;
    pub(super) const SETTLED: u8 = 2;
    pub(super) const BELIEVED: u8 = 4;
}

/// What does not change from call to call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// How long an idle key keeps its last token.
    pub(super) retention: Duration,
    /// Whether the count of `PUBLISH` can be believed.
    pub(super) believed: bool,
}

impl Terms {
    fn flag(self) -> u8 {
        if self.believed { flag::BELIEVED } else { 0 }
    }
}

/// A call of a script by its hash, so far without arguments.
pub(super) fn call(script: &Script, key: &str) -> Cmd {
    let mut call = Cmd::with_capacity(10, 256);
    call.arg("EVALSHA").arg(&script.hash).arg(1).arg(key);
    call
}

pub(super) fn add_claim(call: &mut Cmd, claim: &Claim, terms: Terms) {
    let wait = if claim.wait { flag::WAIT } else { 0 };
    let ahead = if claim.ahead { flag::AHEAD } else { 0 };
    call.arg(claim.id.expose())
        .arg(micros(claim.lease_ttl))
        .arg(micros(claim.waiter_ttl))
        .arg(wait | ahead | terms.flag())
        .arg(micros(terms.retention))
        .arg(pack_body(claim).as_slice());
}

pub(super) fn add_renew(call: &mut Cmd, renew: &Renew, terms: Terms) {
    call.arg(renew.id.expose())
        .arg(micros(renew.ttl))
        .arg(terms.flag())
        .arg(micros(terms.retention));
}

pub(super) fn add_release(call: &mut Cmd, release: &Release, terms: Terms) {
    let hand_off = if release.hand_off { flag::HAND_OFF } else { 0 };
    let settled = if release.settled { flag::SETTLED } else { 0 };
    call.arg(release.id.expose())
        .arg(hand_off | settled | terms.flag())
        .arg(micros(terms.retention));
}

pub(super) fn add_break(call: &mut Cmd, terms: Terms) {
    call.arg(terms.flag()).arg(micros(terms.retention));
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The part of a claim that never changes: see `record.rs`.
fn pack_body(claim: &Claim) -> Vec<u8> {
    let inbox = claim.inbox.as_ref().map_or("", |inbox| inbox.as_str());
    let Owner { host, pid, label } = &claim.owner;
    let label = label.as_deref().unwrap_or("");
    let mut body = Vec::with_capacity(16 + inbox.len() + host.len() + label.len());
    let (kind, of, weight) = match claim.mode {
        Mode::Exclusive => (0, 0, 1 << 20),
        Mode::Shared => (1, 0, 1),
        Mode::Permits { of, take } => (2, of, take),
    };
    body.push(kind);
    body.extend_from_slice(&of.to_le_bytes());
    body.extend_from_slice(&weight.to_le_bytes());
    push_short(&mut body, inbox);
    body.extend_from_slice(&pid.to_le_bytes());
    push_short(&mut body, host);
    push_short(&mut body, label);
    body
}

/// A text after its length in one byte; longer ones are cut.
fn push_short(out: &mut Vec<u8>, text: &str) {
    let mut cut = text.len().min(255);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // At most 255.
    out.push(u8::try_from(cut).unwrap_or(u8::MAX));
    out.extend_from_slice(&text.as_bytes()[..cut]);
}

/// Reads what a verb answered: the reply, and when the step was taken.
pub(super) fn read_reply(value: &Value) -> Result<(Reply, StoreTime), StoreError> {
    match value {
        Value::BulkString(bytes) => parse_reply(bytes).ok_or_else(|| unreadable(value)),
        Value::ServerError(error) => Err(refusal::of_server(error)),
        other => Err(unreadable(other)),
    }
}

fn parse_reply(bytes: &[u8]) -> Option<(Reply, StoreTime)> {
    let mut bytes = Bytes(bytes);
    let (kind, at) = (bytes.u8()?, bytes.time()?);
    let reply = match kind {
        1 => Reply::Standing(Standing {
            arrival: Arrival(bytes.number()?),
            token: Some(Token(bytes.number()?)).filter(|token| token.0 > 0),
            position: bytes.number()?,
            deadline: bytes.time()?,
            blocked_until: bytes.time().filter(|time| time.0 > 0),
        }),
        2 => Reply::Busy {
            blocked_until: bytes.time()?,
        },
        3 => Reply::Gone,
        4 => Reply::Released {
            held: bytes.number()? == 1,
        },
        5 => Reply::Absent,
        6 => Reply::Mismatch {
            in_use: bytes.capacity()?,
        },
        7 => Reply::Broken {
            holders: bytes.number()?,
            token: Token(bytes.number()?),
        },
        _ => return None,
    };
    Some((reply, at))
}

pub(super) fn unreadable(value: &Value) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!("the server answered something else than the script does: {value:?}"),
    )
    .with_hint("does a proxy stand between this client and the server?")
}
