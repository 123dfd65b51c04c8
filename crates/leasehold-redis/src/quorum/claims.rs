//! What this client remembers of its claims and keys: the token that each claim has
//! proposed, and the highest token of each key.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::lock::lock;
use leasehold_core::quorum::ReleaseVerdict;
use leasehold_core::{Key, Moment, Note, Owner, StoreTime, Token, Validity};
use tokio::sync::watch;

/// So many keys whose highest token is remembered; beyond that all are
/// forgotten, and cost a further proposal at most.
const SEEN: usize = 4_096;

/// How the release of a claim stands, for those who wait for it.
pub(super) type PendingRelease = watch::Receiver<Option<ReleaseVerdict>>;

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
    /// The deadline as it was told.
    pub(super) deadline: StoreTime,
    pub(super) owner: Owner,
    pub(super) note: Option<Note>,
}

/// The highest token that this client has heard of, for each key.
#[derive(Debug, Default)]
pub(super) struct HighestTokens(Mutex<HashMap<Key, Token>>);

impl HighestTokens {
    pub(super) fn of(&self, key: &Key) -> Token {
        let tokens = lock(&self.0);
        tokens.get(key).copied().unwrap_or_default()
    }

    pub(super) fn raise(&self, key: &Key, token: Token) {
        let mut tokens = lock(&self.0);
        if tokens.len() >= SEEN {
            tokens.clear();
        }
        let highest = tokens.entry(key.clone()).or_default();
        *highest = token.max(*highest);
    }
}
