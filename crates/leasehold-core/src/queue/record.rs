//! A queue as it is written down.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tombstone::Tombstone;
use super::{Entry, Place, Queue};
use crate::{Arrival, Capacity, Inbox, OwnerSecret, StoreTime, Token};

/// A queue as it is written down, without what can be computed.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    last_seen: StoreTime,
    offset: Duration,
    last_token: Token,
    last_arrival: Arrival,
    capacity: Option<Capacity>,
    earliest: StoreTime,
    furthest: StoreTime,
    granted: Vec<(Token, Entry)>,
    waiting: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    watchers: Vec<(Inbox, StoreTime)>,
    released: Vec<Tombstone>,
}

impl From<Record> for Queue {
    fn from(record: Record) -> Self {
        let granted: BTreeMap<_, _> = record
            .granted
            .into_iter()
            .map(|(token, entry)| ((token, entry.arrival), entry))
            .collect();
        let waiting: BTreeMap<_, _> = record
            .waiting
            .into_iter()
            .map(|entry| (entry.arrival, entry))
            .collect();
        let holding = granted
            .iter()
            .map(|((token, arrival), e)| (e.id.clone(), Place::Granted(*token, *arrival)));
        let queued = waiting
            .values()
            .map(|e| (e.id.clone(), Place::Waiting(e.arrival)));
        let mut siblings: HashMap<OwnerSecret, BTreeSet<Arrival>> = HashMap::new();
        for entry in waiting.values() {
            if let Some(secret) = entry.secret {
                siblings.entry(secret).or_default().insert(entry.arrival);
            }
        }
        // Claims with one token weigh once.
        let weights: BTreeMap<_, _> = granted
            .iter()
            .map(|((token, _), entry)| (*token, entry.mode.weight()))
            .collect();
        Self {
            places: holding.chain(queued).collect(),
            used: weights.values().sum(),
            siblings,
            last_seen: record.last_seen,
            offset: record.offset,
            last_token: record.last_token,
            last_arrival: record.last_arrival,
            capacity: record.capacity,
            earliest: record.earliest,
            furthest: record.furthest,
            granted,
            waiting,
            watchers: record.watchers,
            released: record.released.into(),
        }
    }
}

impl From<Queue> for Record {
    fn from(queue: Queue) -> Self {
        Self {
            last_seen: queue.last_seen,
            offset: queue.offset,
            last_token: queue.last_token,
            last_arrival: queue.last_arrival,
            capacity: queue.capacity,
            earliest: queue.earliest,
            furthest: queue.furthest,
            granted: queue
                .granted
                .into_iter()
                .map(|((token, _), entry)| (token, entry))
                .collect(),
            waiting: queue.waiting.into_values().collect(),
            watchers: queue.watchers,
            released: queue.released.into(),
        }
    }
}
