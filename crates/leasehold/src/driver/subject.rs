//! Which claim it is: the key, its id as it changes, and its terms.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{ClaimId, Identity, Key, Moment, Renew, RenewalPolicy};

/// How a claim is to be asked for and kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) policy: RenewalPolicy,
    pub(crate) hand_off: bool,
    /// The longest the watchdog keeps it.
    pub(crate) max_hold: Option<Duration>,
    /// How often the watchdog replaces the claim id.
    pub(crate) rotate_every: Option<Duration>,
}

/// Which claim, at which key. Clones are the same claim.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) key: Key,
    claim: Arc<Claimed>,
    pub(crate) terms: Terms,
    /// Whether it was asked for once, and that was answered: no request that
    /// could bring it back is under way.
    pub(crate) settled: bool,
}

/// The claim's id, which a rotation replaces while others hold it.
struct Claimed {
    identity: Mutex<Identity>,
    _in_use: Option<InUse>,
}

impl Subject {
    pub(crate) fn new(
        key: Key,
        identity: Identity,
        terms: Terms,
        settled: bool,
        in_use: Option<InUse>,
    ) -> Self {
        let claim = Arc::new(Claimed {
            identity: Mutex::new(identity),
            _in_use: in_use,
        });
        Self {
            key,
            claim,
            terms,
            settled,
        }
    }

    pub(crate) fn identity(&self) -> MutexGuard<'_, Identity> {
        let identity = &self.claim.identity;
        identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All ids under which the claim may stand at the store.
    pub(crate) fn ids(&self) -> Vec<ClaimId> {
        self.identity().ids()
    }

    /// The renewal to send now. A rotation that is not answered yet travels
    /// with each, since the old id may be stale.
    pub(crate) fn renewal(&self, ttl: Duration) -> Renew {
        let identity = self.identity();
        Renew {
            rotate: identity.pending(),
            ..Renew::new(identity.id().clone(), ttl)
        }
    }

    /// The renewal that also replaces the id: by `fresh`, or by the one that
    /// was asked for and not answered yet.
    pub(crate) fn rotation(&self, ttl: Duration, fresh: &ClaimId) -> Renew {
        let mut identity = self.identity();
        let rotate = identity.rotate(|| fresh.clone());
        Renew {
            rotate: Some(rotate),
            ..Renew::new(identity.id().clone(), ttl)
        }
    }

    /// Whether the id is due to be replaced, if that was done last at `last`.
    pub(crate) fn wants_rotation(&self, last: Moment, now: Moment) -> bool {
        let every = self.terms.rotate_every;
        every.is_some_and(|every| now.since(last) >= every)
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

/// The ids of this client's claims, where a generator might give one twice: two
/// claims with one id would find themselves in each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdsInUse(Arc<Mutex<HashSet<(Key, ClaimId)>>>);

impl IdsInUse {
    /// Takes an id; `None` if another claim of this client has it.
    pub(crate) fn take(&self, key: &Key, id: &ClaimId) -> Option<InUse> {
        let entry = (key.clone(), id.clone());
        self.lock().insert(entry.clone()).then(|| InUse {
            ids: self.clone(),
            entry,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(Key, ClaimId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    ids: IdsInUse,
    entry: (Key, ClaimId),
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.ids.lock().remove(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_free_again_when_its_claim_has_gone() {
        let ids = IdsInUse::default();
        let (key, id) = (Key::new("k").unwrap(), ClaimId::from_random(1));
        let taken = ids.take(&key, &id);
        assert!(taken.is_some() && ids.take(&key, &id).is_none());
        assert!(ids.take(&Key::new("other").unwrap(), &id).is_some());
        drop(taken);
        assert!(ids.take(&key, &id).is_some());
    }
}
