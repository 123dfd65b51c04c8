//! What must hold, by name.

use std::fmt;

/// One thing that must hold in every state of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Promise {
    /// What clients rely on at one moment, each by its own clock, fits the key.
    Exclusion,
    /// What the store has granted fits the key.
    Capacity,
    /// Each grant has a higher token than all before it.
    Tokens,
    /// A client believes in no token but that of its own grant.
    OwnToken,
    /// Nobody is granted past somebody who came before.
    Order,
    /// After a step the first in line does not fit, and no owner waits for itself.
    Idle,
    /// A claim ends by its own release, its deadline, a break or the death of its client.
    Standing,
    /// A claim lives for what it last asked for: no longer, and no shorter.
    Lifetime,
    /// Neither a renewal nor a late request brings back what has ended.
    Ended,
    /// Whoever is granted is told, and nobody else.
    Told,
    /// A step answers what is so.
    Truth,
    /// Who stays is granted, once faults stop.
    Served,
    /// No lease is lost while its votes stand.
    Kept,
    /// No server votes for a claim after it has confirmed that it left.
    Orphan,
}

impl Promise {
    /// Each with its name, as reports have it.
    pub(super) const ALL: [(Self, &'static str); 14] = [
        (Self::Exclusion, "exclusion"),
        (Self::Capacity, "capacity"),
        (Self::Tokens, "tokens rise"),
        (Self::OwnToken, "own token"),
        (Self::Order, "order"),
        (Self::Idle, "no idle key"),
        (Self::Standing, "grants stand"),
        (Self::Lifetime, "lifetime"),
        (Self::Ended, "ended is ended"),
        (Self::Told, "told"),
        (Self::Truth, "answers are true"),
        (Self::Served, "served in the end"),
        (Self::Kept, "not lost for nothing"),
        (Self::Orphan, "no orphan"),
    ];

    /// Its name, as reports have it.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Which promises are broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Broken(u32);

impl Broken {
    pub(super) fn has(self, promise: Promise) -> bool {
        self.0 & (1 << promise as u8) != 0
    }

    /// Notes that a promise is broken unless `holds`.
    pub(super) fn require(&mut self, promise: Promise, holds: bool) {
        if !holds {
            self.0 |= 1 << promise as u8;
        }
    }

    /// The first of these that is broken.
    pub(super) fn first(self, promises: &[Promise]) -> Option<Promise> {
        promises.iter().copied().find(|promise| self.has(*promise))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken = Promise::ALL.into_iter().filter(|(p, _)| self.has(*p));
        f.debug_set().entries(broken.map(|(_, name)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_has_its_own_place() {
        for (place, (promise, _)) in Promise::ALL.into_iter().enumerate() {
            assert_eq!(promise as usize, place, "{promise:?}");
            let mut broken = Broken::default();
            broken.require(promise, true);
            assert!(broken.is_empty());
            broken.require(promise, false);
            let only = |(p, _)| broken.has(p) == (p == promise);
            assert!(Promise::ALL.into_iter().all(only));
        }
    }
}
