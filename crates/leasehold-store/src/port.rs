//! The trait [`LockStore`]: one step on one key, and the capabilities of a store.
//!
//! Each bullet under *Contract* is a test case of the same name in `contract/`, which every
//! store must pass.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{
    Acknowledges, Claim, Command, Inbox, Invalid, Key, Push, Snapshot, StoreTime,
};

use crate::answer::{AllAnswer, Answer};
use crate::audit::AuditLog;
use crate::error::StoreError;
use crate::listing::{Listing, drain};
use crate::sync::OnDrop;

/// The capabilities of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name: `memory`, `local`, `redis`.
    pub name: &'static str,
    /// Waiting claims form a queue: first come, first served. Without it, a claim that wants to
    /// wait is answered `Busy`, and the client retries with a new id: after [`Push::Changed`] if
    /// there are pushes, otherwise after a pause.
    pub queueing: bool,
    /// The store pushes grants to waiters. Without it, waiters poll, and an open inbox receives
    /// nothing.
    pub push: bool,
    /// Grants have fencing tokens. Without it, tokens are
    /// [`Token::NONE`](leasehold_core::Token::NONE), and nothing can be fenced.
    pub tokens: bool,
    /// Tokens keep rising after a restart of the store.
    pub durable_tokens: bool,
    /// The store keeps who holds, since when, and with which note. Without it, only a part of the
    /// claim id is shown, and another client's id is not distinguished from one's own.
    pub owners: bool,
    /// The store notices that a client has died before its claims expire.
    pub liveness: bool,
    /// Any set of keys can be claimed in one step.
    pub multi: bool,
    /// Only plain exclusive claims are supported: no readers, permits, re-entrant owners, minimum
    /// holds, rotation or adoption.
    pub exclusive_only: bool,
    /// Which answers count only after replicas or disks have acknowledged them.
    pub acknowledges: Acknowledges,
}

impl Capabilities {
    /// The capabilities of a store that queues, pushes and claims several keys in one step. A
    /// store with other capabilities changes the fields.
    #[must_use]
    pub const fn queueing(name: &'static str) -> Self {
        Self {
            name,
            queueing: true,
            push: true,
            tokens: true,
            durable_tokens: false,
            owners: true,
            liveness: false,
            multi: true,
            exclusive_only: false,
            acknowledges: Acknowledges::Nothing,
        }
    }

    /// Returns all boolean capabilities with the names of their fields, to show or compare
    /// stores.
    #[must_use]
    pub fn flags(&self) -> [(&'static str, bool); 8] {
        [
            ("queueing", self.queueing),
            ("push", self.push),
            ("tokens", self.tokens),
            ("durable_tokens", self.durable_tokens),
            ("owners", self.owners),
            ("liveness", self.liveness),
            ("multi", self.multi),
            ("exclusive_only", self.exclusive_only),
        ]
    }
}

/// Checks the arguments of [`LockStore::claim_all`]. Every store that claims several keys calls
/// it first.
///
/// # Errors
/// `Invalid` for a claim that would wait, a key that is given twice, or an invalid mode.
pub fn check_parts(parts: &[(Key, Claim)]) -> Result<(), Invalid> {
    let mut keys = BTreeSet::new();
    for (key, claim) in parts {
        claim.mode.check()?;
        if claim.wait {
            return Err(Invalid::plain(format!(
                "a claim on several keys cannot wait, and the claim on {key:?} would wait"
            )));
        }
        if !keys.insert(key) {
            let why = format!("{key:?} is claimed twice in one step");
            return Err(Invalid::new(why, "name each key once"));
        }
    }
    Ok(())
}

/// The receiver of pushes. It is called on the store's own task and must return at once.
pub trait PushSink: Send + Sync + 'static {
    /// Takes one push.
    fn push(&self, push: Push);
}

/// An open inbox. Dropping it closes the inbox and leaves nothing at the store.
pub trait Listening: Send + Sync {}

/// An open inbox, with what closes it when it is dropped.
#[doc(hidden)]
pub fn opened(closes: impl FnOnce() + Send + Sync + 'static) -> Box<dyn Listening> {
    Box::new(OnDrop::new(closes))
}

impl<C: FnOnce() + Send + Sync> Listening for OnDrop<C> {}

/// A lock store: a queue of claims for each key.
///
/// All methods can be called from many tasks at once. A future may be dropped at any point; the
/// request may then be carried out or not. All verbs are idempotent by claim id, so a retry is
/// always safe.
///
/// # Errors
/// `Unavailable`: no answer, and the outcome is unknown; with a `retry_after`, the store cannot do
/// it now, and nothing was changed. `Refused`: the store refused, and nothing was changed.
/// `Corrupt`: the key contains something else; nothing was changed. `Invalid`: the request is
/// invalid for this store. A client takes `Timeout` for `Unavailable`.
#[async_trait]
pub trait LockStore: Send + Sync + fmt::Debug + 'static {
    /// Returns what the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Applies one command to the queue of `key` atomically, and returns the reply of the queue.
    /// [`Command`] describes each command and its reply. Clients send all commands except
    /// [`Unheard`](Command::Unheard) and [`Bury`](Command::Bury), which stores use internally.
    ///
    /// # Contract
    /// A claim:
    /// - `claim_free_key_is_granted`: at once, with a token above zero where there are tokens.
    /// - `claim_held_key_waits_or_is_busy`
    /// - `claim_again_finds_itself`: same arrival, same token, never twice.
    /// - `claim_after_release_is_gone`: a released id stays released.
    /// - `claims_are_granted_in_order`
    /// - `claim_of_other_capacity_is_mismatch`
    /// - `claim_ahead_passes_waiters`
    /// - `lapsed_holder_is_passed`: nobody waits behind an expired claim.
    /// - `tokens_strictly_increase`
    /// - `claim_id_of_another_client_is_taken`
    /// - `readers_share_and_writers_exclude`
    /// - `permits_are_counted_by_weight`
    /// - `owner_enters_again_with_the_same_token`
    /// - `owner_leaves_with_its_last_claim`: in whatever order.
    /// - `waiting_claims_of_an_owner_are_granted_together`
    /// - `note_is_shown`
    ///
    /// A renewal:
    /// - `renew_raises_never_lowers`
    /// - `renew_unknown_is_gone`
    /// - `renew_keeps_place_and_token`
    /// - `downgrade_lets_readers_in_and_no_writer_between`
    /// - `rotation_replaces_the_id`: the old one is `Superseded`.
    /// - `rotation_again_finds_itself`
    /// - `concurrent_rotations_have_one_winner`
    /// - `adoption_raises_the_token_and_tells_the_former`
    /// - `adoption_raises_the_token_of_all_claims_of_the_owner`
    ///
    /// A release:
    /// - `release_hands_on_to_next`: the same step grants, and its inbox hears.
    /// - `release_twice_is_absent`
    /// - `release_unknown_is_absent`
    /// - `withdrawn_waiter_is_passed`
    /// - `minimum_hold_outlives_its_release`: it is shown as kept, and cannot be renewed.
    /// - `unused_grant_keeps_nothing`
    ///
    /// A change of the permits of a semaphore:
    /// - `resize_compares_and_sets`
    /// - `growing_promotes_at_once`
    /// - `shrinking_revokes_nothing`
    /// - `waiter_too_heavy_is_told`: by push, or when it asks again.
    /// - `resize_idle_key_is_absent`
    ///
    /// A watch, whose inbox then hears [`Push::Changed`]:
    /// - `watcher_hears_of_holders_and_notes`
    /// - `watch_ends`: when asked to, and by itself.
    ///
    /// Breaking a key:
    /// - `break_fences_holders`: they are `Gone`; the raised token is answered, theirs are
    ///   lower and later ones are higher.
    /// - `break_of_one_grant_takes_no_other`: with a token only who holds by it loses the key; if
    ///   nobody does, nothing changes.
    /// - `break_tells_holders`: their inboxes hear it.
    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError>;

    /// Claims several keys in one atomic step: all are granted at once, or nothing is changed.
    /// `None`: the store cannot do this ([`Capabilities::multi`]), or not for these keys; claim
    /// them one by one. `Invalid` if a claim would wait, or a key is given twice.
    ///
    /// # Contract
    /// - `claim_all_is_all_or_nothing`
    /// - `claim_all_again_finds_itself`
    /// - `claim_all_of_one_key_twice_is_invalid`
    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        let _ = parts;
        Ok(None)
    }

    /// Reads the holders and waiters of a key. Changes nothing.
    ///
    /// # Contract
    /// - `inspect_shows_holders_and_waiters`
    /// - `inspect_idle_key_is_empty`
    /// - `silent_holder_is_told_from_its_minimum_hold`
    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError>;

    /// Lists the keys that are held or waited for and match the glob `pattern` (`*`, `?`,
    /// `[abc]`), page by page, for any number of keys. A key that is in use the whole time is
    /// listed once. A key whose use begins or ends during the listing may be listed or not.
    ///
    /// # Contract
    /// - `listing_finds_each_live_key_once`
    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a>;

    /// Returns all pages of a [`listing`](Self::listing) as one list, sorted by name.
    ///
    /// # Contract
    /// - `list_finds_live_keys_by_pattern`
    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError> {
        drain(self.listing(pattern)).await
    }

    /// Reads the audit log of one key or of all, from `since` on: how steps changed the holders.
    /// An entry is written in the same atomic step as the change. Empty if no client keeps a log;
    /// `None` if this store cannot keep one.
    ///
    /// # Contract
    /// - `audit_says_who_held_and_how_it_ended`
    /// - `audit_log_is_followed`
    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        let _ = (key, since);
        None
    }

    /// Returns the name of this client's inbox, to which grants are pushed. Every claim of this
    /// client contains it. It is random, and constant for this store value.
    fn inbox(&self) -> &Inbox;

    /// Opens the inbox: pushes go to `sink` until the returned value is dropped. From then on no
    /// push is lost without a [`Push::Reset`]. Claims made earlier should be sent again. It can
    /// be open only once at a time.
    ///
    /// # Contract
    /// - `grant_is_pushed_to_its_inbox_only`
    /// - `next_in_line_is_told`
    /// - `closed_inbox_hears_nothing`
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError>;

    /// Returns file descriptors that a guarded child process should inherit, so that the store
    /// treats the child as part of this client. Empty if the store does not notice the death of
    /// clients.
    #[cfg(unix)]
    fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_names_of_the_fields() {
        let can = Capabilities::queueing("a store");
        let flags = can.flags().map(|(name, yes)| format!("{name}: {yes}"));
        let shown = format!("{can:?}");
        let fields = shown.split([',', '{', '}']).map(str::trim);
        let fields: Vec<_> = fields
            .filter(|field| field.ends_with(": true") || field.ends_with(": false"))
            .collect();
        assert_eq!(fields, flags);
    }
}
