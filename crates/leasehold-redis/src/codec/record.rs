//! Decodes the record of a key, as it is stored in Redis.
//!
//! Numbers are doubles, little-endian, always whole and below 2^53; u8, u16 and
//! u32 are little-endian integers; `text` is one byte of length and so many
//! bytes; times are microseconds since 1970. Everything begins with `lh` and a version
//! u8, at most 31.
//!
//! **The string** (version 2), while one claim holds alone and has held since nobody did:
//! - `since`, `last_seen`, `deadline`, the token, the `id` text, body
//!
//! Its arrival is its token, and the key expires with it: nothing is left when it is
//! released, or lapses. `<prefix>last` keeps the last token of all keys, in decimal
//! digits.
//!
//! **The hash** (version 1), from the second claim, the first watcher or released id, or
//! anything else that the string has no place for, until it is empty; in a cluster, where
//! each key keeps its own last token, always:
//! - field `" head"`: `last_seen`, `offset`, `last_token`, `last_arrival`, `furthest` and
//!   `expires` (until when the key itself lives at least), and `buried` u8: how many
//!   released ids there are; then
//!   the numbers `capacity` (−1 for a lock, else the
//!   permits, 0 while nobody holds or waits), `used`, `earliest`, how many claims
//!   are `granted` and `waiting`, and the `watchers`; of the first waiting claim
//!   `arrival`, `deadline` and `weight`; the ids of the first and last granted and
//!   the first and last waiting claim, text each
//! - field `" released"`: the released ids: `forget`, whether the claim lives on under
//!   another id u8, `id` text each
//! - one field a claim, by its id (which has no spaces): the ids `next` text and
//!   `prev` text, then `arrival`, `token` (0 while it waits), `deadline`, `since`,
//!   body. Granted claims are linked in order of tokens and arrival (claims of one
//!   hold share a token, and weigh once), waiting ones in order of arrival; a link
//!   beyond the end of a list means nothing.
//! - field `" o<secret>"` for each owner with waiting claims: their ids in order of
//!   arrival, text each
//! - field `" watchers"` while there are any: until when, `inbox` text each. One
//!   that is over means nothing, and may be left out.
//! - field `" votes"` at a member of a set: the highest token that was voided, then of those who
//!   asked in vain until when they are remembered, `inbox` text each
//!
//! Earlier versions of leasehold wrote a string of version 1, with the numbers of the head up to
//! `buried`, the size of the claim u16 (0 if there is none), `deadline`, `since`, `id` text
//! and body of a claim, and the released ids. It is read, and written as a hash, which those
//! versions read too.
//!
//! **The body**, the part that hardly ever changes: the traits u8, the permits there are u32
//! (0: a lock), the weight u32, `inbox` text, then the client: `pid` u32, `host` text, `label`
//! text, with the context behind a NUL in it where there is one. The traits are the sum of what
//! only some claims have; these follow in this order:
//! - 1: its client listened when it last sent the claim, or renewed it while it waited; nothing
//!   follows
//! - 2: its client keeps the order of its claims; nothing follows
//! - 4: the owner's secret text (32 hexadecimal digits)
//! - 8: the minimum hold, a number, and until when the client has renewed the claim, a
//!   number (0 while it waits, and once it has left)
//! - 16: the note, a u16 of length and so many bytes
//! - 32: the id was replaced: how often, a number, and the last one, text
//! - 64: it has left, and only its minimum hold keeps the key; nothing follows

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use leasehold_core::record::{Entry, Record, Tombstone};
use leasehold_core::{Arrival, ClaimId, Note, OwnerSecret, Queue, Snapshot, StoreTime, Token};
use leasehold_store::StoreError;
use redis::Value;

pub(crate) use super::bytes::Bytes;
use super::reply::unreadable;
use crate::errors;

const MAGIC: &[u8] = b"lh";
const VERSION: u8 = 1;
const LEAN: u8 = 2;

/// What a claim may have besides its kind.
pub(super) mod trait_of {
    pub(in super::super) const LISTENS: u8 = 1;
    pub(in super::super) const RUNS: u8 = 2;
    pub(in super::super) const SECRET: u8 = 4;
    pub(in super::super) const MIN_HOLD: u8 = 8;
    pub(in super::super) const NOTE: u8 = 16;
    pub(super) const ROTATED: u8 = 32;
    pub(super) const KEPT: u8 = 64;
}

/// The key as people may look at it, by what `inspect.lua` answers.
pub(crate) fn look(value: Value) -> Result<Snapshot, StoreError> {
    let (record, clock) = read(value)?;
    // What no queue writes down was not written by one.
    let queue = Queue::try_from(record).map_err(|_| errors::damaged())?;
    Ok(queue.look(clock))
}

/// Reads what `inspect.lua` answers, and the server's clock.
pub(crate) fn read(value: Value) -> Result<(Record, StoreTime), StoreError> {
    let items = match value {
        Value::Array(items) => items,
        other => return Err(unreadable(&other)),
    };
    let mut items = items.into_iter();
    let mut number = || match items.next() {
        Some(Value::Int(number)) => u64::try_from(number).map_err(|_| errors::damaged()),
        _ => Err(errors::damaged()),
    };
    let (clock, last) = (StoreTime(number()?), Token::from(number()?));
    let text = |item: Value| match item {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(errors::damaged()),
    };
    let texts = items.map(text).collect::<Result<Vec<_>, _>>()?;
    let mut record = match texts.as_slice() {
        [] => Record::default(),
        [text] => of_string(text)?,
        fields => of_hash(fields)?,
    };
    record.last_token = record.last_token.max(last);
    Ok((record, clock))
}

fn of_string(text: &[u8]) -> Result<Record, StoreError> {
    if text.starts_with(&[MAGIC[0], MAGIC[1], LEAN]) {
        return parse_lean(&text[3..]).ok_or_else(errors::damaged);
    }
    if text.starts_with(b"lq") {
        return Err(errors::earlier_vote());
    }
    check_magic(text, "string")?;
    parse_earlier(text).ok_or_else(errors::damaged)
}

fn parse_lean(text: &[u8]) -> Option<Record> {
    let mut bytes = Bytes(text);
    let (since, last_seen, deadline) = (bytes.time()?, bytes.time()?, bytes.time()?);
    let token = bytes.number()?;
    let mut record = Record {
        last_seen,
        last_token: Token::from(token),
        last_arrival: Arrival(token),
        furthest: deadline,
        ..Record::default()
    };
    let id = bytes.id()?;
    hold_alone(&mut record, id, (deadline, since), &mut bytes)?;
    Some(record)
}

/// The only claim, under the last token.
fn hold_alone(
    record: &mut Record,
    id: ClaimId,
    times: (StoreTime, StoreTime),
    body: &mut Bytes<'_>,
) -> Option<()> {
    let claim = entry(id, record.last_arrival, times, body)?;
    record.capacity = Some(claim.mode.capacity());
    record.earliest = claim.deadline;
    record.granted.push((record.last_token, claim));
    Some(())
}

fn parse_earlier(text: &[u8]) -> Option<Record> {
    let mut bytes = Bytes(text);
    let (mut record, buried) = parse_start(&mut bytes)?;
    let size = bytes.u16()?;
    if size > 0 {
        let mut claim = Bytes(bytes.take(size.into())?);
        let (deadline, since, id) = (claim.time()?, claim.time()?, claim.id()?);
        hold_alone(&mut record, id, (deadline, since), &mut claim)?;
    }
    parse_released(&mut record, &mut bytes, buried)?;
    Some(record)
}

fn of_hash(fields: &[Vec<u8>]) -> Result<Record, StoreError> {
    let pairs = fields.chunks_exact(2).map(|it| (&it[0][..], &it[1][..]));
    let fields: HashMap<&[u8], &[u8]> = pairs.collect();
    let head = fields.get(b" head".as_slice());
    let head = head.ok_or_else(|| errors::foreign("hash"))?;
    check_magic(head, "hash")?;
    parse_hash(head, &fields).ok_or_else(errors::damaged)
}

fn parse_hash(head: &[u8], fields: &HashMap<&[u8], &[u8]>) -> Option<Record> {
    let mut head = Bytes(head);
    let (mut record, buried) = parse_start(&mut head)?;
    let capacity = head.capacity()?;
    let _used = head.number()?;
    record.earliest = head.time()?;
    let (granted, waiting, watchers) = (head.number()?, head.number()?, head.number()?);
    record.capacity = Some(capacity).filter(|_| granted + waiting > 0);
    let _first_waiting = head.take(3 * 8)?;
    let (first_granted, _) = (head.text()?, head.text()?);
    let (first_waiting, _) = (head.text()?, head.text()?);
    record.granted = walk(fields, first_granted, granted)?;
    let waiting = walk(fields, first_waiting, waiting)?;
    record.waiting = waiting.into_iter().map(|(_, claim)| claim).collect();
    if watchers > 0 {
        let mut bytes = Bytes(fields.get(b" watchers".as_slice())?);
        for _ in 0..watchers {
            let until = bytes.time()?;
            record.watchers.push((bytes.inbox()??, until));
        }
    }
    let released = fields.get(b" released".as_slice())?;
    parse_released(&mut record, &mut Bytes(released), buried)?;
    Some(record)
}

fn parse_start(bytes: &mut Bytes<'_>) -> Option<(Record, u8)> {
    bytes.take(3)?;
    let record = Record {
        last_seen: bytes.time()?,
        offset: Duration::from_micros(bytes.number()?),
        last_token: Token::from(bytes.number()?),
        last_arrival: Arrival(bytes.number()?),
        furthest: bytes.time()?,
        ..Record::default()
    };
    let _expires = bytes.time()?;
    Some((record, bytes.u8()?))
}

fn parse_released(record: &mut Record, bytes: &mut Bytes<'_>, count: u8) -> Option<()> {
    for _ in 0..count {
        record.released.push(Tombstone {
            forget: bytes.time()?,
            rotated: bytes.u8()? == 1,
            id: bytes.id()?,
        });
    }
    Some(())
}

fn check_magic(text: &[u8], kind: &str) -> Result<(), StoreError> {
    match text.strip_prefix(MAGIC).and_then(|rest| rest.first()) {
        Some(&VERSION) => Ok(()),
        Some(&version) if version < 32 => Err(errors::newer(version)),
        _ => Err(errors::foreign(kind)),
    }
}

/// Follows the links of one list: the claims, and their tokens.
fn walk(fields: &HashMap<&[u8], &[u8]>, first: &str, count: u64) -> Option<Vec<(Token, Entry)>> {
    let mut id = first;
    let mut list = Vec::new();
    // Links of a damaged record can lead in a circle.
    let mut seen = HashSet::new();
    for _ in 0..count {
        if !seen.insert(id) {
            return None;
        }
        let mut bytes = Bytes(fields.get(id.as_bytes())?);
        let (next, _prev) = (bytes.text()?, bytes.text()?);
        let (arrival, token) = (Arrival(bytes.number()?), Token::from(bytes.number()?));
        let times = (bytes.time()?, bytes.time()?);
        let claim = entry(ClaimId::new(id).ok()?, arrival, times, &mut bytes)?;
        list.push((token, claim));
        id = next;
    }
    Some(list)
}

/// A claim with the body that follows.
fn entry(
    id: ClaimId,
    arrival: Arrival,
    (deadline, since): (StoreTime, StoreTime),
    body: &mut Bytes<'_>,
) -> Option<Entry> {
    let (traits, mode, inbox, owner) = body.body()?;
    let mut entry = Entry {
        id,
        arrival,
        mode,
        deadline,
        since,
        inbox,
        owner,
        secret: None,
        min_hold: Duration::ZERO,
        renewed: None,
        note: None,
        version: 0,
        previous: None,
        kept: traits & trait_of::KEPT > 0,
        runs: traits & trait_of::RUNS > 0,
        listens: traits & trait_of::LISTENS > 0,
    };
    if traits & trait_of::SECRET > 0 {
        entry.secret = Some(OwnerSecret::parse(body.text()?).ok()?);
    }
    if traits & trait_of::MIN_HOLD > 0 {
        entry.min_hold = Duration::from_micros(body.number()?);
        entry.renewed = Some(body.time()?).filter(|renewed| *renewed > StoreTime(0));
    }
    if traits & trait_of::NOTE > 0 {
        let note = std::str::from_utf8(body.long()?).ok()?;
        entry.note = Some(Note::new(note).ok()?);
    }
    if traits & trait_of::ROTATED > 0 {
        (entry.version, entry.previous) = (body.number()?, Some(body.id()?));
    }
    Some(entry)
}
