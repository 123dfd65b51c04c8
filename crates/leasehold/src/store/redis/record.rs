//! The record of one key as it lies in Redis.
//!
//! Integers are little-endian; `text` is one byte of length and so many bytes;
//! times are microseconds since 1970. Both forms begin with `lh` and the
//! version 1, then `last_seen` u64, `offset` u64, `last_token` u64,
//! `last_arrival` u64, `furthest` u64 and `buried` u8, the number of released ids.
//!
//! **The string**, while nobody waits and at most one holds, goes on with:
//! - the size of the claim u16, 0 if there is none
//! - the claim: `deadline` u64, `since` u64, `id` text, body; its token and its
//!   arrival are the last
//! - the released ids: `forget` u64, `id` text each
//!
//! **The hash**, from the second claim on until it is empty:
//! - field `" head"` goes on with: `capacity` i64 (−1 for a lock, else the
//!   permits), `used` u64, `earliest` u64, `expires` u64 (until when the key
//!   itself lives), the number `granted` u32 and `waiting` u32; of the first
//!   waiting claim `arrival` u64, `deadline` u64 and `weight` u64; the ids of
//!   the first and last granted and the first and last waiting claim, text each
//! - field `" released"`: the released ids, as above
//! - one field a claim, by its id (which has no spaces): the ids `next` text and
//!   `prev` text, `arrival` u64, `token` u64 (0 while it waits), `deadline` u64,
//!   `since` u64, body. Granted claims are linked in order of tokens, waiting
//!   ones in order of arrival; a link beyond the end of a list means nothing.
//!
//! **The body**, the part that never changes: the kind u8 (0 exclusive, 1
//! shared, 2 permits), the permits there are u32, the weight u32, `inbox` text,
//! then the owner: `pid` u32, `host` text, `label` text.

use std::collections::HashMap;

use leasehold_core::{
    Arrival, Capacity, ClaimId, ClaimView, Holder, Inbox, Mode, Owner, Snapshot, StoreTime, Token,
    WaiterView,
};
use redis::Value;

use super::{refusal, script};
use crate::error::StoreError;

const MAGIC: &[u8] = b"lh";
const VERSION: u8 = 1;

/// A record, read in full.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) last_seen: StoreTime,
    pub(super) offset: u64,
    pub(super) last_token: Token,
    pub(super) last_arrival: Arrival,
    pub(super) furthest: StoreTime,
    pub(super) capacity: Option<Capacity>,
    pub(super) earliest: StoreTime,
    /// In order of tokens.
    pub(super) granted: Vec<Entry>,
    /// In order of arrival.
    pub(super) waiting: Vec<Entry>,
    /// Released ids and when to forget them.
    pub(super) released: Vec<(ClaimId, StoreTime)>,
}

/// A claim in a record.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) id: ClaimId,
    pub(super) arrival: Arrival,
    pub(super) token: Token,
    pub(super) deadline: StoreTime,
    pub(super) since: StoreTime,
    pub(super) mode: Mode,
    pub(super) inbox: Option<Inbox>,
    pub(super) owner: Owner,
}

/// A reader over bytes: `None` where they end too early.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<StoreTime> {
        self.u64().map(StoreTime)
    }

    fn text(&mut self) -> Option<&'a str> {
        let size = self.u8()?;
        std::str::from_utf8(self.take(size.into())?).ok()
    }

    fn id(&mut self) -> Option<ClaimId> {
        ClaimId::new(self.text()?).ok()
    }
}

impl Record {
    /// Reads what `inspect.lua` answers, and the server's clock.
    pub(super) fn read(value: Value) -> Result<(Self, StoreTime), StoreError> {
        let items = match value {
            Value::Array(items) => items,
            Value::ServerError(error) => return Err(refusal::of_server(&error)),
            other => return Err(script::unreadable(&other)),
        };
        let mut items = items.into_iter();
        let Some(clock) = items.next().and_then(|item| match item {
            Value::Int(clock) => u64::try_from(clock).ok().map(StoreTime),
            _ => None,
        }) else {
            return Err(refusal::damaged());
        };
        let texts: Option<Vec<Vec<u8>>> = items
            .map(|item| match item {
                Value::BulkString(bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        let texts = texts.ok_or_else(refusal::damaged)?;
        let record = match texts.as_slice() {
            [] => Ok(Self::default()),
            [text] => Self::of_string(text),
            fields => Self::of_hash(fields),
        };
        Ok((record?, clock))
    }

    fn of_string(text: &[u8]) -> Result<Self, StoreError> {
        check_magic(text, "string")?;
        Self::parse_string(text).ok_or_else(refusal::damaged)
    }

    fn parse_string(text: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(text);
        let (mut record, buried) = Self::parse_start(&mut bytes)?;
        let size = bytes.u16()?;
        if size > 0 {
            let mut claim = Bytes(bytes.take(size.into())?);
            let (deadline, since, id) = (claim.time()?, claim.time()?, claim.id()?);
            let (mode, inbox, owner) = parse_body(&mut claim)?;
            record.capacity = Some(mode.capacity());
            record.earliest = deadline;
            record.granted.push(Entry {
                id,
                arrival: record.last_arrival,
                token: record.last_token,
                deadline,
                since,
                mode,
                inbox,
                owner,
            });
        }
        record.parse_released(&mut bytes, buried)?;
        Some(record)
    }

    fn of_hash(fields: &[Vec<u8>]) -> Result<Self, StoreError> {
        let fields: HashMap<&[u8], &[u8]> = fields
            .chunks_exact(2)
            .map(|pair| (pair[0].as_slice(), pair[1].as_slice()))
            .collect();
        let Some(head) = fields.get(b" head".as_slice()) else {
            return Err(refusal::foreign("hash"));
        };
        check_magic(head, "hash")?;
        Self::parse_hash(head, &fields).ok_or_else(refusal::damaged)
    }

    fn parse_hash(head: &[u8], fields: &HashMap<&[u8], &[u8]>) -> Option<Self> {
        let mut head = Bytes(head);
        let (mut record, buried) = Self::parse_start(&mut head)?;
        let capacity = head.u64()?.cast_signed();
        record.capacity = Some(match capacity {
            -1 => Capacity::Lock,
            permits => Capacity::Permits(u32::try_from(permits).ok()?),
        });
        let _used = head.u64()?;
        record.earliest = head.time()?;
        let _expires = head.u64()?;
        let (granted, waiting) = (head.u32()?, head.u32()?);
        head.take(24)?;
        let (first_granted, _) = (head.text()?, head.text()?);
        let (first_waiting, _) = (head.text()?, head.text()?);
        record.granted = walk(fields, first_granted, granted)?;
        record.waiting = walk(fields, first_waiting, waiting)?;
        record.parse_released(&mut Bytes(fields.get(b" released".as_slice())?), buried)?;
        Some(record)
    }

    fn parse_start(bytes: &mut Bytes<'_>) -> Option<(Self, u8)> {
        bytes.take(3)?;
        let record = Self {
            last_seen: bytes.time()?,
            offset: bytes.u64()?,
            last_token: Token(bytes.u64()?),
            last_arrival: Arrival(bytes.u64()?),
            furthest: bytes.time()?,
            ..Self::default()
        };
        Some((record, bytes.u8()?))
    }

    fn parse_released(&mut self, bytes: &mut Bytes<'_>, count: u8) -> Option<()> {
        for _ in 0..count {
            let forget = bytes.time()?;
            self.released.push((bytes.id()?, forget));
        }
        Some(())
    }

    /// `Queue::look`: the key as people may look at it.
    pub(super) fn look(self, clock: StoreTime) -> Snapshot {
        let offset = self.offset + self.last_seen.0.saturating_sub(clock.0);
        let now = StoreTime(clock.0 + offset);
        let alive = |entry: &Entry| entry.deadline > now;
        let holders: Vec<_> = self
            .granted
            .into_iter()
            .filter(alive)
            .map(|entry| Holder {
                token: entry.token,
                claim: entry.view(),
            })
            .collect();
        let waiters: Vec<_> = self
            .waiting
            .into_iter()
            .filter(alive)
            .zip(1..)
            .map(|(entry, position)| WaiterView {
                claim: entry.view(),
                position,
            })
            .collect();
        let empty = holders.is_empty() && waiters.is_empty();
        Snapshot {
            capacity: self.capacity.filter(|_| !empty),
            last_token: self.last_token,
            at: now,
            clock,
            holders,
            waiters,
        }
    }
}

fn check_magic(text: &[u8], kind: &str) -> Result<(), StoreError> {
    match text.strip_prefix(MAGIC).and_then(|rest| rest.first()) {
        Some(&VERSION) => Ok(()),
        Some(&version) => Err(refusal::newer(version)),
        None => Err(refusal::foreign(kind)),
    }
}

/// Follows the links of one list.
fn walk(fields: &HashMap<&[u8], &[u8]>, first: &str, count: u32) -> Option<Vec<Entry>> {
    let mut id = first;
    let mut list = Vec::new();
    for _ in 0..count {
        let mut bytes = Bytes(fields.get(id.as_bytes())?);
        let (next, _prev) = (bytes.text()?, bytes.text()?);
        let arrival = Arrival(bytes.u64()?);
        let token = Token(bytes.u64()?);
        let (deadline, since) = (bytes.time()?, bytes.time()?);
        let (mode, inbox, owner) = parse_body(&mut bytes)?;
        list.push(Entry {
            id: ClaimId::new(id).ok()?,
            arrival,
            token,
            deadline,
            since,
            mode,
            inbox,
            owner,
        });
        id = next;
    }
    Some(list)
}

fn parse_body(bytes: &mut Bytes<'_>) -> Option<(Mode, Option<Inbox>, Owner)> {
    let (kind, of, weight) = (bytes.u8()?, bytes.u32()?, bytes.u32()?);
    let mode = match kind {
        0 => Mode::Exclusive,
        1 => Mode::Shared,
        2 => Mode::Permits { of, take: weight },
        _ => return None,
    };
    let inbox = match bytes.text()? {
        "" => None,
        name => Some(Inbox::new(name).ok()?),
    };
    let pid = bytes.u32()?;
    let (host, label) = (bytes.text()?, bytes.text()?);
    Some((mode, inbox, Owner::new(host, pid, Some(label))))
}

impl Entry {
    fn view(self) -> ClaimView {
        ClaimView {
            arrival: self.arrival,
            mode: self.mode,
            owner: self.owner,
            since: self.since,
            deadline: self.deadline,
            id_hint: self.id.to_string(),
        }
    }
}
