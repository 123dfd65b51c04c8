//! What must hold, by name.

use std::fmt;

use clap::ValueEnum;

use crate::value_name::value_name;

/// One thing that must hold in every state of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[repr(u8)]
pub enum Promise {
    /// What clients rely on at one moment, each by its own clock, fits the key.
    Exclusion,
    /// What the store has granted fits the key.
    Capacity,
    /// Each grant has a higher token than all before it.
    #[value(name = "tokens rise")]
    Tokens,
    /// A client believes in no token but that of its own grant.
    #[value(name = "own token")]
    OwnToken,
    /// Nobody is granted past somebody who came before.
    Order,
    /// After a step the first in line does not fit, and no owner waits for itself.
    #[value(name = "no idle key")]
    Idle,
    /// A claim ends by its own release, its deadline, a break or the death of its client.
    #[value(name = "grants stand")]
    Standing,
    /// A claim lives for what it last asked for: no longer, and no shorter.
    Lifetime,
    /// Neither a renewal nor a late request brings back what has ended.
    #[value(name = "ended is ended")]
    Ended,
    /// Whoever is granted is told, and nobody else.
    Told,
    /// A step answers what is so.
    #[value(name = "answers are true")]
    Truth,
    /// Who stays is granted, once faults stop.
    #[value(name = "served in the end")]
    Served,
    /// No lease is lost while its votes stand, or the store has it.
    #[value(name = "not lost for nothing")]
    Kept,
    /// No server votes for a claim after it has confirmed that it left.
    #[value(name = "no orphan")]
    Orphan,
    /// Who is not told anything asks seldom.
    #[value(name = "no storm")]
    Storm,
}

impl Promise {
    /// Its name, as reports have it.
    pub fn name(self) -> String {
        value_name(&self)
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
        let all = Promise::value_variants().iter();
        let broken = all.filter(|promise| self.has(**promise));
        f.debug_set().entries(broken.map(|it| it.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_has_its_own_place() {
        for promise in Promise::value_variants() {
            let mut broken = Broken::default();
            broken.require(*promise, true);
            assert!(broken.is_empty());
            broken.require(*promise, false);
            let only = |it: &Promise| broken.has(*it) == (it == promise);
            assert!(Promise::value_variants().iter().all(only));
        }
    }
}
