//! The copies that a client keeps, and what its tasks ask of each key.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Command, Inbox, Key, Outcome, Snapshot};
use tokio::sync::{Mutex as Turn, oneshot};

use super::copy::Copy;
use crate::error::StoreError;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// How many keys are known at most, beside those in use, and how many bytes of their journals.
const MOST_KEYS: usize = 1024;
const MOST_BYTES: u64 = 64 << 20;

/// One key. What the tasks of this client ask at the same time is taken together.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    /// Locked during a round trip.
    pub(super) turn: Turn<Copy>,
    pub(super) asked: Mutex<Vec<Asked>>,
    /// Whether a base is being written.
    writes_base: AtomicBool,
    /// When it was last used, and how large it is.
    used: AtomicU64,
    pub(super) size: AtomicU64,
}

/// A turn that is about to be taken. If the runtime of its task ends before that, what was asked ends
/// too, and who asks next begins a turn on its own runtime.
#[derive(Debug)]
pub(super) struct Pending {
    slot: Arc<Slot>,
    is_taken: bool,
}

impl Pending {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        let is_taken = false;
        Self { slot, is_taken }
    }

    /// What has been asked until now. Who asks from here on begins another turn.
    pub(super) fn take(mut self) -> Vec<Asked> {
        self.is_taken = true;
        std::mem::take(&mut *lock(&self.slot.asked))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_taken {
            lock(&self.slot.asked).clear();
        }
    }
}

/// A base that is being written, until this is dropped.
#[derive(Debug)]
pub(super) struct Writing(pub(super) Arc<Slot>);

impl Writing {
    /// None if one is being written already.
    pub(super) fn begin(slot: &Arc<Slot>) -> Option<Self> {
        let writes = slot.writes_base.swap(true, Ordering::AcqRel);
        (!writes).then(|| Self(slot.clone()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writes_base.store(false, Ordering::Release);
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
}

impl Keys {
    pub(super) fn get(&self, key: &Key) -> Arc<Slot> {
        let mut known = lock(&self.0);
        known.uses += 1;
        let uses = known.uses;
        if let Some(slot) = known.slots.get(key) {
            slot.used.store(uses, Ordering::Relaxed);
            return slot.clone();
        }
        known.make_room();
        let slot = Arc::new(Slot {
            key: key.clone(),
            turn: Turn::default(),
            asked: Mutex::default(),
            writes_base: AtomicBool::new(false),
            used: AtomicU64::new(uses),
            size: AtomicU64::new(0),
        });
        known.slots.insert(key.clone(), slot.clone());
        slot
    }

    /// The keys that concern this client, or may: what is in a round trip is not known.
    pub(super) fn of_concern(&self, inbox: &Inbox) -> Vec<Key> {
        let known = lock(&self.0);
        let concerns = |slot: &&Arc<Slot>| {
            let copy = slot.turn.try_lock();
            copy.map_or(true, |copy| copy.queue.concerns(inbox))
        };
        let slots = known.slots.values().filter(concerns);
        slots.map(|slot| slot.key.clone()).collect()
    }
}

impl Known {
    /// Forgets those that were not used for the longest time.
    fn make_room(&mut self) {
        let size = |slot: &Arc<Slot>| slot.size.load(Ordering::Relaxed);
        let mut bytes: u64 = self.slots.values().map(size).sum();
        while self.slots.len() >= MOST_KEYS || bytes > MOST_BYTES {
            let idle = self
                .slots
                .values()
                .filter(|slot| Arc::strong_count(slot) == 1);
            let oldest = idle.min_by_key(|slot| slot.used.load(Ordering::Relaxed));
            let Some((key, freed)) = oldest.map(|slot| (slot.key.clone(), size(slot))) else {
                return;
            };
            self.slots.remove(&key);
            bytes -= freed;
        }
    }
}
