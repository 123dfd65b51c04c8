//! Deadlock detection among the claims of a store.
//!
//! A holder is blocked while a claim of its context waits: see [`ClaimContext`]. Deadlocks are
//! found by reduction (Holt, "Some Deadlock Properties of Computer Systems", 1972): remove each
//! holder that is not blocked, grant what then fits by the rule of the queue, and repeat until
//! nothing changes. The claims that still wait can never be granted, unless one gives up. This is
//! correct also for readers and semaphores, where a cycle of claims alone is not a deadlock.

mod graph;
mod reduction;

use std::collections::HashSet;

use self::reduction::Reduction;
use crate::{ClaimContext, Token};

/// The claims of one key, with the data that deadlock detection needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyClaims {
    /// The capacity of the key.
    pub units: u64,
    /// In order of their grants.
    pub holders: Vec<ClaimState>,
    /// In order of arrival.
    pub waiters: Vec<ClaimState>,
}

/// One claim of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimState {
    /// The id of the claim, unique within its key.
    pub id: String,
    /// The index of the claim in the caller's list.
    pub index: usize,
    /// Its context. A holder without one counts as able to continue.
    pub context: Option<ClaimContext>,
    /// Its weight.
    pub weight: u64,
    /// Its token; [`Token::NONE`] while it waits. Holders with the same token count once.
    pub token: Token,
    /// Whether it ends without its client: only a minimum hold keeps it.
    pub leaves: bool,
}

/// A claim that waits in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedClaim {
    /// The key that it waits for: its place in the list that was given.
    pub key: usize,
    /// The [`index`](ClaimState::index) of the claim.
    pub waiter: usize,
    /// What its context holds and others of the deadlock wait for: key and index.
    pub holds: Vec<(usize, usize)>,
}

/// The deadlocks that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deadlocks {
    /// The keys with claims that wait for ever, in a deadlock or behind one: their places in the
    /// list that was given.
    pub stuck: Vec<usize>,
    /// The claims of each deadlock: each waits for the next, and the last for the first; more
    /// than one circle may run through them.
    pub circles: Vec<Vec<BlockedClaim>>,
}

impl Deadlocks {
    /// Finds the deadlocks among the claims of these keys.
    ///
    /// Where the keys were not read in one step, what is found may never have been at one time:
    /// read the [stuck](Self::stuck) keys again, keep what [was there
    /// before](KeyClaims::keep_seen_in), and look for deadlocks in that.
    #[must_use]
    pub fn among(keys: &[KeyClaims]) -> Self {
        let mut reduction = Reduction::new(keys);
        reduction.run();
        let (stuck, circles) = (reduction.stuck().collect(), graph::circles(&reduction));
        Self { stuck, circles }
    }
}

impl KeyClaims {
    /// Whether it is one of those who waited here when they were read.
    fn has_waited(&self, claim: &ClaimState) -> bool {
        let waiters = self.waiters.as_ptr_range();
        waiters.contains(&std::ptr::from_ref(claim))
    }

    /// Keeps the claims that were there, and in the same state, when this key was read before.
    ///
    /// A claim that both readings found was there all the time between them. So what is kept of
    /// several keys was there at one time, if the first reading of all of them had ended when the
    /// second began. What was there beside it can only add to a deadlock.
    pub fn keep_seen_in(&mut self, before: &Self) {
        self.units = self.units.max(before.units);
        let keep = |now: &mut Vec<ClaimState>, before: &[ClaimState]| {
            let state = |claim: &ClaimState| (claim.id.clone(), claim.token, claim.context.clone());
            let before: HashSet<_> = before.iter().map(state).collect();
            now.retain(|claim| before.contains(&state(claim)));
        };
        keep(&mut self.holders, &before.holders);
        keep(&mut self.waiters, &before.waiters);
    }
}

impl ClaimState {
    /// The contexts that it belongs to, from the outermost to its own.
    fn contexts(&self) -> impl Iterator<Item = &str> {
        self.context.iter().flat_map(ClaimContext::path)
    }
}
