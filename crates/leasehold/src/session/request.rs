//! The request for a key, and why it failed.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Capacity, Claim, ClaimId, ClientInfo, Deadlines, End, GRACE, Invalid, Key, Mode, Note,
    OwnerSecret, Retry, Terms, written,
};

use super::{Session, no_answer, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::Capabilities;

/// What is wanted, and how.
#[derive(Debug, Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) terms: Arc<Terms>,
    /// Instead of standing in the queue: ask again and again.
    pub(crate) retry: Option<Retry>,
    pub(crate) owner: ClientInfo,
    pub(crate) secret: Option<OwnerSecret>,
    pub(crate) min_hold: Duration,
    pub(crate) note: Option<Note>,
    /// The first option that was out of bounds.
    pub(crate) invalid: Option<Box<Invalid>>,
}

impl AcquireRequest {
    /// Refuses what cannot be asked for.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let option = self.invalid.as_deref().cloned();
        option.map_or_else(|| self.mode.check(), Err)?;
        Ok(())
    }

    /// The claim as the store is asked for it.
    pub(super) fn claim(&self, session: &Session, id: ClaimId, wait: bool) -> Claim {
        Claim {
            waiter_ttl: self.terms.waiter_ttl,
            wait,
            // A release that leaves the key free, and a claim that passes others: both are unfair.
            ahead: !self.terms.hand_off,
            inbox: Some(session.store.inbox().clone()),
            owner: self.owner.clone(),
            secret: self.secret,
            min_hold: self.min_hold,
            note: self.note.clone().filter(|it| !it.as_str().is_empty()),
            // What nobody tells of a lost connection cannot be passed on without the store.
            runs: self.terms.hand_off && session.store.capabilities().push,
            ..Claim::new(id, self.mode, self.terms.ttl)
        }
    }
}

/// That the store gave no answer to a call; and which limit that was. `in_line`: its claim kept a
/// place, and the store had the waiter TTL to answer.
pub(crate) fn call_unanswered(terms: &Terms, deadlines: Deadlines, in_line: bool) -> StoreError {
    let limit = match deadlines.give_up {
        Some(end) if clock::now() >= end => {
            let limit = end.since(deadlines.began);
            let said = written(limit);
            if limit < GRACE {
                format!("{}; the time limit of the call is {said}", written(GRACE))
            } else {
                format!("{said}, the time limit of the call")
            }
        }
        _ if in_line && terms.waiter_ttl > terms.operation => {
            format!("{}, the waiter TTL", written(terms.waiter_ttl))
        }
        _ => return unanswered(terms.operation),
    };
    no_answer(&limit)
}

pub(crate) fn timed_out() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "it did not become free in time")
}

/// The claim that was to be taken over is not there.
pub(super) fn nothing_to_adopt(end: End) -> StoreError {
    let why = match end {
        End::Superseded => {
            "another process has taken over the claim, its id was replaced, or the store may have \
             lost data"
        }
        _ => "the claim no longer exists: it was released or broken, or has expired",
    };
    let hint = "recover it instead: that makes a new claim in that case";
    StoreError::new(ErrorKind::Lost, why).with_hint(hint)
}

/// Refuses new claim ids where the store has none. A renewal that carries one would be refused, too, and
/// each one after it.
pub(crate) fn check_rotation(can: Capabilities) -> Result<(), StoreError> {
    if !can.exclusive_only {
        return Ok(());
    }
    let why = format!("{} stores cannot replace claim ids", can.name);
    let hint = "use a store that has rotations, such as redis:// without layout=classic";
    Err(StoreError::new(ErrorKind::Unsupported, why).with_hint(hint))
}

/// Ids end in 64 random bits, so this is another claim's id by the choice of whoever made it.
pub(crate) fn id_taken() -> StoreError {
    StoreError::new(ErrorKind::Invalid, "the claim id belongs to another claim")
}

pub(super) fn too_late(ttl: Duration) -> StoreError {
    let message = format!(
        "the store is too slow for a TTL of {}: every lease had expired before its grant arrived",
        written(ttl)
    );
    StoreError::new(ErrorKind::Unavailable, message)
        .with_hint("choose a longer TTL, or find out why the store is slow")
}

/// The store may have forgotten who holds.
pub(super) fn quarantined(left: Duration) -> StoreError {
    let message = format!(
        "the store has restarted or may have lost data: it grants nothing for {left:.1?} \
         (quarantine)"
    );
    StoreError::new(ErrorKind::Refused, message)
        .with_hint("wait, as `lock` does; `leasehold init` marks a server that never had data")
        .with_retry_after(left)
}

/// The key is another kind of lock, or a semaphore of another size.
pub(crate) fn mismatch(asked: Mode, in_use: Capacity) -> StoreError {
    let asked_for = match (asked.capacity(), in_use) {
        (Capacity::Permits(_), Capacity::Permits(_)) if asked.weight() > in_use.units() => {
            format!("{} permits were asked for", asked.weight())
        }
        _ => format!("{} was asked for", asked.capacity()),
    };
    let message = format!("the key is in use as {in_use}, and {asked_for}");
    StoreError::new(ErrorKind::Invalid, message).with_hint(match (asked.capacity(), in_use) {
        (Capacity::Permits(_), Capacity::Permits(_)) => {
            "name the number of permits that the semaphore has; `resize` changes it"
        }
        _ => "use another key, or the same kind of lock: a key has one kind at a time",
    })
}
