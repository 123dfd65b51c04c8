//! A queue as people may look at it.

use super::{Entry, Queue};
use crate::{ClaimView, Holder, Snapshot, StoreTime, WaiterView};

impl Queue {
    /// The key as people may look at it; changes nothing.
    #[must_use]
    pub fn look(&self, clock: StoreTime) -> Snapshot {
        let now = self.now(clock).0;
        let alive = |entry: &&Entry| entry.deadline > now;
        let holders: Vec<_> = self
            .granted
            .iter()
            .filter(|(_, entry)| entry.deadline > now)
            .map(|((token, _), entry)| Holder {
                claim: entry.view(),
                token: *token,
            })
            .collect();
        let waiters: Vec<_> = self
            .waiting
            .values()
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

impl Entry {
    fn view(&self) -> ClaimView {
        ClaimView {
            arrival: self.arrival,
            mode: self.mode,
            owner: self.owner.clone(),
            since: self.since,
            deadline: self.deadline,
            id_hint: self.id.to_string(),
            note: self.note.clone(),
            kept: self.kept,
            renewed: self.renewed,
        }
    }
}
