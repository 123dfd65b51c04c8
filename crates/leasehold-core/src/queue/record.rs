//! The record of a queue: what a store keeps of it, and what is read back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::Queue;
pub use super::entry::Entry;
pub use super::tombstone::Tombstone;
pub use super::vote::Votes;
use crate::time::micros;
use crate::{Arrival, Capacity, Inbox, Invalid, Mode, StoreTime, Token};

/// A queue as it is written down, without what can be computed. A store that keeps it in a form
/// of its own reads this, and makes it a [`Queue`], which refuses what no queue writes down.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Record {
    /// The clock when last seen, as it was read.
    pub last_seen: StoreTime,
    /// What steps back of the clock have cost so far.
    pub offset: Duration,
    /// The last token that was granted.
    pub last_token: Token,
    /// The last arrival number that was given.
    pub last_arrival: Arrival,
    /// Set while there are claims.
    pub capacity: Option<Capacity>,
    /// No granted claim expires before this.
    pub earliest: StoreTime,
    /// The furthest deadline ever given.
    pub furthest: StoreTime,
    /// Those with a token, in order of their grants.
    pub granted: Vec<(Token, Entry)>,
    /// The rest, in order of arrival.
    pub waiting: Vec<Entry>,
    /// Who wants to hear of the first holder, and until when.
    #[serde(default)]
    pub watchers: Vec<(Inbox, StoreTime)>,
    /// Released ids, oldest first.
    pub released: Vec<Tombstone>,
    /// At a member of a set.
    #[serde(default)]
    pub votes: Votes,
}

/// No token, arrival or offset comes near it, and none is raised beyond it.
const MOST: u64 = i64::MAX.unsigned_abs();

impl Record {
    /// Refuses what no queue writes down, and could not go on from.
    fn check(&self) -> Result<(), &'static str> {
        let counted = [
            self.last_seen.0,
            self.last_token.0,
            self.votes.void.0,
            self.last_arrival.0,
            micros(self.offset),
        ];
        if counted.into_iter().any(|number| number > MOST) {
            return Err("a number in the queue is out of range");
        }
        let granted = self.granted.iter().map(|(_, entry)| entry);
        let mut all = granted.chain(&self.waiting);
        let ids: BTreeSet<_> = all.clone().map(|entry| &entry.id).collect();
        let mut tokens = self.granted.iter().map(|(token, _)| *token);
        if all.any(|entry| entry.arrival > self.last_arrival)
            || tokens.any(|token| token > self.last_token)
        {
            return Err("a claim has a higher arrival number than the queue");
        }
        let arrivals: BTreeSet<_> = self.waiting.iter().map(|entry| entry.arrival).collect();
        let places: BTreeSet<_> = self.granted.iter().map(|(t, e)| (t, e.arrival)).collect();
        let once = arrivals.len() == self.waiting.len() && places.len() == self.granted.len();
        if !once || ids.len() != self.granted.len() + self.waiting.len() {
            return Err("the queue contains a claim twice");
        }
        let mut holds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (token, entry) in &self.granted {
            holds.entry(token).or_default().push(entry);
        }
        if !holds.values().all(|claims| are_one_hold(claims)) {
            return Err("claims of different owners have the same token");
        }
        if self.capacity.is_none() && !ids.is_empty() {
            return Err("the queue has claims but no capacity");
        }
        Ok(())
    }
}

/// Whether these claims can share a token: those of one owner, and what is kept of such.
fn are_one_hold(claims: &[&Entry]) -> bool {
    let live = || claims.iter().filter(|claim| !claim.kept);
    let owner = live().next().map(|claim| claim.secret);
    claims.len() == 1
        || claims.iter().all(|claim| claim.mode == Mode::EXCLUSIVE)
            && live().all(|claim| claim.secret.is_some() && Some(claim.secret) == owner)
}

impl TryFrom<Record> for Queue {
    type Error = Invalid;

    fn try_from(record: Record) -> Result<Self, Invalid> {
        record.check().map_err(Invalid::plain)?;
        let mut queue = Self::default();
        for (token, entry) in record.granted {
            // Claims with one token weigh once.
            if !queue.is_held(token) {
                queue.used += entry.mode.weight();
            }
            queue.hold(entry, token);
        }
        for entry in record.waiting {
            queue.enqueue(entry);
        }
        Ok(Self {
            last_seen: record.last_seen,
            offset: record.offset,
            last_token: record.last_token,
            last_arrival: record.last_arrival,
            capacity: record.capacity,
            earliest: record.earliest,
            furthest: record.furthest,
            watchers: record.watchers,
            released: record.released.into(),
            votes: record.votes,
            ..queue
        })
    }
}

/// As a [`Record`], without a copy of the queue: it may be long, and is written at each step.
impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let granted = self.granted.iter();
        let granted: Vec<_> = granted.map(|((token, _), it)| (token, it)).collect();
        let waiting: Vec<_> = self.waiting.values().collect();
        let (watched, voted) = (!self.watchers.is_empty(), !self.votes.is_empty());
        let fields = 10 + usize::from(watched) + usize::from(voted);
        let mut record = serializer.serialize_struct("Record", fields)?;
        record.serialize_field("last_seen", &self.last_seen)?;
        record.serialize_field("offset", &self.offset)?;
        record.serialize_field("last_token", &self.last_token)?;
        record.serialize_field("last_arrival", &self.last_arrival)?;
        record.serialize_field("capacity", &self.capacity)?;
        record.serialize_field("earliest", &self.earliest)?;
        record.serialize_field("furthest", &self.furthest)?;
        record.serialize_field("granted", &granted)?;
        record.serialize_field("waiting", &waiting)?;
        if watched {
            record.serialize_field("watchers", &self.watchers)?;
        }
        record.serialize_field("released", &self.released)?;
        if voted {
            record.serialize_field("votes", &self.votes)?;
        }
        record.end()
    }
}
