//! What is shown of a deadlock.

use jiff::Timestamp;
use leasehold::{BlockedClaim, Deadlock, HolderInfo, Key};
use serde::Serialize;

use crate::duration::millis;
use crate::view::{ClaimView, time};

/// One deadlock, as `deadlocks --json` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadlockView {
    /// Who holds what and waits for what.
    pub sentence: String,
    /// When the last of them began to wait.
    pub since: Timestamp,
    /// For how long it has lasted.
    pub for_ms: u64,
    claims: Vec<BlockedView>,
}

/// A claim that waits, and what its context holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct BlockedView {
    waits_for: String,
    waiter: ClaimView,
    holds: Vec<HeldView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct HeldView {
    key: String,
    #[serde(flatten)]
    holder: ClaimView,
}

impl From<&Deadlock> for DeadlockView {
    fn from(deadlock: &Deadlock) -> Self {
        let since = deadlock.since();
        let lasts = deadlock.at.duration_since(since).unwrap_or_default();
        let held = |(key, holder): &(Key, HolderInfo)| HeldView {
            key: key.to_string(),
            holder: ClaimView::of_holder(holder, deadlock.at),
        };
        let blocked = |claim: &BlockedClaim| BlockedView {
            waits_for: claim.key.to_string(),
            waiter: ClaimView::of_waiter(&claim.waiter, deadlock.at),
            holds: claim.holds.iter().map(held).collect(),
        };
        Self {
            sentence: deadlock.to_string(),
            since: time(since),
            for_ms: millis(lasts),
            claims: deadlock.claims.iter().map(blocked).collect(),
        }
    }
}

#[cfg(test)]
impl DeadlockView {
    pub(crate) fn saying(sentence: &str) -> Self {
        Self {
            sentence: sentence.to_owned(),
            since: Timestamp::UNIX_EPOCH,
            for_ms: 0,
            claims: Vec::new(),
        }
    }
}
