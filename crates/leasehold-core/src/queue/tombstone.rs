//! Tombstones: released ids, so that a late request does not bring a claim back.

use serde::{Deserialize, Serialize};

use super::{Queue, TOMBSTONE_LIFE, TOMBSTONES};
use crate::{ClaimId, StoreTime};

/// An id that is not to be used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The id.
    pub id: ClaimId,
    /// When to forget it.
    pub forget: StoreTime,
    /// The claim lives on under another id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotated: bool,
}

impl Queue {
    pub(super) fn tombstone(&self, id: &ClaimId, now: StoreTime) -> Option<&Tombstone> {
        let mut all = self.released.iter();
        all.find(|tombstone| tombstone.id == *id && tombstone.forget > now)
    }

    pub(super) fn is_buried(&self, id: &ClaimId, now: StoreTime) -> bool {
        self.tombstone(id, now).is_some()
    }

    /// Remembers an id that was released, or was replaced by a rotation.
    pub(super) fn bury_id(&mut self, id: &ClaimId, rotated: bool, now: StoreTime) {
        if !self.is_buried(id, now) {
            self.released.push_back(Tombstone {
                id: id.clone(),
                forget: now + TOMBSTONE_LIFE,
                rotated,
            });
        }
    }

    /// Forgets the released ids whose time or number is up.
    pub(super) fn forget_buried(&mut self, now: StoreTime) {
        let is_over = |tombstone: &Tombstone| tombstone.forget <= now;
        while self.released.len() > TOMBSTONES || self.released.front().is_some_and(is_over) {
            self.released.pop_front();
        }
    }
}
