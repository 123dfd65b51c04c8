//! Which claim it is: the key, its id as it changes, and its terms.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClaimId, Identity, Key, Moment, Proof, Renew, RenewalPolicy};

use super::own_id::OwnId;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

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
    name: Arc<Mutex<Name>>,
    /// Whether its caller has had it in hand.
    used: Arc<AtomicBool>,
    pub(crate) terms: Terms,
    /// Whether it was asked for once, and that was answered: no request that
    /// could bring it back is under way.
    pub(crate) settled: bool,
}

/// What the claim is called, which a rotation changes while others hold it.
#[derive(Debug)]
struct Name {
    identity: Identity,
    /// The ids under which it may stand, so that no other claim gets them.
    own: Vec<OwnId>,
}

impl Name {
    /// Gives up the ids under which it does not stand any more.
    fn let_go(&mut self) {
        let ids = self.identity.ids();
        self.own.retain(|own| ids.contains(&own.id));
    }
}

impl Subject {
    /// A claim whose id has been replaced `version` times.
    pub(crate) fn new(key: Key, own: OwnId, version: u64, terms: Terms, settled: bool) -> Self {
        let name = Name {
            identity: Identity::at(own.id.clone(), version),
            own: vec![own],
        };
        Self {
            key,
            name: Arc::new(Mutex::new(name)),
            used: Arc::default(),
            terms,
            settled,
        }
    }

    fn name(&self) -> MutexGuard<'_, Name> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its caller gets it now, and may begin to work: from here on a minimum hold
    /// counts.
    pub(crate) fn hand_out(&self) {
        self.used.store(true, Ordering::Release);
    }

    /// Whether its caller has had it in hand.
    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Its id now.
    pub(crate) fn identity(&self) -> Identity {
        self.name().identity.clone()
    }

    /// Whether what is said of the claim was said by its store.
    pub(crate) fn proves(&self, said: &str, proof: &Proof) -> bool {
        self.name().identity.proves(said, proof)
    }

    /// The store has replaced the id by `to`.
    pub(crate) fn handle_rotated(&self, to: &ClaimId) {
        let mut name = self.name();
        name.identity.handle_rotated(to);
        name.let_go();
    }

    /// The store does not take the new id.
    pub(crate) fn handle_taken(&self) {
        let mut name = self.name();
        name.identity.handle_taken();
        name.let_go();
    }

    /// All ids under which the claim may stand at the store.
    pub(crate) fn ids(&self) -> Vec<ClaimId> {
        self.name().identity.ids()
    }

    /// The renewal to send now. A rotation that is not answered yet travels
    /// with each, since the old id may be stale.
    pub(crate) fn renewal(&self, ttl: Duration) -> Renew {
        let identity = &self.name().identity;
        Renew {
            rotate: identity.pending(),
            ..Renew::new(identity.id().clone(), ttl)
        }
    }

    /// The renewal that also replaces the id: by `fresh`, or by the one that
    /// was asked for and not answered yet.
    pub(crate) fn rotation(&self, ttl: Duration, fresh: &OwnId) -> Renew {
        let mut name = self.name();
        let rotate = name.identity.rotate(|| fresh.id.clone());
        if rotate.to == fresh.id {
            name.own.push(fresh.clone());
        }
        Renew {
            rotate: Some(rotate),
            ..Renew::new(name.identity.id().clone(), ttl)
        }
    }

    /// Whether the id is due to be replaced, if that was done last at `last`.
    pub(crate) fn wants_rotation(&self, last: Moment, now: Moment) -> bool {
        let every = self.terms.rotate_every;
        every.is_some_and(|every| now.since(last) >= every)
    }
}
