//! The client's table of its claims and keys: the token that each claim has proposed, and the
//! highest token of each key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::std_ext::lock;
use leasehold_core::quorum::ReleaseVerdict;
use leasehold_core::{ClientInfo, Key, Moment, Note, StoreTime, Token, Validity};
use tokio::sync::watch;
use tokio::time::timeout;

/// So many keys whose highest token is remembered; beyond that all are
/// forgotten, and cost a further proposal at most.
const SEEN: usize = 4_096;

/// The release of a claim that is under way, for those who wait for it.
#[derive(Debug, Clone)]
pub(super) struct PendingRelease {
    verdict: watch::Receiver<Option<ReleaseVerdict>>,
    /// Whether somebody has been told that the claim held.
    told: Arc<AtomicBool>,
}

impl PendingRelease {
    pub(super) fn new() -> (watch::Sender<Option<ReleaseVerdict>>, Self) {
        let (sender, verdict) = watch::channel(None);
        let told = Arc::default();
        (sender, Self { verdict, told })
    }

    /// Waits until the claim has left: whether it held until then, which one caller is told.
    /// `None`: that is not known in time.
    pub(super) async fn held(mut self, limit: Duration) -> Option<bool> {
        let verdict = timeout(limit, self.verdict.wait_for(Option::is_some)).await;
        match *verdict.ok()?.ok()? {
            Some(ReleaseVerdict::Held) => Some(!self.told.swap(true, Ordering::AcqRel)),
            Some(ReleaseVerdict::NotHeld) => Some(false),
            None => None,
        }
    }
}

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
    pub(super) owner: ClientInfo,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The first to ask may have left before the servers answered.
    #[tokio::test]
    async fn one_caller_is_told_that_the_claim_held() {
        let (verdict, pending) = PendingRelease::new();
        let brief = Duration::from_millis(1);
        assert_eq!(pending.clone().held(brief).await, None);
        verdict.send_replace(Some(ReleaseVerdict::Held));
        assert_eq!(pending.clone().held(brief).await, Some(true));
        assert_eq!(pending.held(brief).await, Some(false));
    }
}
