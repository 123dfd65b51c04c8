//! A queue as it is written down.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Entry, Place, Queue};
use crate::{Arrival, Capacity, ClaimId, StoreTime, Token};

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
    released: Vec<(ClaimId, StoreTime)>,
}

impl From<Record> for Queue {
    fn from(record: Record) -> Self {
        let granted: BTreeMap<_, _> = record.granted.into_iter().collect();
        let waiting: BTreeMap<_, _> = record
            .waiting
            .into_iter()
            .map(|entry| (entry.arrival, entry))
            .collect();
        let holding = granted
            .iter()
            .map(|(token, e)| (e.id.clone(), Place::Granted(*token)));
        let queued = waiting
            .values()
            .map(|e| (e.id.clone(), Place::Waiting(e.arrival)));
        Self {
            places: holding.chain(queued).collect(),
            used: granted.values().map(|entry| entry.mode.weight()).sum(),
            last_seen: record.last_seen,
            offset: record.offset,
            last_token: record.last_token,
            last_arrival: record.last_arrival,
            capacity: record.capacity,
            earliest: record.earliest,
            furthest: record.furthest,
            granted,
            waiting,
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
            granted: queue.granted.into_iter().collect(),
            waiting: queue.waiting.into_values().collect(),
            released: queue.released.into(),
        }
    }
}
