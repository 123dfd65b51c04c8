//! The port itself: one step on one key, and what a store says of itself.
//!
//! Each bullet under *Contract* is a case of the same name in `contract.rs`, which every store
//! must pass.

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

/// What a store can do: callers ask first instead of failing later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name: `memory`, `local`, `redis`.
    pub name: &'static str,
    /// Waiting claims stand in a queue: first come, first served. Else a claim
    /// that wants to wait is `Busy`, and is to be asked for again, with a new id;
    /// where there are pushes, [`Push::Changed`] says when that is worthwhile, else the
    /// client asks from time to time.
    pub queueing: bool,
    /// Waiters are told of their grants; else they ask from time to time, and an
    /// inbox that was opened hears nothing.
    pub push: bool,
    /// Grants have fencing tokens. Else they are
    /// [`Token::NONE`](leasehold_core::Token::NONE), and nothing can be fenced.
    pub tokens: bool,
    /// Tokens keep rising after the store was restarted.
    pub durable_tokens: bool,
    /// It keeps who holds, since when, and with which note. Else people see a part
    /// of the claim id only, and another client's id is not told from one's own.
    pub owners: bool,
    /// The store sees that a client died before its claims lapse.
    pub liveness: bool,
    /// Several keys can be claimed in one step, whichever they are.
    pub multi: bool,
    /// Only plain exclusive claims: no readers, permits, re-entrant owners and
    /// minimum holds, and a claim's id and client stay what they are.
    pub exclusive_only: bool,
    /// Which of its answers count only once others have acknowledged them.
    pub acknowledges: Acknowledges,
}

impl Capabilities {
    /// A store that queues, pushes and claims several keys in one step, and no
    /// more. A store that can do more or less changes fields of it.
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

    /// All that it says yes or no to, by the names of the fields: for those who show or compare
    /// stores.
    #[must_use]
    pub fn flags(&self) -> [(&'static str, bool); 8] {
        let Self {
            name: _,
            queueing,
            push,
            tokens,
            durable_tokens,
            owners,
            liveness,
            multi,
            exclusive_only,
            acknowledges: _,
        } = *self;
        [
            ("queueing", queueing),
            ("push", push),
            ("tokens", tokens),
            ("durable_tokens", durable_tokens),
            ("owners", owners),
            ("liveness", liveness),
            ("multi", multi),
            ("exclusive_only", exclusive_only),
        ]
    }
}

/// Refuses what [`LockStore::claim_all`] cannot be asked for. Every store that
/// takes several keys calls it first.
///
/// # Errors
/// `Invalid` for a claim that would wait, a key that is there twice, or a mode that
/// makes no sense.
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
            return Err(Invalid::new(
                format!("{key:?} is claimed twice in one step"),
                "name each key once",
            ));
        }
    }
    Ok(())
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

    /// Takes one step on the queue of `key`, atomically, and answers what the queue replies.
    /// What each command does and answers is said at [`Command`]; a client sends all of them but
    /// [`Unheard`](Command::Unheard) and [`Bury`](Command::Bury), which are the store's own.
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
    /// - `lapsed_holder_is_passed`: nobody waits behind the dead.
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
    /// - `break_tells_holders`: their inboxes hear it.
    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError>;

    /// Claims several keys in one atomic step: all are granted at once, or
    /// nothing is changed. `None`: this store cannot
    /// ([`Capabilities::multi`]), or not for these keys; they are to be claimed
    /// one by one. `Invalid` where a claim would wait, or a key is there twice.
    ///
    /// # Contract
    /// - `claim_all_is_all_or_nothing`
    /// - `claim_all_again_finds_itself`
    /// - `claim_all_of_one_key_twice_is_invalid`
    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        let _ = parts;
        Ok(None)
    }

    /// Looks at a key; changes nothing.
    ///
    /// # Contract
    /// - `inspect_shows_holders_and_waiters`
    /// - `inspect_idle_key_is_empty`
    /// - `silent_holder_is_told_from_its_minimum_hold`
    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError>;

    /// The keys that somebody holds or waits for, whose names match the glob `pattern`
    /// (`*`, `?`, `[abc]`), in pages, for any number of keys. A key that is live all the time is
    /// found once; one that comes or goes meanwhile may be found or not.
    ///
    /// # Contract
    /// - `listing_finds_each_live_key_once`
    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a>;

    /// All pages of a [`listing`](Self::listing) as one list, sorted by name.
    ///
    /// # Contract
    /// - `list_finds_live_keys_by_pattern`
    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError> {
        drain(self.listing(pattern)).await
    }

    /// The audit log from that time on, of one key or of all: what steps changed about who holds,
    /// noted in the same atomic steps. Empty where no client keeps one; `None`: this store cannot.
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
