//! What an audit log says of a key: who was granted it, and how each hold ended.
//!
//! An entry is the difference between a queue before a step and after it, so the verbs keep no
//! account of what they do, and a store without an audit log pays nothing. The scripts of Redis
//! note the same as they go, and are replayed against this.

use serde::{Deserialize, Serialize};

use crate::{Arrival, ClientInfo, Mode, StoreTime, Token};

/// One entry of an audit log: what one atomic step of the store changed about a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// A hold as an audit log names it. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuditedHold {
    /// The fencing token. Claims of one owner share one.
    pub token: Token,
    /// The claim's place in the order of arrival, which it keeps until it ends.
    pub arrival: Arrival,
    /// The first characters of the claim id.
    pub claim: String,
    /// Capacity and weight.
    pub mode: Mode,
    /// The client, as it has named itself.
    pub owner: ClientInfo,
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
        /// Its minimum hold keeps the key until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_until: Option<StoreTime>,
    },
    /// The claim had expired, and a step found it so.
    Expired {
        /// When it was granted.
        since: StoreTime,
        /// When it expired.
        deadline: StoreTime,
        /// The first characters of the id of the claim whose request found it; empty if another
        /// request did.
        found_by: String,
    },
    /// The store saw that the client had died.
    Died {
        /// When it was granted.
        since: StoreTime,
        /// Its minimum hold keeps the key until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_until: Option<StoreTime>,
    },
    /// An administrator took the key from the claim.
    Broken {
        /// When it was granted.
        since: StoreTime,
        /// Who did it, as that client has named itself.
        by: ClientInfo,
    },
    /// The grant was taken back before the claim held the key: nobody listened for it, or the
    /// run ended ahead of it. The claim waits again where it stood.
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
