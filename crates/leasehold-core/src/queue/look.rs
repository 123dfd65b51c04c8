//! A snapshot of a queue for display.

use super::{Entry, Queue};
use crate::{ClaimView, Holder, Mode, Snapshot, StoreTime, WaiterView};

impl Queue {
    /// The key as people may look at it; changes nothing.
    #[must_use]
    pub fn look(&self, clock: StoreTime) -> Snapshot {
        let now = self.now(clock);
        let alive = |entry: &&Entry| entry.deadline > now;
        let live = self.granted.iter().filter(|(_, entry)| alive(entry));
        let first = live.clone().next().map(|((token, _), _)| *token);
        let (followers, holding): (Vec<_>, Vec<_>) = live.partition(|((token, _), entry)| {
            entry.mode == Mode::EXCLUSIVE && Some(*token) != first
        });
        let holders: Vec<_> = holding
            .into_iter()
            .map(|((token, _), entry)| Holder {
                claim: entry.view(),
                token: *token,
            })
            .collect();
        let followers = followers.into_iter().map(|(_, entry)| entry);
        let waiting = followers.chain(self.waiting.values().filter(alive));
        let waiter = |(claim, position)| WaiterView { claim, position };
        let waiters: Vec<_> = waiting.map(Entry::view).zip(1..).map(waiter).collect();
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
