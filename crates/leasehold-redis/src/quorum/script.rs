//! The scripts of one server of a set, their arguments and answers. The header of each script
//! describes them too, for clients in other languages.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::quorum::{Acquire, Body, Ear, Extend, Hold, Node, Part, Vote};
use leasehold_core::{ClaimId, ClientInfo, Inbox, Note, SetTerms, StoreTime, Token};
use leasehold_store::StoreError;
use redis::{Cmd, Value};

use super::super::errors;
use crate::codec::audit::Audit;
use crate::codec::call::push_client;
use crate::codec::record::Bytes;
use crate::codec::script::{MARKER, Script, assemble, micros, push_owner, unreadable};

const PARTS: [(&str, &str); 9] = [
    ("time", include_str!("../codec/lua/time.lua")),
    ("node", include_str!("lua/node.lua")),
    ("tell", include_str!("../codec/lua/tell.lua")),
    ("gate", include_str!("lua/gate.lua")),
    ("marker", MARKER),
    ("vote", include_str!("lua/vote.lua")),
    ("notes", include_str!("lua/notes.lua")),
    ("audit", include_str!("../codec/lua/audit.lua")),
    ("write_log", include_str!("../codec/lua/write_log.lua")),
];

/// One script a verb.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) extend: Script,
    pub(super) release: Script,
    pub(super) break_key: Script,
    pub(super) watch: Script,
    pub(super) inspect: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: assemble(include_str!("lua/acquire.lua"), &PARTS),
    extend: assemble(include_str!("lua/extend.lua"), &PARTS),
    release: assemble(include_str!("lua/release.lua"), &PARTS),
    break_key: assemble(include_str!("lua/break.lua"), &PARTS),
    watch: assemble(include_str!("lua/watch.lua"), &PARTS),
    inspect: assemble(include_str!("lua/inspect.lua"), &PARTS),
});

/// What is asked of one server. The inbox in a body is put in by the member:
/// each server knows its clients by another.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Acquire(Acquire),
    Extend(Extend),
    Release(Part),
    Break(Token, ClientInfo),
    Watch(Duration),
}

impl Ask {
    pub(super) fn script(&self) -> &'static Script {
        match self {
            Self::Acquire(_) => &SCRIPTS.acquire,
            Self::Extend(_) => &SCRIPTS.extend,
            Self::Release(_) => &SCRIPTS.release,
            Self::Break(..) => &SCRIPTS.break_key,
            Self::Watch(_) => &SCRIPTS.watch,
        }
    }

    /// Whether the server has to be admitted: see `gate.lua`.
    pub(super) fn needs_marker(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::Extend(_))
    }

    /// Whether it can change a vote, so that an audit log has a note of it.
    pub(super) fn is_audited(&self) -> bool {
        !matches!(self, Self::Watch(_))
    }

    pub(super) fn add(
        &self,
        call: &mut Cmd,
        run: &str,
        inbox: &Inbox,
        terms: &SetTerms,
        retention: Duration,
        audit: Option<&Audit>,
    ) {
        let vote = |call: &mut Cmd, ask: &Acquire, flags: u8| {
            let note = ask.body.note.as_ref();
            call.arg(ask.id.expose())
                .arg(ask.token.0)
                .arg(micros(ask.ttl))
                .arg(flags)
                .arg(micros(ask.ahead))
                .arg(micros(retention))
                .arg(run)
                .arg(&terms.set)
                .arg(micros(terms.quarantine))
                .arg(inbox.as_str())
                .arg(pack_owner(&ask.body.owner))
                .arg(note.map_or("", |note| note.as_str()));
        };
        match self {
            Self::Acquire(ask) => vote(call, ask, u8::from(ask.wait)),
            Self::Extend(ask) => vote(call, &ask.vote, if ask.repair { 2 } else { 0 }),
            Self::Release(part) => {
                call.arg(part.id.expose())
                    .arg(part.token.0)
                    .arg(u8::from(part.wake))
                    .arg(micros(retention));
            }
            Self::Break(token, by) => {
                call.arg(token.0).arg(micros(retention));
                if audit.is_some() {
                    let mut packed = Vec::with_capacity(64);
                    push_client(&mut packed, None, by);
                    call.arg(packed);
                }
            }
            Self::Watch(ttl) => {
                call.arg(inbox.as_str())
                    .arg(micros(*ttl))
                    .arg(micros(retention));
            }
        }
        call.arg(audit.map(Audit::keep));
    }
}

fn pack_owner(owner: &ClientInfo) -> Vec<u8> {
    let mut packed = Vec::with_capacity(64);
    push_owner(&mut packed, owner);
    packed
}

/// Reads what a server answered, and when by its clock.
pub(super) fn read_vote(value: &Value) -> Result<(Vote, StoreTime), StoreError> {
    match value {
        Value::BulkString(bytes) => parse_vote(bytes).ok_or_else(|| unreadable(value)),
        Value::ServerError(error) => Err(errors::of_server(error)),
        other => Err(unreadable(other)),
    }
}

fn parse_vote(bytes: &[u8]) -> Option<(Vote, StoreTime)> {
    let mut bytes = Bytes(bytes);
    let (kind, at) = (bytes.u8()?, bytes.time()?);
    let left = |bytes: &mut Bytes<'_>| Some(Duration::from_micros(bytes.number()?));
    let vote = match kind {
        1 => Vote::Yes,
        2 => Vote::Busy {
            left: left(&mut bytes)?,
            highest: Token(bytes.number()?),
        },
        3 => Vote::Stale {
            highest: Token(bytes.number()?),
        },
        4 => Vote::Skewed {
            by: left(&mut bytes)?,
        },
        5 => Vote::Lost,
        6 => Vote::Taken,
        7 => Vote::Quarantined {
            left: left(&mut bytes)?,
        },
        8 => Vote::Foreign,
        9 => Vote::Released {
            held: bytes.number()? == 1,
        },
        10 => Vote::Broken {
            token: Token(bytes.number()?),
        },
        11 => Vote::Done,
        _ => return None,
    };
    Some((vote, at))
}

/// Reads the answer of a look: the server's clock, and the record.
pub(super) fn read_look(value: &Value) -> Result<(StoreTime, Node), StoreError> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::ServerError(error) => return Err(errors::of_server(error)),
        other => return Err(unreadable(other)),
    };
    let clock = match items.first() {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let clock = clock.and_then(|text| text.parse().ok()).map(StoreTime);
    let clock = clock.ok_or_else(|| unreadable(value))?;
    match items.get(1) {
        Some(Value::BulkString(record)) => Ok((clock, read_node(record)?)),
        _ => Ok((clock, Node::default())),
    }
}

/// Reads a record: see `node.lua`.
pub(super) fn read_node(record: &[u8]) -> Result<Node, StoreError> {
    let mut bytes = Bytes(record);
    if record.len() < 52 || bytes.u8() != Some(b'l') || bytes.u8() != Some(b'q') {
        return Err(errors::foreign("string"));
    }
    match bytes.u8() {
        Some(1) => parse_node(&mut bytes).ok_or_else(errors::damaged),
        version => Err(errors::newer(version.unwrap_or(0))),
    }
}

fn parse_node(bytes: &mut Bytes<'_>) -> Option<Node> {
    let (accepted, released, token) = (bytes.number()?, bytes.number()?, bytes.number()?);
    let (until, since) = (bytes.time()?, bytes.time()?);
    let proposer = ClaimId::new(bytes.text()?).ok();
    let id = ClaimId::new(bytes.text()?).ok();
    let inbox = Inbox::new(bytes.text()?).ok();
    let owner = bytes.long()?;
    let note = Note::new(std::str::from_utf8(bytes.long()?).ok()?).ok()?;
    let hold = match (id, inbox) {
        (Some(id), Some(inbox)) if token > 0 => {
            let mut owner = Bytes(owner);
            let pid = owner.u32()?;
            let (host, label) = (owner.text()?, owner.text()?);
            Some(Hold {
                id,
                token: Token(token),
                until,
                since,
                body: Body {
                    inbox,
                    owner: ClientInfo::of_texts(host, pid, label),
                    note: Some(note).filter(|note| !note.as_str().is_empty()),
                },
            })
        }
        _ => None,
    };
    let ears = |bytes: &mut Bytes<'_>| {
        let mut ears = Vec::new();
        for _ in 0..bytes.u8()? {
            let until = bytes.time()?;
            let inbox = Inbox::new(bytes.text()?).ok()?;
            ears.push(Ear { inbox, until });
        }
        Some(ears)
    };
    Some(Node {
        accepted: Token(accepted),
        proposer,
        released: Token(released),
        hold,
        waiting: ears(bytes)?,
        watchers: ears(bytes)?,
    })
}
