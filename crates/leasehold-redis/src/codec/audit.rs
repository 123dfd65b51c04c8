//! The format of the audit log, as `audit.lua` writes it.
//!
//! An entry of the stream has one field, `v1`: the notes of the steps of one call, one after the
//! other. Numbers are doubles. Texts follow their length of one byte or two bytes.
//!
//! ```text
//! kind u8     g granted, r released, x expired, k broken, b returned, a adopted, i new id,
//!             d downgraded, s resized
//! at, token, arrival
//! two numbers g when the claim came, and behind which it stands or 0; r since when it held, and
//!             until when it is kept or 0; x since when, and when it expired; k since when; a the
//!             token before; s the permits before, and now
//! claim       the first six characters of its id; zeroes behind fewer
//! key text2   of the record, with the prefix
//! body text2  as in `record.rs`, up to the label; nothing for s. Of the length 65535: that of the
//!             note before
//! text text2  not of all: x the same characters of the claim that found it, i those of the id
//!             before; k who broke the key, as in a body
//! ```

use std::collections::BTreeMap;

use leasehold_core::{Arrival, AuditEntry, AuditEvent, AuditedHold, Key, StoreTime, Token};
use leasehold_store::fork::Lazy;
use leasehold_store::{AuditLimit, AuditRecord, StoreError};
use redis::{Value, from_redis_value_ref};

use super::bytes::Bytes;
use super::reply::unreadable;
use super::slots::{self, SLOTS};
use crate::errors;

/// The field of an entry of the stream.
pub(crate) const FIELD: &str = "v1";

/// A body of this length is that of the note before.
const AS_BEFORE: u16 = u16::MAX;

/// The logs of a store, and how much of them is kept.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// On one server.
    log: String,
    limit: AuditLimit,
}

impl Audit {
    pub(crate) fn new(prefix: &str, limit: AuditLimit) -> Self {
        Self {
            log: log_of(prefix),
            limit,
        }
    }

    /// The log of a step at that key.
    pub(crate) fn log(&self, key: &str, in_cluster: bool) -> String {
        match in_cluster {
            true => log_beside(&self.log, key),
            false => self.log.clone(),
        }
    }

    /// As the scripts are told it: entries, or below zero milliseconds.
    pub(crate) fn keep(&self) -> i128 {
        match self.limit {
            AuditLimit::Entries(entries) => entries.into(),
            AuditLimit::Age(age) => -i128::try_from(age.as_millis()).unwrap_or(i128::MAX),
        }
    }
}

/// The log of a server.
pub(crate) fn log_of(prefix: &str) -> String {
    format!("{prefix}audit")
}

/// In a cluster: the log of the slot that the key lies in, beside that of a server alone. A script may
/// only use keys of one slot.
pub(crate) fn log_beside(log: &str, key: &str) -> String {
    let tag = TAGS[usize::from(slots::slot_of(key))];
    format!("{log}:{{{tag}}}")
}

/// For each slot the least number that lies in it.
static TAGS: Lazy<Vec<u32>> = Lazy::new(|| {
    let mut tags = BTreeMap::new();
    let mut number = 0;
    while tags.len() < usize::from(SLOTS) {
        let slot = slots::slot_of(&number.to_string());
        tags.entry(slot).or_insert(number);
        number += 1;
    }
    tags.into_values().collect()
});

/// How many entries of a stream one answer has at most.
pub(crate) const PAGE: usize = 500;

/// The id of each entry, and what is noted in it.
pub(crate) type Entries = Vec<(String, Option<Vec<u8>>)>;

/// Reads what the script answers: the id of each entry, and its fields and values by turns.
pub(crate) fn read_entries(log: &str, value: Value) -> Result<Entries, StoreError> {
    type Fields = BTreeMap<Vec<u8>, Vec<u8>>;
    let entries: Vec<(String, Fields)> = match value {
        Value::ServerError(error) if error.code() == "LHTYPE" => {
            let why = format!("the key {log} is not an audit log: another program uses this name");
            let hint = "choose another prefix for one of the two";
            return Err(errors::corrupt(why, hint));
        }
        value => from_redis_value_ref(&value).map_err(|_| unreadable(&value))?,
    };
    let entries = entries.into_iter();
    let noted = entries.map(|(id, mut fields)| (id, fields.remove(FIELD.as_bytes())));
    Ok(noted.collect())
}

/// Reads what one entry of the stream holds. `None` where it is damaged, or of a later version.
pub(crate) fn read(prefix: &str, value: &[u8]) -> Option<Vec<AuditRecord>> {
    let mut bytes = Bytes(value);
    let mut records = Vec::new();
    let mut body = None;
    while !bytes.0.is_empty() {
        records.push(read_note(prefix, &mut bytes, &mut body)?);
    }
    Some(records)
}

/// Reads one note; `last_body` is that of the one before.
fn read_note<'a>(
    prefix: &str,
    bytes: &mut Bytes<'a>,
    last_body: &mut Option<&'a [u8]>,
) -> Option<AuditRecord> {
    let (kind, at) = (bytes.u8()?, bytes.time()?);
    let (token, arrival) = (Token::from(bytes.number()?), Arrival(bytes.number()?));
    let numbers = (bytes.number()?, bytes.number()?);
    let claim = hint(bytes.take(6)?)?;
    let key = std::str::from_utf8(bytes.long()?).ok()?;
    let name = key.strip_prefix(prefix)?.strip_prefix("lock:")?;
    let body = match bytes.u16()? {
        AS_BEFORE => (*last_body)?,
        size => bytes.take(size.into())?,
    };
    *last_body = Some(body);
    let text = match kind {
        b'x' | b'i' | b'k' => bytes.long()?,
        _ => &[],
    };
    let mut hold = None;
    if !body.is_empty() {
        let (_traits, mode, _inbox, owner) = Bytes(body).body()?;
        hold = Some(AuditedHold::new(token, arrival, claim, mode, owner));
    }
    let event = read_event(kind, numbers, text)?;
    let entry = AuditEntry::new(at, event, hold);
    Some(AuditRecord::new(Key::new(name).ok()?, entry))
}

fn read_event(kind: u8, (one, other): (u64, u64), text: &[u8]) -> Option<AuditEvent> {
    let (since, some_time) = (StoreTime(one), (other > 0).then_some(StoreTime(other)));
    Some(match kind {
        b'g' => AuditEvent::Granted {
            asked: since,
            behind: (other > 0).then_some(Arrival(other)),
        },
        b'r' => AuditEvent::Released {
            since,
            kept_until: some_time,
        },
        b'x' => AuditEvent::Expired {
            since,
            deadline: StoreTime(other),
            found_by: hint(text)?,
        },
        b'k' => AuditEvent::Broken {
            since,
            by: Bytes(text).client()?.1,
        },
        b'b' => AuditEvent::Returned,
        b'a' => AuditEvent::Adopted {
            former: Token::from(one),
        },
        b'i' => AuditEvent::Rotated {
            former: hint(text)?,
        },
        b'd' => AuditEvent::Downgraded,
        b's' => AuditEvent::Resized {
            from: u32::try_from(one).ok()?,
            to: u32::try_from(other).ok()?,
        },
        _ => return None,
    })
}

/// The first characters of an id, as a `ClaimId` is shown; nothing where there is no claim.
fn hint(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let more = if text.is_empty() { "" } else { "…" };
    Some(text.trim_end_matches('\0').to_owned() + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_key_lies_in_its_slot() {
        assert_eq!(TAGS.len(), usize::from(SLOTS));
        for prefix in ["leasehold:", "{app}:"] {
            for key in ["orders/42", "a}b", "a{b}c", "{}", "🔒"] {
                let key = format!("{prefix}lock:{key}");
                let log = log_beside(&log_of(prefix), &key);
                assert_eq!(slots::slot_of(&log), slots::slot_of(&key), "{log}");
            }
        }
    }

    #[test]
    fn what_is_damaged_is_not_read() {
        for bad in [&b"g"[..], &[0; 60], b"later version"] {
            assert_eq!(read("leasehold:", bad), None);
        }
        assert_eq!(read("leasehold:", b""), Some(Vec::new()));
    }
}
