//! Audit log entries: which claim was granted a key, and how each hold ended.
//!
//! Entries are the difference between a queue before and after a step. So the verbs do not record
//! what they do, and a store without an audit log has no cost. The Redis scripts record the same
//! entries while they run; a replay test compares both.

use serde::{Deserialize, Serialize};

use crate::{Arrival, ClientInfo, Mode, StoreTime, Token};

/// One entry of an audit log: what one atomic step of the store changed about a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The store's time of the step.
    pub at: StoreTime,
    /// What happened.
    #[serde(flatten)]
    pub event: AuditEvent,
    /// Which hold it happened to; none for [`AuditEvent::Resized`].
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub hold: Option<AuditedHold>,
}

impl AuditEntry {
    /// Makes an entry.
    #[must_use]
    pub fn new(at: StoreTime, event: AuditEvent, hold: Option<AuditedHold>) -> Self {
        Self { at, event, hold }
    }
}

/// A hold in an audit log. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditedHold {
    /// The fencing token. Claims of one owner share one.
    pub token: Token,
    /// The arrival number of the claim, which it keeps until it ends.
    pub arrival: Arrival,
    /// The first characters of the claim id.
    pub claim: String,
    /// Capacity and weight.
    pub mode: Mode,
    /// The client, as it named itself.
    pub owner: ClientInfo,
}

impl AuditedHold {
    /// Makes a hold; `claim` is the beginning of the claim id.
    #[must_use]
    pub fn new(
        token: Token,
        arrival: Arrival,
        claim: String,
        mode: Mode,
        owner: ClientInfo,
    ) -> Self {
        Self {
            token,
            arrival,
            claim,
            mode,
            owner,
        }
    }
}

/// What happened to a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditEvent {
    /// The claim was granted.
    Granted {
        /// When the store first saw the claim.
        asked: StoreTime,
        /// Granted behind this claim of the same client, in a run: it holds once those ahead of
        /// it in the run have ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<Arrival>,
    },
    /// The claim was released.
    Released {
        /// When it was granted.
        since: StoreTime,
        /// Until when the minimum hold keeps the key, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_until: Option<StoreTime>,
    },
    /// The claim had expired, and a step noticed it.
    Expired {
        /// When it was granted.
        since: StoreTime,
        /// When it expired.
        deadline: StoreTime,
        /// The first characters of the id of the claim whose request noticed it; empty if another
        /// kind of request did.
        found_by: String,
    },
    /// The store noticed that the client had died.
    Died {
        /// When it was granted.
        since: StoreTime,
        /// Until when the minimum hold keeps the key, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_until: Option<StoreTime>,
    },
    /// An administrator took the key from the claim.
    Broken {
        /// When it was granted.
        since: StoreTime,
        /// The client that did it, as it named itself.
        by: ClientInfo,
    },
    /// The grant was taken back before the claim held the key: its client did not listen, or the
    /// run ended ahead of it. The claim waits again at its former place.
    Returned,
    /// Another client has taken the claim over, under a new token. The entry names the new owner.
    Adopted {
        /// The token before.
        former: Token,
    },
    /// The claim has a new id, which the entry names.
    Rotated {
        /// The first characters of the id before.
        former: String,
    },
    /// A writer became a reader.
    Downgraded,
    /// A semaphore has another number of permits.
    Resized {
        /// The permits before.
        from: u32,
        /// The permits from now on.
        to: u32,
    },
}
