//! All keys of one client: a sharded map from each key to its machine and its watchers, and the
//! index of their deadlines.
//!
//! Different keys share nothing but, by chance, a shard, which is locked only to find a key and to
//! list its next deadline. Lock order: a key, then its shard. No two keys are locked at once.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use leasehold_core::{Key, KeyMachine, Moment};
use tokio::sync::Notify;

use super::claim_slot::ClaimSlot;
use super::timing::TOGETHER;
use crate::error::StoreError;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, lock};

/// More than there are cores in most machines.
const SHARDS: usize = 64;

/// No deadline.
const NEVER: Moment = Moment(u64::MAX);

#[derive(Debug, Default)]
struct Shard {
    keys: HashSet<ByKey>,
    /// By deadline, and by address, since deadlines may come twice.
    timers: BTreeMap<(Moment, usize), Arc<KeySlot>>,
}

/// The machine of one key and its watchers, behind its lock.
#[derive(Debug)]
pub(super) struct KeySlot {
    pub(super) key: Key,
    state: Mutex<KeyState>,
}

/// The slot of a key, to be found by that. A map would have the key a second time.
#[derive(Debug)]
struct ByKey(Arc<KeySlot>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

#[derive(Debug)]
pub(super) struct KeyState {
    pub(super) machine: KeyMachine<Arc<ClaimSlot>>,
    /// Few keys have watchers.
    pub(super) watched: Option<Arc<Watched>>,
    shard: u8,
    /// It is not in its shard any more, and another may be.
    gone: bool,
    /// The deadline by which its shard has it.
    listed: Moment,
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
    fn new(key: Key, shard: usize) -> Self {
        let state = Mutex::new(KeyState {
            machine: KeyMachine::default(),
            watched: None,
            shard: shard as u8,
            gone: false,
            listed: NEVER,
        });
        Self { key, state }
    }

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
            let mut shard = self.shard(at);
            let found = shard.keys.get(key).map(|it| it.0.clone());
            let home = found.unwrap_or_else(|| {
                let new = Arc::new(KeySlot::new(key.clone(), at));
                shard.keys.insert(ByKey(new.clone()));
                new
            });
            drop(shard);
            let mut state = home.lock();
            if !state.gone {
                return begin(&home, &mut state);
            }
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<KeySlot>> {
        let shard = self.shard(self.shard_of(key));
        shard.keys.get(key).map(|it| it.0.clone())
    }

    /// Every key: the one walk by which a reset, a shutdown and a lost connection reach them.
    pub(super) fn all(&self) -> Vec<Arc<KeySlot>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).keys.iter().map(|it| it.0.clone()));
        }
        all
    }

    /// Lists the next deadline of a key. One without claims and watchers is gone.
    pub(super) fn list(&self, home: &Arc<KeySlot>, state: &mut KeyState) -> Option<Moment> {
        let due = state.machine.poll_timeout();
        let gone = state.machine.is_empty() && state.watched.is_none();
        let listed = due.filter(|_| !gone).unwrap_or(NEVER);
        if (listed, gone) == (state.listed, state.gone) {
            return due;
        }
        let address = Arc::as_ptr(home).addr();
        let mut shard = self.shard(state.shard.into());
        if state.listed != NEVER {
            shard.timers.remove(&(state.listed, address));
        }
        if listed != NEVER {
            shard.timers.insert((listed, address), home.clone());
        }
        if gone {
            shard.keys.remove(&home.key);
        }
        (state.listed, state.gone) = (listed, gone);
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
        assert!(bytes.0 <= 136 && bytes.1 <= 160, "{bytes:?}");
    }
}
