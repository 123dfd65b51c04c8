//! The request for a key, and its result.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Capacity, Claim, ClaimId, ClientInfo, Key, Limits, Mode, Moment, Note, OwnerSecret, Retry,
    Terms, written,
};

use super::timing::GRACE;
use super::{Session, no_answer, random_u64, unanswered};
use crate::clock;
use crate::deadlock::DeadlockCheck;
use crate::error::{ErrorKind, StoreError};
use crate::sync::timeout;

/// What is wanted, and how.
#[derive(Debug, Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) terms: Arc<Terms>,
    pub(crate) ahead: bool,
    /// Instead of standing in the queue: ask again and again.
    pub(crate) retry: Option<Retry>,
    pub(crate) owner: ClientInfo,
    pub(crate) secret: Option<OwnerSecret>,
    pub(crate) min_hold: Duration,
    pub(crate) note: Option<Note>,
    pub(crate) deadlock: Option<DeadlockCheck>,
}

impl AcquireRequest {
    /// The claim as the store is asked for it.
    pub(super) fn claim(&self, session: &Session, id: ClaimId, wait: bool) -> Claim {
        Claim {
            waiter_ttl: self.terms.waiter_ttl,
            wait,
            ahead: self.ahead,
            inbox: Some(session.store.inbox().clone()),
            owner: self.owner.clone(),
            secret: self.secret,
            min_hold: self.min_hold,
            note: self.note.clone(),
            // What nobody tells of a lost connection cannot be passed on without the store.
            runs: self.terms.hand_off && !self.ahead && session.store.capabilities().push,
            ..Claim::new(id, self.mode, self.terms.ttl)
        }
    }
}

/// How long to wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all: the answer must come by then.
    No(Moment),
    /// For so long, which is over then.
    Until(Moment, Duration),
    Forever,
}

impl Patience {
    /// How much is left of it.
    pub(crate) fn left(self) -> Duration {
        match self {
            Self::Until(end, _) => end.since(clock::now()),
            Self::No(_) | Self::Forever => Duration::MAX,
        }
    }

    /// When the call ends whatever it waits for: the one allowance is used up.
    pub(super) fn stop(self) -> Option<Moment> {
        match self {
            Self::No(stop) => Some(stop),
            Self::Until(end, _) => Some(end + GRACE),
            Self::Forever => None,
        }
    }

    /// How much is left until then.
    pub(super) fn left_to_stop(self) -> Duration {
        let stop = self.stop();
        stop.map_or(Duration::MAX, |stop| stop.since(clock::now()))
    }

    /// Awaits `work` until then, and drops it if it is not done.
    pub(crate) async fn within<T>(self, work: impl Future<Output = T>) {
        timeout(self.left_to_stop(), work).await.ok();
    }

    pub(super) fn limits(self, operation: Duration) -> Limits {
        let give_up = match self {
            Self::Until(end, _) => Some(end),
            Self::No(_) | Self::Forever => None,
        };
        let patience = self.left().max(GRACE).min(self.left_to_stop());
        Limits {
            give_up,
            patience: operation.min(patience),
            operation,
            seed: random_u64(),
        }
    }

    /// That the store gave no answer; and which limit that was. `in_line`: it kept a place, and
    /// the store had so long to answer.
    pub(super) fn unanswered(self, operation: Duration, in_line: Option<Duration>) -> StoreError {
        let limit = match (self, in_line) {
            (Self::Until(end, limit), _) if clock::now() >= end => {
                let said = written(limit);
                if limit < GRACE {
                    format!("{}; the time limit of the call is {said}", written(GRACE))
                } else {
                    format!("{said}, the time limit of the call")
                }
            }
            (_, Some(waiter_ttl)) if waiter_ttl > operation => {
                format!("{}, the waiter TTL", written(waiter_ttl))
            }
            _ => return unanswered(operation),
        };
        no_answer(&limit)
    }
}

pub(crate) fn timed_out() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "it did not become free in time")
}

/// The store may have forgotten who holds.
pub(super) fn quarantined(left: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Refused,
        format!(
            "the store has restarted or may have lost data: it grants nothing for {left:.1?} \
             (quarantine)"
        ),
    )
    .with_hint("wait, as `lock` does; `leasehold init` marks a server that is new")
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
    let error = StoreError::new(
        ErrorKind::Invalid,
        format!("the key is in use as {in_use}, and {asked_for}"),
    );
    match (asked.capacity(), in_use) {
        (Capacity::Permits(_), Capacity::Permits(_)) => error.with_hint(
            "all clients of a semaphore must use the same number of permits; `resize` changes it",
        ),
        _ => error.with_hint(
            "use another key, or the same kind of lock: a key has one kind at a \
         time",
        ),
    }
}
