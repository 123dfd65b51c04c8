//! What a client does while its claims wait: from time to time it looks whether
//! those ahead of them live.
//!
//! A look only reads: no lock, nothing written. Only if somebody is dead, or
//! a push was missed, the claim is told to ask, and its step removes the dead.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Arrival, ClaimId, Command, Inbox, Key, Reply};
use leasehold_store::Push;
use tokio::sync::Notify;

use super::inbox::Pushes;
use super::place::Place;
use super::turn::blocking;
use super::{Inner, LOOK_PAUSE, dead};

/// Even the last in line looks in every such round: the line may move up fast
/// without its knowing, and a holder's death is to be seen within a second.
const RAREST: u64 = 3;

/// The claims of this client that wait.
#[derive(Debug, Default)]
pub(super) struct DeathWatcher {
    waiting: Mutex<HashMap<ClaimId, Waiting>>,
    wanted: Notify,
}

#[derive(Debug, Clone)]
struct Waiting {
    key: Key,
    arrival: Arrival,
    position: u64,
}

/// The arrivals of this client's claims that wait for one key.
type Ours = BTreeMap<Key, Vec<Arrival>>;

impl DeathWatcher {
    /// Remembers a claim that waits, and forgets one that does not any more.
    pub(super) fn note(&self, key: &Key, command: &Command, reply: &Reply) {
        let id = match command {
            Command::Claim(claim) => &claim.id,
            Command::Renew(renew) => renew.rotate.as_ref().map_or(&renew.id, |r| &r.to),
            Command::Release(release) => &release.id,
            _ => return,
        };
        if *reply == Reply::Taken {
            // The id that was asked for is another's; the claim is where it was.
            return;
        }
        let mut waiting = self.waiting();
        if let Command::Renew(renew) = command {
            // Its id may have changed.
            waiting.remove(&renew.id);
        }
        match reply {
            Reply::Standing(standing) if standing.token.is_none() => {
                let claim = Waiting {
                    key: key.clone(),
                    arrival: standing.arrival,
                    position: standing.position,
                };
                waiting.insert(id.clone(), claim);
                self.wanted.notify_one();
            }
            _ => {
                waiting.remove(id);
            }
        }
    }

    /// A push says that a claim waits no more, if the store has sent it.
    pub(super) fn forget_proved(&self, push: &Push) {
        self.waiting().retain(|id, _| !push.is_proved_by(id));
    }

    /// That claim does not wait any more.
    fn forget(&self, key: &Key, arrival: Arrival) {
        self.waiting()
            .retain(|_, claim| claim.arrival != arrival || claim.key != *key);
    }

    /// The keys that are looked at in that round: the further back the first
    /// claim of this client, the rarer.
    fn due(&self, round: u64) -> Ours {
        let mut ours: BTreeMap<Key, (u64, Vec<Arrival>)> = BTreeMap::new();
        for claim in self.waiting().values() {
            let first = (u64::MAX, Vec::new());
            let (first, arrivals) = ours.entry(claim.key.clone()).or_insert(first);
            *first = claim.position.min(*first);
            arrivals.push(claim.arrival);
        }
        let due = ours.into_iter();
        due.filter(|(_, (first, _))| round.is_multiple_of((*first).clamp(1, RAREST)))
            .map(|(key, (_, arrivals))| (key, arrivals))
            .collect()
    }

    fn moved_up(&self, key: &Key, arrival: Arrival, to: u64) {
        for claim in self.waiting().values_mut() {
            if claim.arrival == arrival && claim.key == *key {
                claim.position = to;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<ClaimId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks from time to time; sleeps while no claim waits. Does not keep the client alive.
pub(super) async fn watch(store: Weak<Inner>, watcher: Arc<DeathWatcher>, pushes: Pushes) {
    for round in 1_u64.. {
        while watcher.waiting().is_empty() {
            watcher.wanted.notified().await;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let Some(store) = store.upgrade() else { return };
        let due = watcher.due(round);
        let Ok(found) = blocking(move || Ok(look(&store, due))).await else {
            return;
        };
        for (key, arrival) in found {
            let left = Duration::ZERO;
            pushes.push(Push::Next { key, arrival, left });
        }
    }
}

/// The claims that should ask where they stand.
fn look(store: &Inner, due: Ours) -> Vec<(Key, Arrival)> {
    if store.go_on().is_err() {
        // They are told what is wrong when they ask.
        let all = due.into_iter();
        let all = all.flat_map(|(key, ours)| ours.into_iter().map(move |one| (key.clone(), one)));
        return all
            .inspect(|(key, one)| store.watcher.forget(key, *one))
            .collect();
    }
    // Many keys may be held by one client.
    let mut dead: HashMap<Inbox, bool> = HashMap::new();
    let mut found = Vec::new();
    for (key, ours) in due {
        let place = Place::of_key(&key);
        let Ok(queue) = place.read_key(&store.directory, &store.clock, &key) else {
            // The next step says what is wrong.
            continue;
        };
        let waiters = queue.look(store.clock.now()).waiters;
        let mut standing = waiters
            .iter()
            .filter(|waiter| ours.contains(&waiter.claim.arrival));
        if let Some(first) = standing.next() {
            let arrival = first.claim.arrival;
            store.watcher.moved_up(&key, arrival, first.position);
            let is_dead = |inbox: &Inbox| {
                let look = || store.session.sees_dead(inbox);
                *dead.entry(inbox.clone()).or_insert_with(look)
            };
            if dead::clients_that_matter(&queue).iter().any(is_dead) {
                found.push((key.clone(), arrival));
            }
        }
        // Granted or lapsed, and not told: the push was missed, or is on its way.
        for arrival in ours {
            if !waiters.iter().any(|waiter| waiter.claim.arrival == arrival) {
                store.watcher.forget(&key, arrival);
                found.push((key.clone(), arrival));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Renew, Rotate, Standing, StoreTime, Token};

    use super::*;

    fn renew(from: u128, to: u128) -> Command {
        let rotate = Rotate {
            to: ClaimId::from_random(to),
            version: 0,
            adopt: None,
        };
        Command::Renew(Renew {
            rotate: Some(rotate),
            ..Renew::new(ClaimId::from_random(from), Duration::from_secs(30))
        })
    }

    fn standing(arrival: u64, token: Option<Token>) -> Reply {
        Reply::Standing(Standing {
            arrival: Arrival(arrival),
            token,
            position: u64::from(token.is_none()),
            deadline: StoreTime(0),
            blocked_until: None,
        })
    }

    #[test]
    fn a_claim_is_looked_after_under_whatever_id() {
        let (watcher, key) = (DeathWatcher::default(), Key::new("k").unwrap());
        let looked_after = || watcher.due(1).get(&key).cloned().unwrap_or_default();
        watcher.note(&key, &renew(1, 2), &standing(7, None));
        watcher.note(&key, &renew(2, 3), &Reply::Taken);
        assert_eq!(looked_after(), [Arrival(7)], "it waits under its old id");
        watcher.note(&key, &renew(2, 4), &standing(7, None));
        assert_eq!(looked_after(), [Arrival(7)], "once");
        watcher.note(&key, &renew(4, 5), &standing(7, Some(Token(1))));
        assert!(watcher.waiting().is_empty());
    }
}
