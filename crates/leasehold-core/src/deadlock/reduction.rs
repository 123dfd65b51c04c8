//! Reduction: removes all claims that can still make progress.

use std::collections::{BTreeSet, HashMap};

use super::{ClaimState, KeyClaims};
use crate::Token;

/// The claims of all keys, from which those go that can go on.
pub(super) struct Reduction<'a> {
    pub(super) keys: &'a [KeyClaims],
    /// Who holds each key by now: also claims that waited.
    holding: Vec<Vec<&'a ClaimState>>,
    /// How many waiters of each key were granted it: the others still wait.
    granted: Vec<usize>,
    /// How many claims wait in each context or within it.
    waits: HashMap<&'a str, usize>,
}

impl<'a> Reduction<'a> {
    pub(super) fn new(keys: &'a [KeyClaims]) -> Self {
        let mut waits: HashMap<_, usize> = HashMap::new();
        let waiters = keys.iter().flat_map(|key| &key.waiters);
        for around in waiters.flat_map(ClaimState::contexts) {
            *waits.entry(around).or_default() += 1;
        }
        let holding = keys.iter().map(|key| key.holders.iter().collect());
        Self {
            keys,
            holding: holding.collect(),
            granted: vec![0; keys.len()],
            waits,
        }
    }

    /// Goes on until nothing changes: as long as claims of some key wait no more, holders of others
    /// may have become able to go on.
    pub(super) fn run(&mut self) {
        let mut goes_on = true;
        while goes_on {
            let before: usize = self.granted.iter().sum();
            (0..self.keys.len()).for_each(|key| self.reduce(key));
            goes_on = self.granted.iter().sum::<usize>() > before;
        }
    }

    /// The keys that claims still wait for.
    pub(super) fn stuck(&self) -> impl Iterator<Item = usize> {
        (0..self.keys.len()).filter(|key| !self.waiting(*key).is_empty())
    }

    /// Those who still wait for the key.
    pub(super) fn waiting(&self, key: usize) -> &'a [ClaimState] {
        &self.keys[key].waiters[self.granted[key]..]
    }

    /// Those who still hold it.
    pub(super) fn holding(&self, key: usize) -> &[&'a ClaimState] {
        &self.holding[key]
    }

    /// Whether the key has room for the claim, whoever is ahead of it.
    pub(super) fn fits(&self, key: usize, claim: &ClaimState) -> bool {
        let mut tokens = BTreeSet::new();
        let holding = self.holding[key].iter();
        let used: u64 = holding
            .filter(|holder| holder.token == Token::NONE || tokens.insert(holder.token))
            .map(|holder| holder.weight)
            .sum();
        used.saturating_add(claim.weight) <= self.keys[key].units
    }

    /// Takes away the holders of a key that can go on, and grants it to those who then fit.
    fn reduce(&mut self, key: usize) {
        loop {
            let (waits, here, claims) = (&self.waits, self.waiting(key), &self.keys[key]);
            self.holding[key].retain(|holder| {
                let context = holder.context.as_ref().filter(|_| !holder.leaves);
                let waits = context.and_then(|context| waits.get(context.as_str()));
                let waits = waits.copied().unwrap_or_default();
                // What waited beside it may be of the same owner, who gets all of that at once.
                let same = |it: &&ClaimState| it.context == holder.context;
                let beside = || here.iter().filter(same).count();
                waits > 0 && (!claims.has_waited(holder) || waits > beside())
            });
            let Some(first) = self.waiting(key).first() else {
                return;
            };
            // One that can never fit is told so, and leaves.
            let leaves = first.weight > self.keys[key].units;
            if !leaves && !self.fits(key, first) {
                return;
            }
            self.granted[key] += 1;
            self.ended_waiting(first);
            if !leaves {
                self.holding[key].push(first);
            }
        }
    }

    fn ended_waiting(&mut self, claim: &ClaimState) {
        for around in claim.contexts() {
            if let Some(left) = self.waits.get_mut(around) {
                *left -= 1;
            }
        }
    }
}
