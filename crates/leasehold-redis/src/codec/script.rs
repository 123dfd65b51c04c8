//! The scripts, what they are given and what they answer.
//!
//! The wire format is this file, `record.rs` and `push.rs`; the header of each
//! script says the same for those who write a client in another language.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::{
    Arrival, Claim, ClientInfo, Inbox, Mode, Release, Renew, Reply, Rotate, Standing, StoreTime,
    Token,
};
use leasehold_store::{ErrorKind, StoreError};
use redis::{Cmd, Value};

use super::record::{Bytes, trait_of};
use crate::refusal;

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: String,
    /// The same for the nodes of a cluster.
    in_cluster: Option<Box<Self>>,
    /// The same for clients that ask whether the server grants anything yet.
    gated: Option<Box<Self>>,
}

/// The line of `time.lua` that says where the script runs.
const ALONE: &str = "local in_cluster = false\n";
const IN_CLUSTER: &str = "local in_cluster = true\n";

/// The line of `gate.lua` that says whether the script may start a quarantine.
const ASKS: &str = "local only_looks = false\n";
const LOOKS: &str = "local only_looks = true\n";

/// How the lines begin that are in gated scripts only: see `gate.lua`.
const GATED: &str = "-- gated: ";

/// What the scripts share, by the name in their `-- include` lines. `queue` comes
/// before the parts that it is made of.
const PARTS: [(&str, &str); 13] = [
    ("time", include_str!("lua/time.lua")),
    ("open", include_str!("lua/open.lua")),
    ("state", include_str!("lua/state.lua")),
    ("queue", include_str!("lua/queue.lua")),
    ("entry", include_str!("lua/entry.lua")),
    ("list", include_str!("lua/list.lua")),
    ("tombstone", include_str!("lua/tombstone.lua")),
    ("told", include_str!("lua/told.lua")),
    ("rule", include_str!("lua/rule.lua")),
    ("record", include_str!("lua/record.lua")),
    ("deliver", include_str!("lua/deliver.lua")),
    ("join", include_str!("lua/join.lua")),
    ("marker", MARKER),
];

/// What the gated ones have besides.
const GATE: [(&str, &str); 2] = [("gate", include_str!("lua/gate.lua")), ("marker", MARKER)];

/// What a server knows of itself.
pub(crate) const MARKER: &str = include_str!("lua/marker.lua");

impl Script {
    pub(crate) fn new(text: String) -> Self {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self {
            text,
            hash,
            in_cluster: None,
            gated: None,
        }
    }

    fn assemble(text: &str) -> Self {
        let include = |text: String, (name, part): (&str, &str)| {
            text.replace(&format!("-- include {name}.lua\n"), part)
        };
        let text = PARTS.into_iter().fold(text.to_owned(), include);
        let gated = GATE.into_iter().fold(text.replace(GATED, ""), include);
        let text = ungated(&text);
        let in_cluster = Self::new(text.replace(ALONE, IN_CLUSTER));
        Self {
            in_cluster: Some(Box::new(in_cluster)),
            gated: Some(Box::new(Self::new(gated))),
            ..Self::new(text)
        }
    }

    /// A script that asks for nothing starts no quarantine.
    fn looking(self) -> Self {
        let looks = |script: Box<Self>| Box::new(Self::new(script.text.replace(ASKS, LOOKS)));
        Self {
            gated: self.gated.map(looks),
            ..self
        }
    }

    /// A script that never grants anything needs no gate.
    fn without_gate(self) -> Self {
        Self {
            gated: None,
            ..self
        }
    }

    /// The script as it runs on a server that may have forgotten who holds.
    pub(crate) fn gated(&self) -> Option<&Self> {
        self.gated.as_deref()
    }

    /// The script as it runs on one server, or on a node of a cluster.
    pub(crate) fn on(&self, cluster: bool) -> &Self {
        match &self.in_cluster {
            Some(script) if cluster => script,
            _ => self,
        }
    }
}

/// Without the lines that are in gated scripts only.
pub(crate) fn ungated(text: &str) -> String {
    let plain = |line: &&str| !line.trim_start().starts_with(GATED);
    text.split_inclusive('\n').filter(plain).collect()
}

/// One script a verb.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) claim: Script,
    pub(crate) claim_all: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) resize: Script,
    pub(crate) watch: Script,
    pub(crate) break_key: Script,
    pub(crate) inspect: Script,
    /// Marks a server that is known to be new.
    pub(crate) init: Script,
    /// Sees whether a server may have forgotten something.
    pub(crate) touch: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    claim: Script::assemble(include_str!("lua/claim.lua")),
    claim_all: Script::assemble(include_str!("lua/claim_all.lua")),
    renew: Script::assemble(include_str!("lua/renew.lua")),
    release: Script::assemble(include_str!("lua/release.lua")),
    resize: Script::assemble(include_str!("lua/resize.lua")),
    watch: Script::assemble(include_str!("lua/watch.lua")).looking(),
    break_key: Script::assemble(include_str!("lua/break.lua")),
    inspect: Script::assemble(include_str!("lua/inspect.lua")).without_gate(),
    init: Script::assemble(include_str!("lua/init.lua")).without_gate(),
    touch: Script::assemble(include_str!("lua/touch.lua")).without_gate(),
});

/// How the scripts count their flags.
mod flag {
    pub(super) const WAIT: u8 = 1;
    pub(super) const AHEAD: u8 = 2;
    pub(super) const HAND_OFF: u8 = 1;
    pub(super) const SETTLED: u8 = 2;
    pub(super) const BELIEVED: u8 = 4;
    pub(super) const UNUSED: u8 = 8;
    pub(super) const DOWNGRADE: u8 = 1;
    pub(super) const NOTE: u8 = 2;
    pub(super) const ROTATE: u8 = 8;
    pub(super) const ADOPT: u8 = 16;
}

/// What does not change from call to call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How long an idle key keeps its last token.
    pub(crate) retention: Duration,
    /// Whether the count of `PUBLISH` can be believed.
    pub(crate) believed: bool,
}

impl Terms {
    fn flag(self) -> u8 {
        if self.believed { flag::BELIEVED } else { 0 }
    }
}

/// A call of a script by its hash, so far without arguments.
pub(crate) fn call(script: &Script, keys: &[&str]) -> Cmd {
    let mut call = Cmd::with_capacity(10, 256);
    call.arg("EVALSHA")
        .arg(&script.hash)
        .arg(keys.len())
        .arg(keys);
    call
}

/// The same, with the script itself.
pub(crate) fn call_in_full(script: &Script, keys: &[&str]) -> Cmd {
    let mut call = Cmd::with_capacity(10, script.text.len() + 256);
    call.arg("EVAL").arg(&script.text).arg(keys.len()).arg(keys);
    call
}

pub(crate) fn add_claim(call: &mut Cmd, claim: &Claim, terms: Terms) {
    call.arg(claim.id.expose())
        .arg(micros(claim.lease_ttl))
        .arg(micros(claim.waiter_ttl))
        .arg(claim_flags(claim, terms))
        .arg(micros(terms.retention))
        .arg(pack_body(claim).as_slice());
}

pub(crate) fn add_claims<'a>(
    call: &mut Cmd,
    claims: impl IntoIterator<Item = &'a Claim>,
    terms: Terms,
) {
    call.arg(micros(terms.retention));
    for claim in claims {
        call.arg(claim.id.expose())
            .arg(micros(claim.lease_ttl))
            .arg(micros(claim.waiter_ttl))
            .arg(claim_flags(claim, terms))
            .arg(pack_body(claim).as_slice());
    }
}

fn claim_flags(claim: &Claim, terms: Terms) -> u8 {
    let wait = if claim.wait { flag::WAIT } else { 0 };
    let ahead = if claim.ahead { flag::AHEAD } else { 0 };
    wait | ahead | terms.flag()
}

pub(crate) fn add_renew(call: &mut Cmd, renew: &Renew, terms: Terms) {
    let Renew {
        id,
        ttl,
        downgrade,
        note,
        rotate,
        // Of the way it is sent, not of the script.
        confirms: _,
    } = renew;
    let adopt = rotate.as_ref().and_then(|rotate| rotate.adopt.as_ref());
    let mut flags = terms.flag();
    for (asked, flag) in [
        (*downgrade, flag::DOWNGRADE),
        (note.is_some(), flag::NOTE),
        (rotate.is_some(), flag::ROTATE),
        (adopt.is_some(), flag::ADOPT),
    ] {
        flags |= if asked { flag } else { 0 };
    }
    call.arg(id.expose())
        .arg(micros(*ttl))
        .arg(flags)
        .arg(micros(terms.retention));
    if note.is_none() && rotate.is_none() {
        return;
    }
    let (to, version) = rotate
        .as_ref()
        .map_or(("", 0), |Rotate { to, version, .. }| {
            (to.expose(), *version)
        });
    let mut client = Vec::new();
    if let Some(adopt) = adopt {
        push_client(&mut client, adopt.inbox.as_ref(), &adopt.owner);
    }
    call.arg(note.as_ref().map_or("", |note| note.as_str()))
        .arg(to)
        .arg(version)
        .arg(client);
}

pub(crate) fn add_release(call: &mut Cmd, release: &Release, terms: Terms) {
    let hand_off = if release.hand_off { flag::HAND_OFF } else { 0 };
    let settled = if release.settled { flag::SETTLED } else { 0 };
    let unused = if release.unused { flag::UNUSED } else { 0 };
    call.arg(release.id.expose())
        .arg(hand_off | settled | unused | terms.flag())
        .arg(micros(terms.retention));
}

pub(crate) fn add_resize(call: &mut Cmd, from: u32, to: u32, terms: Terms) {
    call.arg(from)
        .arg(to)
        .arg(terms.flag())
        .arg(micros(terms.retention));
}

pub(crate) fn add_watch(call: &mut Cmd, inbox: &Inbox, ttl: Duration, terms: Terms) {
    call.arg(inbox.as_str())
        .arg(micros(ttl))
        .arg(micros(terms.retention));
}

pub(crate) fn add_break(call: &mut Cmd, terms: Terms) {
    call.arg(terms.flag()).arg(micros(terms.retention));
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The body of a claim: see `record.rs`.
fn pack_body(claim: &Claim) -> Vec<u8> {
    let (kind, of, weight) = match claim.mode {
        Mode::EXCLUSIVE => (0, 0, 1 << 20),
        Mode::SHARED => (1, 0, 1),
        Mode::permits(of, take) => (2, of, take),
    };
    let mut body = Vec::with_capacity(192);
    body.push(kind);
    body.extend_from_slice(&of.to_le_bytes());
    body.extend_from_slice(&weight.to_le_bytes());
    push_client(&mut body, claim.inbox.as_ref(), &claim.owner);
    if let Some(secret) = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE) {
        body[0] |= trait_of::SECRET;
        push_short(&mut body, &secret.expose());
    }
    if !claim.min_hold.is_zero() {
        body[0] |= trait_of::MIN_HOLD;
        #[allow(
            clippy::cast_precision_loss,
            reason = "no number on the wire is above 2^53"
        )]
        body.extend_from_slice(&(micros(claim.min_hold) as f64).to_le_bytes());
        // The store notes the renewals.
        body.extend_from_slice(&0_f64.to_le_bytes());
    }
    if let Some(note) = &claim.note {
        body[0] |= trait_of::NOTE;
        let note = note.as_str().as_bytes();
        // At most 1024.
        let size = u16::try_from(note.len()).unwrap_or(u16::MAX);
        body.extend_from_slice(&size.to_le_bytes());
        body.extend_from_slice(note);
    }
    body
}

/// Who claims: the inbox, and the owner.
fn push_client(out: &mut Vec<u8>, inbox: Option<&Inbox>, owner: &ClientInfo) {
    let ClientInfo { host, pid, label } = owner;
    push_short(out, inbox.map_or("", |inbox| inbox.as_str()));
    out.extend_from_slice(&pid.to_le_bytes());
    push_short(out, host);
    push_short(out, label.as_deref().unwrap_or(""));
}

/// A text after its length in one byte; longer ones are cut.
pub(crate) fn push_short(out: &mut Vec<u8>, text: &str) {
    let mut cut = text.len().min(255);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // At most 255.
    out.push(u8::try_from(cut).unwrap_or(u8::MAX));
    out.extend_from_slice(&text.as_bytes()[..cut]);
}

/// Reads what a verb answered: the reply, and when the step was taken.
pub(crate) fn read_reply(value: &Value) -> Result<(Reply, StoreTime), StoreError> {
    match value {
        Value::BulkString(bytes) => parse_reply(bytes).ok_or_else(|| unreadable(value)),
        Value::ServerError(error) => Err(refusal::of_server(error)),
        other => Err(unreadable(other)),
    }
}

/// What `claim_all` answered: every reply, or the first part that was not granted.
pub(crate) type AllReplies = Result<Vec<(Reply, StoreTime)>, (usize, (Reply, StoreTime))>;

/// Reads it, of so many parts.
pub(crate) fn read_replies(value: &Value, parts: usize) -> Result<AllReplies, StoreError> {
    match value {
        Value::Array(items) => match items.as_slice() {
            [Value::Int(part), answer] => {
                let part = usize::try_from(*part).ok().filter(|part| *part < parts);
                let part = part.ok_or_else(|| unreadable(value))?;
                Ok(Err((part, read_reply(answer)?)))
            }
            answers => {
                let replies: Vec<_> = answers.iter().map(read_reply).collect::<Result<_, _>>()?;
                let granted = replies.iter().filter(|(reply, _)| reply.is_grant()).count();
                // One key less would be held by nobody.
                if granted != parts || replies.len() != parts {
                    return Err(unreadable(value));
                }
                Ok(Ok(replies))
            }
        },
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
        12 => Reply::Quarantined {
            until: bytes.time()?,
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
        8 => Reply::Superseded,
        9 => Reply::Taken,
        10 => Reply::Resized,
        11 => Reply::Done,
        _ => return None,
    };
    Some((reply, at))
}

pub(crate) fn unreadable(value: &Value) -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        format!(
            "the server answered {}, which is not as it should be",
            shape(value)
        ),
    )
    .with_hint("does a proxy stand between this client and the server?")
}

/// What sort of answer it is. What is in it is not repeated: it can be long, and hold
/// the ids of claims.
fn shape(value: &Value) -> String {
    match value {
        Value::Nil => "nothing".to_owned(),
        Value::Int(number) => format!("the number {number}"),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            format!("a text of {} bytes", text.len())
        }
        Value::BulkString(bytes) => format!("{} bytes", bytes.len()),
        Value::Array(items) | Value::Set(items) => format!("a list of {}", items.len()),
        Value::Map(fields) => format!("a map of {}", fields.len()),
        _ => "something".to_owned(),
    }
}
