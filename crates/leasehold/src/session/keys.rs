//! All keys of one client: a sharded map from each key to its machine and its watchers, and the
//! index of their deadlines.
//!
//! Different keys share nothing but, by chance, a shard, which is locked only to find a key and to
//! list its next deadline. Lock order: a key, then its shard. No two keys are locked at once.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use leasehold_core::{Key, KeyMachine, Moment};
use tokio::sync::Notify;

use super::claim_slot::ClaimSlot;
use super::timing::TOGETHER;
use crate::error::StoreError;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, lock};

/// More than there are cores in most machines.
const SHARDS: usize = 64;

#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<Key, Arc<KeySlot>>,
    /// By deadline, and by address, since deadlines may come twice.
    timers: BTreeMap<(Moment, usize), Arc<KeySlot>>,
}

/// The machine of one key and its watchers, behind its lock.
#[derive(Debug)]
pub(super) struct KeySlot {
    pub(super) key: Key,
    shard: usize,
    state: Mutex<KeyState>,
}

#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) machine: KeyMachine<Arc<ClaimSlot>>,
    /// Few keys have watchers.
    pub(super) watched: Option<Arc<Watched>>,
    listed: Listed,
}

/// What its shard knows of a key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// It has no deadline.
    #[default]
    Idle,
    /// Its next deadline.
    Due(Moment),
    /// It is not in its shard any more, and another may be.
    Gone,
}

/// What those share who watch a key or poll for it, with a claim or without one.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// How many they are. It changes under the lock of the key.
    pub(super) watchers: AtomicUsize,
    /// Whether the store may know that this client watches. It must be told when nobody does so
    /// any more.
    pub(super) known: AtomicBool,
    /// The key may have changed.
    pub(super) changed: Notify,
    /// The one who holds it polls.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// What the last poll has found: when somebody had the key, or why the store could not be asked.
    pub(super) polled: Mutex<Option<Result<Moment, StoreError>>>,
}

impl KeySlot {
    /// Tells the watchers that the key may have changed.
    pub(super) fn wake_watchers(&self) {
        if let Some(watched) = &self.lock().watched {
            watched.changed.notify_waiters();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, KeyState> {
        lock(&self.state)
    }
}

#[derive(Debug)]
pub(super) struct Keys {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// How many claims were made.
    pub(super) numbers: AtomicU64,
    /// How many claims wait, and how many watch a key: they want the inbox open.
    pub(super) listeners: AtomicUsize,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            numbers: AtomicU64::new(0),
            listeners: AtomicUsize::new(0),
        }
    }
}

impl Keys {
    fn shard_of(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        lock(&self.shards[number])
    }

    /// Runs `begin` on the slot of a key, which is made if there is none.
    pub(super) fn begin<T>(
        &self,
        key: &Key,
        begin: impl FnOnce(&Arc<KeySlot>, &mut KeyState) -> T,
    ) -> T {
        let at = self.shard_of(key);
        loop {
            let new = || {
                Arc::new(KeySlot {
                    key: key.clone(),
                    shard: at,
                    state: Mutex::default(),
                })
            };
            let mut shard = self.shard(at);
            let home = shard.keys.entry(key.clone()).or_insert_with(new).clone();
            drop(shard);
            let mut state = home.lock();
            if state.listed != Listed::Gone {
                return begin(&home, &mut state);
            }
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<KeySlot>> {
        let shard = self.shard(self.shard_of(key));
        shard.keys.get(key).cloned()
    }

    /// Every key: the one walk by which a reset, a shutdown and a lost connection reach them.
    pub(super) fn all(&self) -> Vec<Arc<KeySlot>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).keys.values().cloned());
        }
        all
    }

    /// Lists the next deadline of a key. One without claims and watchers is gone.
    pub(super) fn list(&self, home: &Arc<KeySlot>, state: &mut KeyState) -> Option<Moment> {
        let due = state.machine.poll_timeout();
        let unused = state.machine.is_empty() && state.watched.is_none();
        let listed = match due {
            _ if unused => Listed::Gone,
            Some(due) => Listed::Due(due),
            None => Listed::Idle,
        };
        if listed == state.listed {
            return due;
        }
        let address = Arc::as_ptr(home).addr();
        let mut shard = self.shard(home.shard);
        if let Listed::Due(was) = state.listed {
            shard.timers.remove(&(was, address));
        }
        match listed {
            Listed::Due(due) => drop(shard.timers.insert((due, address), home.clone())),
            Listed::Gone => drop(shard.keys.remove(&home.key)),
            Listed::Idle => {}
        }
        state.listed = listed;
        due
    }

    /// When something is next due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let first = |at| self.shard(at).timers.keys().next().map(|(due, _)| *due);
        (0..SHARDS).filter_map(first).min()
    }

    /// The keys that are due now, about [`TOGETHER`] at most.
    pub(super) fn due(&self, now: Moment, due: &mut Vec<Arc<KeySlot>>) {
        for at in 0..SHARDS {
            let shard = self.shard(at);
            let keys = shard.timers.range(..=(now, usize::MAX));
            let room = TOGETHER.saturating_sub(due.len());
            due.extend(keys.map(|(_, home)| home.clone()).take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may hold them by the hundred thousand, each on a key of its own. What the core
    /// keeps of each is beside this.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_key_and_its_claim_are_small() {
        let bytes = (size_of::<KeySlot>(), size_of::<ClaimSlot>());
        assert!(bytes.0 + bytes.1 <= 320, "{bytes:?}");
    }
}
