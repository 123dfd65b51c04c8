//! The bytes of entries and bases: a format, a checksum, and JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use leasehold_core::{Command, Inbox, Key, Queue, StoreTime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::FORMAT;
use crate::error::{ErrorKind, StoreError};

/// What stands before the JSON.
pub(super) const HEAD: usize = 12;

/// What was asked of a queue in one entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Steps<'a> {
    /// One behind the other, at the same time.
    #[serde(rename = "do")]
    pub(super) commands: Cow<'a, [Command]>,
    /// The inboxes that are rung.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(super) ring: Cow<'a, [Inbox]>,
    /// Whether the client listens: [`Now::listens`](leasehold_core::Now::listens).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) listens: bool,
}

/// A queue as it was, and when others found last that these clients do not listen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Base<'a> {
    pub(super) queue: Cow<'a, Queue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) silent: Cow<'a, BTreeMap<Inbox, StoreTime>>,
}

/// Why bytes are none of ours.
#[derive(Debug)]
pub(super) enum Flaw {
    Foreign(u32),
    Torn,
}

impl Flaw {
    pub(super) fn of(self, key: &Key) -> StoreError {
        let (kind, what, hint) = match self {
            Self::Foreign(format) => (
                ErrorKind::Unsupported,
                format!("has format {format}"),
                "another version of leasehold wrote it: use that one, or remove it when nobody uses \
                 the key",
            ),
            Self::Torn => (
                ErrorKind::Corrupt,
                "is damaged".to_owned(),
                "it was not changed: look at it, and remove it when nobody uses the key",
            ),
        };
        StoreError::new(kind, format!("the record of {key:?} {what}")).with_hint(hint)
    }
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; HEAD];
    serde_json::to_writer(&mut bytes, value).map_err(|error| {
        let message = "the queue cannot be serialised";
        StoreError::new(ErrorKind::Refused, message).with_source(error)
    })?;
    seal(&mut bytes);
    Ok(bytes)
}

/// Writes the head before the JSON.
pub(super) fn seal(bytes: &mut [u8]) {
    let (head, json) = bytes.split_at_mut(HEAD);
    head[..4].copy_from_slice(&FORMAT.to_le_bytes());
    head[4..].copy_from_slice(&xxh3_64(json).to_le_bytes());
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Flaw> {
    let (format, rest) = bytes.split_first_chunk().ok_or(Flaw::Torn)?;
    let (sum, json) = rest.split_first_chunk().ok_or(Flaw::Torn)?;
    match u32::from_le_bytes(*format) {
        FORMAT => {}
        0 => return Err(Flaw::Torn),
        other => return Err(Flaw::Foreign(other)),
    }
    if u64::from_le_bytes(*sum) != xxh3_64(json) {
        return Err(Flaw::Torn);
    }
    serde_json::from_slice(json).map_err(|_| Flaw::Torn)
}
