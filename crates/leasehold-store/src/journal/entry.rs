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

/// The error for a record that is cut or changed.
#[must_use]
pub fn damaged(key: &Key) -> StoreError {
    let message = format!("the record of {key:?} is damaged");
    StoreError::new(ErrorKind::Corrupt, message)
        .with_hint("nothing was overwritten: look at it, and remove it when nobody uses the key")
}

/// The error for a record in another format.
#[must_use]
pub fn other_format(key: &Key, format: u32) -> StoreError {
    let message = format!("the record of {key:?} has format {format}");
    StoreError::new(ErrorKind::Unsupported, message).with_hint(
        "another version of leasehold wrote it: use that one, or remove it when nobody uses the \
         key",
    )
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

pub(super) fn decode<T: DeserializeOwned>(key: &Key, bytes: &[u8]) -> Result<T, StoreError> {
    let torn = || damaged(key);
    let (format, rest) = bytes.split_first_chunk().ok_or_else(torn)?;
    let (sum, json) = rest.split_first_chunk().ok_or_else(torn)?;
    match u32::from_le_bytes(*format) {
        FORMAT if u64::from_le_bytes(*sum) == xxh3_64(json) => {
            serde_json::from_slice(json).map_err(|_| torn())
        }
        FORMAT | 0 => Err(torn()),
        other => Err(other_format(key, other)),
    }
}
