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
    fn tombstone(&self, id: &ClaimId, now: StoreTime) -> Option<&Tombstone> {
        let mut all = self.released.iter();
        all.find(|tombstone| tombstone.id == *id && tombstone.forget > now)
    }

    pub(super) fn is_buried(&self, id: &ClaimId, now: StoreTime) -> bool {
        self.tombstone(id, now).is_some()
    }

    pub(super) fn was_rotated(&self, id: &ClaimId, now: StoreTime) -> bool {
        self.tombstone(id, now).is_some_and(|found| found.rotated)
    }

    /// Remembers a released id.
    pub(super) fn bury_id(&mut self, id: &ClaimId, now: StoreTime) {
        self.remember(id, now, false);
    }

    /// Remembers an id that was replaced.
    pub(super) fn bury_rotated(&mut self, id: &ClaimId, now: StoreTime) {
        self.remember(id, now, true);
    }

    fn remember(&mut self, id: &ClaimId, now: StoreTime, rotated: bool) {
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
