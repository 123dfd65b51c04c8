//! The copies that a client keeps, and what its tasks ask of each key.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Command, Inbox, Key, Outcome, Snapshot};
use tokio::sync::{Mutex as Turn, oneshot};

use super::copy::Copy;
use crate::error::StoreError;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

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
    /// When it was last used, and how large it is.
    used: AtomicU64,
    pub(super) size: AtomicU64,
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
    slots: HashMap<Key, Arc<Slot>>,
    uses: u64,
    /// How many there are when room is made next.
    looks_at: usize,
}

impl Keys {
    pub(super) fn get(&self, key: &Key, inbox: &Inbox) -> Arc<Slot> {
        let mut known = lock(&self.0);
        known.uses += 1;
        let uses = known.uses;
        if let Some(slot) = known.slots.get(key) {
            slot.used.store(uses, Ordering::Relaxed);
            return slot.clone();
        }
        known.make_room(inbox);
        let slot = Arc::new(Slot {
            key: key.clone(),
            turn: Turn::default(),
            asked: Mutex::default(),
            used: AtomicU64::new(uses),
            size: AtomicU64::new(0),
        });
        known.slots.insert(key.clone(), slot.clone());
        slot
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).slots.len()
    }

    /// The keys that concern this client, or may.
    pub(super) fn of_concern(&self, inbox: &Inbox) -> Vec<Key> {
        let known = lock(&self.0);
        let slots = known.slots.values();
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
        let size = |slot: &Arc<Slot>| slot.size.load(Ordering::Relaxed);
        let mut bytes: u64 = self.slots.values().map(size).sum();
        let is_idle = |slot: &&Arc<Slot>| Arc::strong_count(slot) == 1 && !slot.may_concern(inbox);
        let idle = self.slots.values().filter(is_idle);
        let mut idle: Vec<_> = idle
            .map(|slot| (slot.used.load(Ordering::Relaxed), slot.key.clone()))
            .collect();
        idle.sort_unstable_by(|one, other| other.cmp(one));
        while self.slots.len() >= MOST_KEYS || bytes > MOST_BYTES {
            let oldest = idle.pop().and_then(|(_, key)| self.slots.remove(&key));
            let Some(oldest) = oldest else { break };
            // A step that ended meanwhile may have made it larger than it was when all were summed up.
            bytes = bytes.saturating_sub(size(&oldest));
        }
        self.looks_at = self.slots.len() + LOOKS_AFTER.max(self.slots.len() / 4);
    }
}
