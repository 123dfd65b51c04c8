//! Keeps claim ids unique within a client, if the generator can return an id twice. The store
//! would treat two claims with the same id as one claim.

use std::collections::HashSet;
use std::sync::Arc;

use leasehold_core::{ClaimId, Key};

use crate::error::{ErrorKind, StoreError};
use crate::ids::ClaimIds;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use leasehold_core::COLLISIONS;

/// Makes the ids of one client. Clones share what is in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnIds {
    scheme: ClaimIds,
    in_use: Arc<Mutex<HashSet<(Key, ClaimId)>>>,
}

/// An id that no other claim of this client on the same key has, for as long
/// as a clone of this lives.
#[derive(Debug, Clone)]
pub(crate) struct OwnId {
    pub(crate) id: ClaimId,
    in_use: Option<Arc<InUse>>,
}

impl OwnId {
    /// Whether the generator may give it once more, and it is to be kept from others.
    pub(super) fn may_come_again(&self) -> bool {
        self.in_use.is_some()
    }
}

impl OwnIds {
    pub(crate) fn new(scheme: ClaimIds) -> Self {
        Self {
            scheme,
            in_use: Arc::default(),
        }
    }

    /// A new id for a claim on `key`.
    pub(crate) async fn next(&self, key: &Key) -> Result<OwnId, StoreError> {
        for _ in 0..COLLISIONS {
            if let Some(own) = self.take(key, self.scheme.next().await?) {
                return Ok(own);
            }
        }
        Err(not_unique())
    }

    /// A new id, if one can be made without waiting.
    pub(crate) fn now(&self, key: &Key) -> Option<OwnId> {
        self.take(key, self.scheme.now()?)
    }

    /// `None` if another claim of this client has it.
    fn take(&self, key: &Key, id: ClaimId) -> Option<OwnId> {
        if !self.scheme.may_repeat() {
            return Some(OwnId { id, in_use: None });
        }
        let entry = (key.clone(), id.clone());
        let is_free = lock(&self.in_use).insert(entry.clone());
        is_free.then(|| OwnId {
            id,
            in_use: Some(Arc::new(InUse {
                all: self.in_use.clone(),
                entry,
            })),
        })
    }
}

pub(crate) fn not_unique() -> StoreError {
    StoreError::new(
        ErrorKind::Invalid,
        format!("{COLLISIONS} claim ids in a row were already in use"),
    )
    .with_hint("the generator of claim ids must not return the same id twice")
}

/// Free again when it is dropped.
#[derive(Debug)]
struct InUse {
    all: Arc<Mutex<HashSet<(Key, ClaimId)>>>,
    entry: (Key, ClaimId),
}

impl Drop for InUse {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.entry);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_free_again_when_its_claim_has_gone() {
        let ids = OwnIds::new(ClaimIds::custom(Arc::new(|| ClaimId::new("same"))));
        let (key, other) = (Key::new("k").unwrap(), Key::new("other").unwrap());
        let taken = ids.now(&key);
        let clone = taken.clone();
        assert!(taken.is_some() && ids.now(&key).is_none());
        assert!(ids.now(&other).is_some());
        drop(taken);
        assert!(ids.now(&key).is_none());
        drop(clone);
        assert!(ids.now(&key).is_some());
    }
}
