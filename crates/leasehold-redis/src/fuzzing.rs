//! Access to the parsers of server answers, for `leasehold-fuzz`.

use std::time::Duration;

use leasehold_core::{Inbox, Reply, Snapshot, StoreTime};
use leasehold_store::{Acknowledged, Push, StoreError};
use redis::Value;

pub use super::classic::fuzzing::*;
pub use super::doctor::fuzzing::*;
use crate::codec::{push, record, script};
use crate::connection::{gate, rights, sentinel, value};
use crate::options::acknowledge::{Acknowledge, AcknowledgedBy};
pub use crate::routing::cluster::fuzzing::*;
use crate::routing::names;

/// What a verb answered.
///
/// # Errors
/// If it is something else.
pub fn reply(value: &Value) -> Result<(Reply, StoreTime), StoreError> {
    script::read_reply(value)
}

/// Decodes the answer about `keys` keys: how many were granted, or the first that was not.
///
/// # Errors
/// If it is something else.
pub fn replies(value: &Value, keys: usize) -> Result<Result<usize, usize>, StoreError> {
    let replies = script::read_replies(value, keys)?;
    Ok(replies.map(|all| all.len()).map_err(|(part, _)| part))
}

/// What is left of a quarantine.
///
/// # Errors
/// If it is something else.
pub fn quarantine(value: &Value) -> Result<Duration, StoreError> {
    gate::read_left(value).map(|(left, _)| left)
}

/// What scripts may not do, as they answered.
///
/// # Errors
/// If they may not do all that they must.
pub fn allowed(answer: &Value) -> Result<(), StoreError> {
    rights::allowed(answer, "leasehold:")
}

/// Whether `INFO` in several answers can be read.
///
/// # Errors
/// If it is something else.
pub fn info(sections: &[Value]) -> Result<usize, StoreError> {
    Ok(rights::read_info(sections)?.len())
}

/// A record, as people see it; and how many claims, watchers and released ids it has.
#[derive(Debug)]
pub struct Look {
    /// As people see it.
    pub snapshot: Snapshot,
    /// The secrets in it.
    pub ids: Vec<String>,
    /// Those who watch.
    pub watchers: Vec<Inbox>,
}

/// A look at a key.
///
/// # Errors
/// If it is something else, or damaged.
pub fn look(value: Value) -> Result<Look, StoreError> {
    let (record, _) = record::read(value.clone())?;
    let granted = record.granted.iter().map(|(_, entry)| entry);
    let entries = granted.chain(&record.waiting);
    let released = record.released.iter().map(|tombstone| &tombstone.id);
    Ok(Look {
        ids: entries
            .map(|entry| &entry.id)
            .chain(released)
            .map(|id| id.expose().to_owned())
            .collect(),
        watchers: record
            .watchers
            .iter()
            .map(|(inbox, _)| inbox.clone())
            .collect(),
        snapshot: record::look(value)?,
    })
}

/// One answer of `SCAN`: where to go on, and the names found.
///
/// # Errors
/// If it is something else.
pub fn page(answer: &Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), StoreError> {
    names::read_page(answer)
}

/// A text with the special meaning taken from what a glob treats specially.
pub fn escape(text: &str) -> String {
    names::escape(text)
}

/// What was pushed to an inbox.
pub fn pushes(message: &[u8]) -> Vec<Push> {
    push::read(message, 1).collect()
}

/// What a `WAIT` for one replica answered, or a `WAITAOF` for one and the disk.
///
/// # Errors
/// If it is something else.
pub fn acknowledged(disk: bool, answer: &Value) -> Result<Acknowledged, StoreError> {
    let by = if disk {
        AcknowledgedBy::Disk { replicas: 1 }
    } else {
        AcknowledgedBy::Replicas(1)
    };
    Acknowledge::by(by).policy(0).read(answer)
}

/// Where a Sentinel says that the primary is.
pub fn primary(answer: &Value) -> Option<(String, u16)> {
    sentinel::read_address(answer).map(|node| (node.host, node.port))
}

/// One field of what a Sentinel says about it.
pub fn field(answer: &Value, name: &str) -> Option<String> {
    value::field(answer, name)
}
