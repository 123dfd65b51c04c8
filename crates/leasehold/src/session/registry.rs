//! Every claim of one client, where to find it, and when each wants attention.
//!
//! Decides nothing, and is locked for moments: a claim says what is to be known of it
//! ([`Listed`]) whenever that has changed, under its own lock.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use leasehold_core::{Arrival, Key, Moment, Phase};

use super::live::{LiveClaim, Number};
use super::state::Listed;
use super::timing::TOGETHER;

/// The claims of one client. Each is in one of the first two, from its first step until it is
/// over, and under a number of its own, since what comes before that may come twice.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Those that wait or hold.
    by_arrival: Claims<Arrival>,
    /// Those that are not answered yet, or on their way out, by the hashes of their keys.
    in_passing: Claims<u64>,
    hasher: RandomState,
    /// When the watchdog has to see to them.
    timers: Claims<Moment>,
    waiting: usize,
    leaving: usize,
    /// The client is shut down.
    closed: bool,
    /// Those who watch a key, and want the inbox open.
    watching: usize,
    /// Releases that were confirmed since the client was opened.
    confirmed: u64,
}

type Claims<By> = BTreeMap<(By, Number), Arc<LiveClaim>>;

/// The place of a claim has changed.
fn move_claim<By: Ord>(
    claims: &mut Claims<By>,
    claim: &Arc<LiveClaim>,
    was: Option<By>,
    is: Option<By>,
) {
    if was == is {
        return;
    }
    if let Some(was) = was {
        claims.remove(&(was, claim.number));
    }
    if let Some(is) = is {
        claims.insert((is, claim.number), claim.clone());
    }
}

/// The claims on `key` of those that were found by a number that others may have too.
fn on_key<By: Copy + Ord>(claims: &Claims<By>, by: By, key: &Key) -> Vec<Arc<LiveClaim>> {
    let found = claims.range((by, 0)..=(by, Number::MAX));
    let found = found.map(|(_, claim)| claim);
    found.filter(|claim| claim.key == *key).cloned().collect()
}

impl Registry {
    /// What is to be known of a claim has changed.
    pub(super) fn list(&mut self, claim: &Arc<LiveClaim>, was: Listed, is: Listed) {
        move_claim(&mut self.by_arrival, claim, was.arrival, is.arrival);
        move_claim(&mut self.timers, claim, was.due, is.due);
        let in_passing = |phase| matches!(phase, Phase::Asking | Phase::Leaving);
        let (was_passing, is_passing) = (in_passing(was.phase), in_passing(is.phase));
        if was_passing != is_passing {
            let hash = self.hasher.hash_one(&claim.key);
            let (was, is) = (was_passing.then_some(hash), is_passing.then_some(hash));
            move_claim(&mut self.in_passing, claim, was, is);
        }
        let count = |phase, of: &mut usize| {
            *of -= usize::from(was.phase == phase);
            *of += usize::from(is.phase == phase);
        };
        count(Phase::Waiting, &mut self.waiting);
        count(Phase::Leaving, &mut self.leaving);
        if was.phase != Phase::Over && is.phase == Phase::Over {
            self.confirmed += u64::from(is.confirmed);
        }
    }

    /// The claims on `key` that are not answered yet, or on their way out.
    pub(super) fn passing_on(&self, key: &Key) -> Vec<Arc<LiveClaim>> {
        on_key(&self.in_passing, self.hasher.hash_one(key), key)
    }

    /// Who is to hear a push: the claim that it names, or those that are not answered yet,
    /// since it may be one of them.
    pub(super) fn hearers(&self, key: &Key, arrival: Arrival) -> Vec<Arc<LiveClaim>> {
        let named = on_key(&self.by_arrival, arrival, key);
        if named.is_empty() {
            self.passing_on(key)
        } else {
            named
        }
    }

    /// When something is next due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.timers.keys().next().map(|(due, _)| *due)
    }

    /// The claims that are due now, [`TOGETHER`] at most.
    pub(super) fn due(&self, now: Moment, due: &mut Vec<Arc<LiveClaim>>) {
        let claims = self.timers.range(..=(now, Number::MAX));
        due.extend(claims.map(|(_, claim)| claim.clone()).take(TOGETHER));
    }

    /// All that are not over.
    pub(super) fn all(&self) -> Vec<Arc<LiveClaim>> {
        let claims = self.in_passing.values().chain(self.by_arrival.values());
        claims.cloned().collect()
    }

    /// Whether nothing is to be kept.
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && (self.watching == 0 || self.closed)
    }

    /// Whether somebody waits or watches: the inbox must be open.
    pub(super) fn has_listeners(&self) -> bool {
        self.waiting > 0 || self.watching > 0 && !self.closed
    }

    /// Somebody watches a key from now on.
    pub(super) fn start_watching(&mut self) {
        self.watching += 1;
    }

    /// Somebody does not watch any more.
    pub(super) fn stop_watching(&mut self) {
        self.watching -= 1;
    }

    /// The client is shut down. All that are here are to leave; whoever comes later knows.
    pub(super) fn close(&mut self) -> Vec<Arc<LiveClaim>> {
        self.closed = true;
        self.all()
    }

    /// How many claims are on their way out, and how many have left.
    pub(super) fn departures(&self) -> (usize, u64) {
        (self.leaving, self.confirmed)
    }
}
