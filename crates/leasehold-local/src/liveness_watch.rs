//! What a client does while its claims wait: from time to time it removes the dead who are ahead
//! of them, and looks whether it has missed a push.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Arrival, Key, Standing};
use leasehold_store::Push;
use leasehold_store::sync::{Mutex, lock};
use tokio::sync::Notify;

use super::acquire_record::blocking;
use super::{Inner, LOOK_PAUSE, inbox, step};

/// Even the last in line looks in every such round: the line may move up fast
/// without its knowing, and a holder's death is to be seen within a second.
const RAREST: u64 = 3;

/// The keys for which claims of this client wait: the claims, with their positions when it last
/// looked or asked.
#[derive(Debug, Default)]
pub(super) struct LivenessWatch {
    waiting: Mutex<BTreeMap<Key, BTreeMap<Arrival, u64>>>,
    wanted: Notify,
}

impl LivenessWatch {
    /// Remembers a claim that waits.
    pub(super) fn note(&self, key: &Key, standing: &Standing) {
        let mut waiting = lock(&self.waiting);
        let ours = waiting.entry(key.clone()).or_default();
        ours.insert(standing.arrival, standing.position);
        self.wanted.notify_one();
    }

    /// The keys that are looked at in that round: the further back the first
    /// claim of this client, the rarer.
    fn due(&self, round: u64) -> Vec<Key> {
        let waiting = lock(&self.waiting);
        let due = waiting.iter().filter(|(_, ours)| {
            let first = ours.values().min().copied().unwrap_or_default();
            round.is_multiple_of(first.clamp(1, RAREST))
        });
        due.map(|(key, _)| key.clone()).collect()
    }

    /// Keeps those who wait as they stand now in that order, and answers the others.
    fn settle(&self, key: &Key, line: &[Arrival]) -> BTreeSet<Arrival> {
        let mut waiting = lock(&self.waiting);
        let mut known = waiting.remove(key).unwrap_or_default();
        let ours = line.iter().copied().zip(1..);
        let ours = ours.filter(|(one, _)| known.remove(one).is_some());
        let ours: BTreeMap<_, _> = ours.collect();
        if !ours.is_empty() {
            waiting.insert(key.clone(), ours);
        }
        known.into_keys().collect()
    }
}

/// Looks from time to time; sleeps while no claim waits. Does not keep the client alive.
pub(super) async fn watch(store: Weak<Inner>, watcher: Arc<LivenessWatch>, epoch: u64) {
    for round in 1_u64.. {
        while lock(&watcher.waiting).is_empty() {
            watcher.wanted.notified().await;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let Some(store) = store.upgrade() else { return };
        for key in watcher.due(round) {
            let (inner, of) = (store.clone(), key.clone());
            let line = match blocking(move || step::without_dead(&inner, &of)).await {
                Ok(Some(seen)) => seen.waiters.iter().map(|one| one.claim.arrival).collect(),
                // Others take steps, and see who is dead.
                Ok(None) => continue,
                // They are told what is wrong when they ask.
                Err(_) => Vec::new(),
            };
            // Granted or lapsed, and perhaps not told: the push was missed, or is on its way.
            for arrival in watcher.settle(&key, &line) {
                let (key, left) = (key.clone(), Duration::ZERO);
                let next = Push::Next { key, arrival, left };
                inbox::deliver(&store, epoch, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::StoreTime;

    use super::*;

    #[test]
    fn claims_are_looked_after_until_they_have_left_the_line() {
        let (watcher, key) = (LivenessWatch::default(), Key::new("k").unwrap());
        let note = |arrival, position| {
            let standing = Standing {
                arrival: Arrival(arrival),
                token: None,
                behind: None,
                position,
                deadline: StoreTime(0),
                blocked_until: None,
            };
            watcher.note(&key, &standing);
        };
        let is_due = |round| watcher.due(round).contains(&key);
        note(7, 2);
        note(8, 9);
        assert!(!is_due(1) && is_due(2), "as often as the first asks for");
        let gone = watcher.settle(&key, &[6, 8].map(Arrival));
        assert_eq!(gone, BTreeSet::from([Arrival(7)]), "it is told to ask");
        note(9, 3);
        assert!(is_due(2));
        assert_eq!(watcher.settle(&key, &[]).len(), 2);
        assert!(!is_due(6), "nobody waits");
    }
}
