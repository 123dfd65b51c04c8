//! The record of one key as it lies in Redis.
//!
//! Numbers are doubles, little-endian, always whole and below 2^53; u8, u16 and
//! u32 are little-endian integers; `text` is one byte of length and so many
//! bytes; times are microseconds since 1970. Both forms begin with `lh`, the
//! version 1 (u8, at most 31), then the numbers `last_seen`, `offset`, `last_token`,
//! `last_arrival`, `furthest` and `expires` (until when the key itself lives at
//! least), and `buried` u8: how many released ids there are.
//!
//! **The string**, while nobody waits and at most one holds, goes on with:
//! - the size of the claim u16, 0 if there is none
//! - the claim: `deadline`, `since`, `id` text, body; its token and its arrival
//!   are the last
//! - the released ids: `forget`, `id` text each
//!
//! **The hash**, from the second claim on until it is empty:
//! - field `" head"` goes on with the numbers `capacity` (−1 for a lock, else the
//!   permits), `used`, `earliest`, the numbers of claims `granted` and `waiting`;
//!   of the first waiting claim `arrival`, `deadline` and `weight`; the ids of
//!   the first and last granted and the first and last waiting claim, text each
//! - field `" released"`: the released ids, as above
//! - one field a claim, by its id (which has no spaces): the ids `next` text and
//!   `prev` text, then `arrival`, `token` (0 while it waits), `deadline`, `since`,
//!   body. Granted claims are linked in order of tokens, waiting ones in order
//!   of arrival; a link beyond the end of a list means nothing.
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

/// Up to here a double counts one by one.
const MAX_NUMBER: f64 = 9_007_199_254_740_992.0;

/// A record, read in full.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) last_seen: StoreTime,
    pub(super) offset: u64,
    pub(super) last_token: Token,
    pub(super) last_arrival: Arrival,
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "the tests compare whole records")
    )]
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
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "the tests compare whole records")
    )]
    pub(super) inbox: Option<Inbox>,
    pub(super) owner: Owner,
}

/// A reader over bytes: `None` where they end too early.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let number = self.double()?;
        let whole = number.fract() == 0.0 && (0.0..=MAX_NUMBER).contains(&number);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "just looked at"
        )]
        whole.then_some(number as u64)
    }

    pub(super) fn time(&mut self) -> Option<StoreTime> {
        self.number().map(StoreTime)
    }

    pub(super) fn capacity(&mut self) -> Option<Capacity> {
        let ahead = self.0;
        if self.double()? < 0.0 {
            return Some(Capacity::Lock);
        }
        self.0 = ahead;
        Some(Capacity::Permits(u32::try_from(self.number()?).ok()?))
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
        record.capacity = Some(head.capacity()?);
        let _used = head.number()?;
        record.earliest = head.time()?;
        let (granted, waiting) = (head.number()?, head.number()?);
        let _first_waiting = head.take(3 * 8)?;
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
            offset: bytes.number()?,
            last_token: Token(bytes.number()?),
            last_arrival: Arrival(bytes.number()?),
            furthest: bytes.time()?,
            ..Self::default()
        };
        let _expires = bytes.time()?;
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
        Some(&version) if version < 32 => Err(refusal::newer(version)),
        _ => Err(refusal::foreign(kind)),
    }
}

/// Follows the links of one list.
fn walk(fields: &HashMap<&[u8], &[u8]>, first: &str, count: u64) -> Option<Vec<Entry>> {
    let mut id = first;
    let mut list = Vec::new();
    for _ in 0..count {
        let mut bytes = Bytes(fields.get(id.as_bytes())?);
        let (next, _prev) = (bytes.text()?, bytes.text()?);
        let arrival = Arrival(bytes.number()?);
        let token = Token(bytes.number()?);
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
            note: None,
            kept: false,
        }
    }
}
