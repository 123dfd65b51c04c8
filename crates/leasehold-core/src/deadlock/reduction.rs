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
    /// The keys that each context holds.
    held_by: HashMap<&'a str, Vec<usize>>,
    /// The keys where a holder may have become able to go on.
    due: BTreeSet<usize>,
}

impl<'a> Reduction<'a> {
    pub(super) fn new(keys: &'a [KeyClaims]) -> Self {
        let mut reduction = Self {
            keys,
            holding: vec![Vec::new(); keys.len()],
            granted: vec![0; keys.len()],
            waits: HashMap::new(),
            held_by: HashMap::new(),
            due: (0..keys.len()).collect(),
        };
        for (at, key) in keys.iter().enumerate() {
            for around in key.waiters.iter().flat_map(ClaimState::contexts) {
                *reduction.waits.entry(around).or_default() += 1;
            }
            for holder in &key.holders {
                reduction.hold(at, holder);
            }
        }
        reduction
    }

    /// Goes on until nothing changes.
    pub(super) fn run(&mut self) {
        while let Some(key) = self.due.pop_first() {
            self.reduce(key);
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
                self.hold(key, first);
            }
        }
    }

    fn hold(&mut self, key: usize, claim: &'a ClaimState) {
        self.holding[key].push(claim);
        if let Some(context) = &claim.context {
            self.held_by.entry(context.as_str()).or_default().push(key);
        }
    }

    fn ended_waiting(&mut self, claim: &'a ClaimState) {
        for around in claim.contexts() {
            if let Some(left) = self.waits.get_mut(around) {
                *left -= 1;
                let held = self.held_by.get(around);
                self.due.extend(held.into_iter().flatten());
            }
        }
    }
}
