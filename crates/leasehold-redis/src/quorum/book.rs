//! What this client remembers of its claims: the token that each has proposed,
//! and which have left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::quorum::FarewellVerdict;
use leasehold_core::{ClaimId, ClientInfo, Key, Moment, Note, StoreTime, Token, Validity};
use tokio::sync::watch;

/// For how long at least a claim that has left is remembered, so that its id
/// cannot claim again.
const REMEMBERED: Duration = Duration::from_secs(60);

/// So many keys whose highest token is remembered; beyond that all are
/// forgotten, and cost a further proposal at most.
const SEEN: usize = 4_096;

/// How the release of a claim stands, for those who wait for it.
pub(super) type Parting = watch::Receiver<Option<FarewellVerdict>>;

/// One claim of this client.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The highest token that it has proposed.
    pub(super) token: Token,
    /// When it proposed the first.
    pub(super) proposed: Moment,
    /// Whether a quorum has voted for it.
    pub(super) held: bool,
    pub(super) validity: Validity,
    /// Until when its votes last at most, by our clock.
    pub(super) lapses: Moment,
    /// The deadline as it was told.
    pub(super) deadline: StoreTime,
    pub(super) owner: ClientInfo,
    pub(super) note: Option<Note>,
}

#[derive(Debug)]
enum State {
    Here(Entry),
    Left {
        until: Moment,
        parting: Option<Parting>,
    },
}

/// What is known of a claim id.
pub(super) enum Known {
    Nothing,
    Here(Entry),
    Left(Option<Parting>),
}

#[derive(Debug, Default)]
struct Pages {
    claims: HashMap<(Key, ClaimId), State>,
    seen: HashMap<Key, Token>,
    /// How many claims make it worth looking for old ones.
    sweep_at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Pages>);

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn look(&self, key: &Key, id: &ClaimId) -> Known {
        match self.pages().claims.get(&(key.clone(), id.clone())) {
            None => Known::Nothing,
            Some(State::Here(entry)) => Known::Here(entry.clone()),
            Some(State::Left { parting, .. }) => Known::Left(parting.clone()),
        }
    }

    /// Notes a claim down, or anew; not if it has left.
    pub(super) fn put(&self, key: &Key, id: &ClaimId, entry: Entry, now: Moment) {
        let mut pages = self.pages();
        pages.sweep(now);
        let state = pages.claims.entry((key.clone(), id.clone()));
        state
            .and_modify(|state| {
                if let State::Here(known) = state {
                    known.clone_from(&entry);
                }
            })
            .or_insert(State::Here(entry));
    }

    /// Changes what is noted of a claim that is still here.
    pub(super) fn change(&self, key: &Key, id: &ClaimId, change: impl FnOnce(&mut Entry)) {
        let mut pages = self.pages();
        if let Some(State::Here(entry)) = pages.claims.get_mut(&(key.clone(), id.clone())) {
            change(entry);
        }
    }

    /// The claim leaves: gives what was noted of it.
    pub(super) fn leave(
        &self,
        key: &Key,
        id: &ClaimId,
        parting: Option<Parting>,
        now: Moment,
    ) -> Option<Entry> {
        let mut pages = self.pages();
        pages.sweep(now);
        let claim = (key.clone(), id.clone());
        let before = pages.claims.remove(&claim);
        let lapses = match &before {
            Some(State::Here(entry)) => entry.lapses,
            Some(State::Left { until, .. }) => *until,
            None => now,
        };
        let until = lapses.max(now + REMEMBERED);
        pages.claims.insert(claim, State::Left { until, parting });
        match before {
            Some(State::Here(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Forgets a claim that was never granted: its id may be used again.
    pub(super) fn forget(&self, key: &Key, id: &ClaimId) {
        self.pages().claims.remove(&(key.clone(), id.clone()));
    }

    /// The highest token heard of.
    pub(super) fn seen(&self, key: &Key) -> Token {
        self.pages().seen.get(key).copied().unwrap_or_default()
    }

    pub(super) fn saw(&self, key: &Key, token: Token) {
        let mut pages = self.pages();
        if pages.seen.len() >= SEEN {
            pages.seen.clear();
        }
        let seen = pages.seen.entry(key.clone()).or_default();
        *seen = token.max(*seen);
    }
}

impl Pages {
    fn sweep(&mut self, now: Moment) {
        if self.claims.len() < self.sweep_at.max(64) {
            return;
        }
        self.claims.retain(|_, state| match state {
            State::Here(entry) => entry.lapses + REMEMBERED > now,
            State::Left { until, .. } => *until > now,
        });
        self.sweep_at = 2 * self.claims.len();
    }
}
