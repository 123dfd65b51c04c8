//! The core of leasehold: the state machines of lock queues, claims and quorums, without I/O.
//!
//! It has no async code, no I/O, no clock and no randomness: time and seeds are arguments. It has
//! two halves:
//!
//! - the **store's half**: [`Queue`] is the specification of a key. A store applies one
//!   [`Command`] at a time and delivers the [`Event`]s. The memory and local stores run this
//!   code. Redis runs the same rules in Lua, and a replay test compares both.
//! - the **client's half**: [`KeyMachine`] is the mirror of a key at its client: all of the
//!   client's claims on it, each from before its first request until nothing of it is left at the
//!   store. Its inputs are `handle_*` and the requests of callers, its outputs are `poll_*`, and
//!   its next deadline is `poll_timeout`. [`Rejoining`] decides when to make another claim.
//!
//! For several independent servers that decide by majority, [`quorum`] has both halves.
//!
//! The one rule: *a claim is granted when the weights of the claims ahead of
//! it, plus its own, fit the key's capacity.*

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod audit;
mod backoff;
mod claim;
mod command;
mod context;
pub mod deadlock;
mod key;
mod kind;
mod machine;
mod marker;
mod owner;
mod proposal;
mod push;
mod queue;
pub mod quorum;
mod reply;
mod text;
mod time;
mod token;
mod validity;

pub use audit::{AuditEntry, AuditEvent, AuditedHold};
pub use backoff::{Backoff, Pauses, Retry};
pub use claim::{Arrival, ClaimId, Inbox, Note};
pub use command::{
    Adopt, Claim, ClaimView, Command, Event, Holder, Outcome, Release, Renew, Rotate, Snapshot,
    WaiterView,
};
pub use context::ClaimContext;
pub use key::Key;
pub use kind::{Capacity, Mode};
pub use machine::{
    Acknowledges, Change, ChangeId, Changed, ClaimMachine, ClaimNumber, Deadlines, End, Fact,
    Facts, Failure, GRACE, HintLimit, KeyMachine, LeaseState, Loss, Phase, Rejoining,
    RenewalPolicy, Response, Terms, Transmit,
};
pub use marker::{Closed, Marked, ServerMarker, SetTerms};
pub use owner::{ClientInfo, OwnerSecret};
pub use proposal::{Proposal, Void, Voided};
pub use push::{Proof, Push};
pub use queue::{
    DROPS_PER_STEP, FOLLOWERS_PER_STEP, PROMOTED_FLOOR, Queue, RUN, TOMBSTONE_LIFE, TOMBSTONES,
    UNHEARD_CUT, record,
};
pub use reply::{
    BreakReply, ClaimReply, ReleaseReply, RenewReply, Reply, ResizeReply, Standing, WatchReply,
};
#[doc(hidden)]
pub use text::check_word;
pub use time::{Moment, Now, StoreTime, written};
pub use token::Token;
pub use validity::{Validity, drift_allowance};

/// The error of an invalid value: one sentence, and optionally a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Invalid {
    /// What is wrong, with the value and its bounds.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl Invalid {
    /// Makes an error with a hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), Some(hint.into()));
        Self { message, hint }
    }

    /// Makes an error without a hint.
    pub fn plain(message: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), None);
        Self { message, hint }
    }
}
