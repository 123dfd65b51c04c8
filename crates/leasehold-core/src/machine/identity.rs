//! The id of a claim during rotations.

use std::time::Duration;

use crate::{ClaimId, Proof, Renew, Rotate};

/// A claim's id as its holder knows it, while rotations may be under way.
///
/// A rotation without an answer may have been carried out or not: it is asked
/// again, the same one, until it was answered; and whoever leaves then has two
/// ids to release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    id: ClaimId,
    version: u64,
    pending: Option<ClaimId>,
}

impl Identity {
    /// A claim that has been rotated so many times.
    pub(super) fn new(id: ClaimId, version: u64) -> Self {
        Self {
            id,
            version,
            pending: None,
        }
    }

    /// The id that the store has confirmed last.
    pub(super) fn id(&self) -> &ClaimId {
        &self.id
    }

    /// How often it was replaced.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Begins a rotation to a new id, unless one is not answered yet: that one is sent again.
    pub(super) fn rotate(&mut self, to: ClaimId) {
        self.pending.get_or_insert(to);
    }

    /// A renewal. Each carries the rotation that is not answered yet, since the old id may be stale.
    pub(super) fn renew(&self, ttl: Duration, confirms: bool) -> Renew {
        Renew {
            rotate: self.pending.clone().map(|to| Rotate {
                to,
                version: self.version,
                adopt: None,
            }),
            confirms,
            ..Renew::new(self.id.clone(), ttl)
        }
    }

    /// The store has carried out the rotation to `to`.
    pub(super) fn handle_rotated(&mut self, to: &ClaimId) {
        if self.pending.as_ref() == Some(to) {
            self.id = to.clone();
            self.version = self.version.saturating_add(1);
            self.pending = None;
        }
    }

    /// The store does not take the new id: the next rotation needs another.
    pub(super) fn handle_taken(&mut self) {
        self.pending = None;
    }

    /// Whether an answer about `id` says something about this claim now: not if
    /// the id was replaced since, or may have been.
    pub(super) fn is_current(&self, id: &ClaimId) -> bool {
        self.pending.is_none() && self.id == *id
    }

    /// Whether an answer about a rotation to `to` says something about this claim now: not if
    /// the id was replaced again since, or may have been.
    pub(super) fn is_last(&self, to: &ClaimId) -> bool {
        self.pending.as_ref().unwrap_or(&self.id) == to
    }

    /// Whether what is said of the claim was said by its store: whoever knows its id, or
    /// the one that may have replaced it.
    pub(super) fn proves(&self, said: &str, proof: &Proof) -> bool {
        self.ids().any(|id| Proof::of(id, said) == *proof)
    }

    /// What to release: the id, and the one that may have replaced it.
    pub(super) fn ids(&self) -> impl Iterator<Item = &ClaimId> {
        std::iter::once(&self.id).chain(&self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(bits: u128) -> ClaimId {
        ClaimId::from_random(bits)
    }

    #[test]
    fn a_rotation_under_way_is_released_too_and_answers_only_once() {
        let mut identity = Identity::new(id(1), 4);
        assert!(identity.is_current(&id(1)));
        identity.rotate(id(2));
        let rotate = identity.renew(Duration::ZERO, false).rotate.unwrap();
        assert_eq!((rotate.version, &rotate.to), (4, &id(2)));
        assert!(identity.ids().eq(&[id(1), id(2)]));
        assert!(!identity.is_current(&id(1)), "it may be stale");
        identity.handle_rotated(&id(9));
        assert_eq!(identity.version(), 4);
        identity.handle_rotated(&id(2));
        identity.handle_rotated(&id(2));
        assert_eq!((identity.id(), identity.version()), (&id(2), 5));
        assert!(identity.ids().eq(&[id(2)]) && identity.pending.is_none());
    }

    #[test]
    fn a_push_is_proved_by_the_id_and_the_one_that_may_have_replaced_it() {
        let said = "g 7 9 8 k";
        let mut identity = Identity::new(id(1), 0);
        let proved = |identity: &Identity| {
            [1, 2, 3].map(|bits| identity.proves(said, &Proof::of(&id(bits), said)))
        };
        assert_eq!(proved(&identity), [true, false, false]);
        identity.rotate(id(2));
        assert_eq!(proved(&identity), [true, true, false]);
        identity.handle_rotated(&id(2));
        assert_eq!(
            proved(&identity),
            [false, true, false],
            "the old one may have leaked"
        );
        assert!(!identity.proves("g 7 10 8 k", &Proof::of(&id(2), said)));
    }

    #[test]
    fn a_new_id_that_is_taken_is_not_asked_for_again() {
        let mut identity = Identity::new(id(1), 0);
        identity.rotate(id(2));
        identity.handle_taken();
        assert!(identity.is_current(&id(1)));
        identity.rotate(id(3));
        assert_eq!(identity.pending, Some(id(3)));
    }
}
