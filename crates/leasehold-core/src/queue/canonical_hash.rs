//! A hash of a queue, for models that must not explore the same state twice.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use super::{Entry, Queue, UNHEARD_CUT};
use crate::StoreTime;

impl Queue {
    /// Hashes what decides how this queue goes on from `clock`: two queues alike in it do
    /// and answer the same, counted from now. Beside the numbers, that is: of tokens and
    /// arrivals only the order and the distance from the clock decide, and a position
    /// stays the upper bound that it is.
    ///
    /// It takes for granted that the clock does not step back again, and that released
    /// ids are remembered for as long as anybody looks.
    pub fn canonical_hash<H: Hasher>(&self, clock: StoreTime, state: &mut H) {
        let now = self.now(clock);
        self.capacity.hash(state);
        let ahead = |number: u64| number.saturating_sub(clock.0);
        ahead(self.last_token.0).hash(state);
        if self.is_empty() {
            ahead(self.last_arrival.0).hash(state);
        } else {
            self.earliest.since(now).hash(state);
        }
        let mut before = None;
        for ((token, _), entry) in &self.granted {
            (before == Some(token)).hash(state);
            before = Some(token);
            Self::hash_entry(entry, now, state);
        }
        self.granted.len().hash(state);
        for entry in self.waiting.values() {
            Self::hash_entry(entry, now, state);
            // Whether it is passed over if its client does not hear.
            now.since(entry.since).min(UNHEARD_CUT).hash(state);
        }
        for (watcher, until) in &self.watchers {
            (watcher, until.since(now)).hash(state);
        }
        let buried = self.released.iter().filter(|buried| buried.forget > now);
        let buried: BTreeSet<_> = buried.map(|buried| (&buried.id, buried.rotated)).collect();
        buried.hash(state);
        ahead(self.votes.void.0).hash(state);
        for (caller, until) in &self.votes.callers {
            (caller, until.since(now)).hash(state);
        }
    }

    /// The same of a member of a set: its tokens are compared with those of other members.
    pub fn hash_votes<H: Hasher>(&self, state: &mut H) {
        (self.last_token, self.votes.void).hash(state);
        for ((token, _), entry) in &self.granted {
            (token, &entry.id, entry.deadline).hash(state);
        }
    }

    fn hash_entry<H: Hasher>(entry: &Entry, now: StoreTime, state: &mut H) {
        let lives = entry.deadline.since(now);
        let kept = entry.keep_until().since(now);
        (&entry.id, lives, kept, entry.kept).hash(state);
        (entry.runs, entry.listens).hash(state);
        (entry.mode, &entry.inbox, &entry.owner, entry.secret).hash(state);
        // A claim that waits is kept from its grant on.
        (entry.min_hold, &entry.note, entry.version, &entry.previous).hash(state);
    }
}
