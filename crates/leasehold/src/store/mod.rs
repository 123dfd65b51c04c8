//! The port between leasehold and whatever keeps its queues.
//!
//! [`LockStore`] is for implementers: few methods, no comfort. Each bullet
//! under *Contract* is a conformance case of the same name in
//! `leasehold-testkit`, which every store must pass.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Arrival, Claim, Inbox, Key, Release, Renew, Reply, Snapshot, StoreTime, Token,
};

use crate::error::StoreError;

mod glob;
#[cfg(feature = "local")]
pub mod local;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

/// What a store can do: callers ask first instead of failing later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name: `memory`, `local`, `redis`.
    pub name: &'static str,
    /// Waiting claims stand in a queue: first come, first served.
    pub queueing: bool,
    /// Waiters are told of their grants; else they ask from time to time.
    pub push: bool,
    /// Tokens keep rising after the store was restarted.
    pub durable_tokens: bool,
    /// The store sees that a client died before its claims lapse.
    pub liveness: bool,
}

impl Capabilities {
    /// A store that queues and pushes, and no more.
    #[must_use]
    pub const fn queueing(name: &'static str) -> Self {
        Self {
            name,
            queueing: true,
            push: true,
            durable_tokens: false,
            liveness: false,
        }
    }
}

/// What a store answers: the reply, and when the step was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The reply of the queue.
    pub reply: Reply,
    /// The store's time of the step.
    pub at: StoreTime,
    /// The connection epoch on which the answer came: zero while the inbox is
    /// not open, and another number each time pushes may have been missed.
    pub epoch: u64,
}

/// Something a client's inbox heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Push {
    /// A waiting claim was granted.
    Granted {
        /// The connection epoch on which it came.
        epoch: u64,
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// Its fencing token.
        token: Token,
    },
    /// A claim is next in line.
    Next {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// After how long what blocks it can lapse.
        left: Duration,
    },
    /// An administrator took the key from a holder.
    Revoked {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
    },
    /// Pushes may have been missed, and the store can be asked again: every
    /// waiting claim should.
    Reset,
}

/// Where pushes go. Called on the store's own task: it must return at once.
pub trait PushSink: Send + Sync + 'static {
    /// Takes one push.
    fn push(&self, push: Push);
}

/// An open inbox. Dropping it closes it: nothing is left at the store.
pub trait Listening: Send + Sync {}

/// A store of queues.
///
/// Every method may be called from many tasks at once, and a call's future may
/// be dropped at any point: the request may then be carried out or not. All
/// verbs are idempotent by claim id, so asking again is always safe.
///
/// # Errors
/// `Unavailable`: no answer, outcome unknown. `Refused`: the store said no, and
/// nothing was changed. `Corrupt`: something else stands at the key; it is left
/// as it is. `Invalid`: the request makes no sense to this store.
#[async_trait]
pub trait LockStore: Send + Sync + fmt::Debug + 'static {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Joins the queue of `key`, or finds itself where it already stands.
    ///
    /// # Contract
    /// - `claim_free_key_is_granted`: with a token above zero, at once.
    /// - `claim_held_key_waits_or_is_busy`
    /// - `claim_again_finds_itself`: same arrival, same token, never twice.
    /// - `claim_after_release_is_gone`: a released id stays released.
    /// - `claims_are_granted_in_order`
    /// - `claim_of_other_capacity_is_mismatch`
    /// - `claim_ahead_passes_waiters`
    /// - `lapsed_holder_is_passed`: nobody waits behind the dead.
    /// - `tokens_strictly_increase`
    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError>;

    /// Raises a claim's deadline.
    ///
    /// # Contract
    /// - `renew_raises_never_lowers`
    /// - `renew_unknown_is_gone`
    /// - `renew_keeps_place_and_token`
    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError>;

    /// Leaves the queue, holding or waiting.
    ///
    /// # Contract
    /// - `release_hands_on_to_next`: the same step grants, and its inbox hears.
    /// - `release_twice_is_absent`
    /// - `release_unknown_is_absent`
    /// - `withdrawn_waiter_is_passed`
    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError>;

    /// Takes the key from all who hold it, after raising the token.
    ///
    /// # Contract
    /// - `break_fences_holders`: they are `Gone`, later tokens are higher.
    /// - `break_tells_holders`: their inboxes hear it.
    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError>;

    /// Looks at a key; changes nothing.
    ///
    /// # Contract
    /// - `inspect_shows_holders_and_waiters`
    /// - `inspect_idle_key_is_empty`
    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError>;

    /// The keys that somebody holds or waits for, whose names match the glob
    /// `pattern` (`*`, `?`, `[abc]`), sorted by name.
    ///
    /// # Contract
    /// - `list_finds_live_keys_by_pattern`
    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError>;

    /// The name under which this client hears of its grants; every claim of
    /// this client carries it. Random, and constant for this store value.
    fn inbox(&self) -> &Inbox;

    /// Opens the inbox: its pushes go to `sink` until the answer is dropped.
    /// Once it has returned, no push is missed without a [`Push::Reset`]; a
    /// claim that was made before it should be asked for again. Open once at a time.
    ///
    /// # Contract
    /// - `grant_is_pushed_to_its_inbox_only`
    /// - `next_in_line_is_told`
    /// - `closed_inbox_hears_nothing`
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError>;

    /// File descriptors that a guarded child process should inherit, so that
    /// its life counts as the client's. Empty where the store sees no lives.
    #[cfg(unix)]
    fn lifelines(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        Vec::new()
    }
}
