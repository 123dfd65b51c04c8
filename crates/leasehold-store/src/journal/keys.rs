//! The copies that a client keeps, and what its tasks ask of each key.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Command, Inbox, Key, Outcome, Snapshot};
use tokio::sync::{Mutex as Turn, oneshot};

use super::copy::Copy;
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// How many keys are known for long, and how many bytes of their journals, beside those that concern the
/// client.
const MOST_KEYS: usize = 1024;
const MOST_BYTES: u64 = 64 << 20;

/// After how many more keys room is made at the earliest.
const LOOKS_AFTER: usize = 64;

/// One key. What the tasks of this client ask at the same time is taken together.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    /// Locked during a round trip.
    pub(super) turn: Turn<Copy>,
    pub(super) asked: Mutex<Vec<Asked>>,
}

impl Slot {
    /// Whether the client holds, waits or watches there; what is in a round trip is not known.
    fn may_concern(&self, inbox: &Inbox) -> bool {
        let copy = self.turn.try_lock();
        copy.map_or(true, |copy| copy.queue.concerns(inbox))
    }
}

/// A turn that is about to be taken. If the runtime of its task ends before that, what was asked ends
/// too, and who asks next begins a turn on its own runtime.
#[derive(Debug)]
pub(super) struct Pending(pub(super) Option<Arc<Slot>>);

impl Pending {
    /// What has been asked until now. Who asks from here on begins another turn.
    pub(super) fn take(&mut self) -> Vec<Asked> {
        let slot = self.0.take();
        slot.map_or_else(Vec::new, |slot| std::mem::take(&mut *lock(&slot.asked)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.take();
    }
}

/// What is asked of a key.
#[derive(Debug)]
pub(super) enum Asked {
    Step(Box<Command>, Answer<Outcome>),
    Look(Answer<Snapshot>),
    /// To read what the client was rung for.
    Ring,
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// The keys that a client knows.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Each with the number of its last use.
    slots: HashMap<Key, (u64, Arc<Slot>)>,
    uses: u64,
    /// How many there are when room is made next.
    looks_at: usize,
}

impl Keys {
    pub(super) fn get(&self, key: &Key, inbox: &Inbox) -> Arc<Slot> {
        let mut known = lock(&self.0);
        known.uses += 1;
        let uses = known.uses;
        if let Some((used, slot)) = known.slots.get_mut(key) {
            *used = uses;
            return slot.clone();
        }
        known.make_room(inbox);
        let slot = Arc::new(Slot {
            key: key.clone(),
            turn: Turn::default(),
            asked: Mutex::default(),
        });
        known.slots.insert(key.clone(), (uses, slot.clone()));
        slot
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).slots.len()
    }

    /// The keys that concern this client, or may.
    pub(super) fn of_concern(&self, inbox: &Inbox) -> Vec<Key> {
        let known = lock(&self.0);
        let slots = known.slots.values().map(|(_, slot)| slot);
        let slots = slots.filter(|slot| slot.may_concern(inbox));
        slots.map(|slot| slot.key.clone()).collect()
    }
}

impl Known {
    /// Forgets those that were not used for the longest time. It looks at all of them, so it does that
    /// the more rarely the more there are.
    fn make_room(&mut self, inbox: &Inbox) {
        if self.slots.len() < self.looks_at {
            return;
        }
        let (mut bytes, mut idle) = (0, Vec::new());
        for (used, slot) in self.slots.values() {
            // What is in a round trip is in use.
            let Ok(copy) = slot.turn.try_lock() else {
                continue;
            };
            bytes += copy.size();
            if Arc::strong_count(slot) == 1 && !copy.queue.concerns(inbox) {
                idle.push((*used, copy.size(), slot.key.clone()));
            }
        }
        idle.sort_unstable_by_key(|(used, ..)| Reverse(*used));
        while (self.slots.len() >= MOST_KEYS || bytes > MOST_BYTES)
            && let Some((_, size, key)) = idle.pop()
        {
            self.slots.remove(&key);
            bytes -= size;
        }
        self.looks_at = self.slots.len() + LOOKS_AFTER.max(self.slots.len() / 4);
    }
}
