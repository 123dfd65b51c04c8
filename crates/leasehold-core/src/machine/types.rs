//! The types of a claim's state machine.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::timing::GRACE;
use crate::{
    Arrival, Backoff, Capacity, ClaimId, Command, Moment, Note, Reply, StoreTime, Token, Validity,
};

/// Which answers of a store count only after replicas or disks have acknowledged them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Acknowledges {
    /// None: every answer counts at once.
    #[default]
    Nothing,
    /// Grants. A pushed grant is confirmed by a renewal before it is used.
    Grants,
    /// Grants and renewals.
    GrantsAndRenewals,
}

/// The settings of a claim: how it is renewed and released.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub struct Terms {
    /// How long it lives without renewal once it is granted.
    pub ttl: Duration,
    /// How long it lives while it waits.
    pub waiter_ttl: Duration,
    /// How long an operation of the store may take; a change of a held claim is retried for so long.
    pub operation: Duration,
    /// Who renews it once it is granted.
    pub policy: RenewalPolicy,
    /// Whether its release grants the key to the next waiter.
    pub hand_off: bool,
    /// The maximum hold: how long renewals keep it.
    pub max_hold: Option<Duration>,
    /// How often its id is replaced while it is held.
    pub rotate_every: Option<Duration>,
    /// Which answers count only after replicas or disks have acknowledged them.
    pub acknowledges: Acknowledges,
}

/// The time limits of a call, and of the claims that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deadlines {
    /// When the call began.
    pub began: Moment,
    /// When to give up waiting. At least one request is sent.
    pub give_up: Option<Moment>,
    /// When the call ends, whatever it waits for.
    pub stop: Option<Moment>,
    /// The seed of random pauses.
    pub seed: u64,
}

impl Deadlines {
    /// Makes those of a call that begins at `now` and waits without a time limit.
    #[must_use]
    pub fn new(now: Moment, seed: u64) -> Self {
        Self {
            began: now,
            give_up: None,
            stop: None,
            seed,
        }
    }

    /// The same, for a call that waits for at most `limit`.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        let give_up = self.began + limit;
        Self {
            give_up: Some(give_up),
            stop: Some(give_up + GRACE),
            ..self
        }
    }

    /// The same, for a call that does not wait: the answer must come within `operation`.
    #[must_use]
    pub fn without_waiting(self, operation: Duration) -> Self {
        Self {
            stop: Some(self.began + operation),
            ..self
        }
    }

    /// Returns whether the call waits for a key that is busy.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.give_up.is_some() || self.stop.is_none()
    }

    /// Returns how long the call still waits for the key.
    #[must_use]
    pub fn left_to_wait(&self, now: Moment) -> Duration {
        self.give_up.map_or(Duration::MAX, |end| end.since(now))
    }

    /// Returns how much time is left to the call.
    #[must_use]
    pub fn left(&self, now: Moment) -> Duration {
        self.stop.map_or(Duration::MAX, |stop| stop.since(now))
    }

    /// The store counts as unreachable if it does not answer a claim that is made at `now` for
    /// this long.
    pub(super) fn patience(&self, operation: Duration, now: Moment) -> Duration {
        let first_answer = self.left_to_wait(now).max(GRACE);
        operation.min(first_answer).min(self.left(now))
    }
}

/// Tells the claims of one client apart. Later claims have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimNumber(pub u64);

/// The phase of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not answered yet.
    Asking,
    /// It waits in the queue.
    Waiting,
    /// It was granted, and perhaps lost since.
    Held,
    /// It is being released, until that is confirmed or it has expired anyway.
    Leaving,
    /// Nothing of it can be left at the store.
    Over,
}

/// Why a claim ended before its caller had the lease. Its [`number`](Self::number) stays, for bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// Another client has the key, for this long if it does not renew, and the claim did not want
    /// to wait.
    Busy(Duration),
    /// The store grants nothing for this long (quarantine), and the claim did not want to wait.
    Quarantined(Duration),
    /// The time limit for waiting is over, and others have the key: the store has answered since,
    /// or has confirmed that the claim left the queue.
    TimedOut,
    /// The store did not answer for too long.
    Unreachable,
    /// The store refused the only request, and nothing was changed.
    Refused,
    /// The claim has expired or was removed. A new claim with a new id may join the queue at the
    /// end.
    Gone,
    /// The claim that was to be taken over has another id by now, or the store may have lost data.
    Superseded,
    /// The key is in use with another capacity, or one too small for the claim.
    Mismatch(Capacity),
    /// The claim id belongs to another claim.
    Taken,
    /// It was granted, but too few have acknowledged the grant, so it is invalid.
    Unacknowledged,
    /// It was granted, but the lease had expired before the grant arrived.
    Late,
    /// Too many claims in a row were [`End::Late`]: the TTL is too short for this store.
    TooLate,
}

impl End {
    /// Returns its number, from 1 on.
    #[must_use]
    pub fn number(self) -> u8 {
        self.known_as().0
    }

    /// Returns its name in logs, metrics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.known_as().1
    }

    fn known_as(self) -> (u8, &'static str) {
        match self {
            Self::Busy(_) => (1, "busy"),
            Self::Quarantined(_) => (2, "quarantined"),
            Self::TimedOut => (3, "timed-out"),
            Self::Unreachable => (4, "unreachable"),
            Self::Refused => (5, "refused"),
            Self::Gone => (6, "gone"),
            Self::Superseded => (7, "superseded"),
            Self::Mismatch(_) => (8, "mismatch"),
            Self::Taken => (9, "id-taken"),
            Self::Unacknowledged => (10, "not-acknowledged"),
            Self::Late => (11, "granted-too-late"),
            Self::TooLate => (12, "granted-too-late"),
        }
    }
}

/// A request to send for a claim.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Transmit {
    /// The step.
    pub command: Arc<Command>,
    /// When it was sent: validity counts from then.
    pub sent: Moment,
    /// It counts as unanswered if there is no answer for this long. That leaves time for a retry.
    pub limit: Duration,
    pub(super) errand: RequestKind,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RequestKind {
    /// To bring the claim into being.
    Ask,
    /// To keep it.
    Beat,
    /// What its caller wants.
    Change(ChangeId),
    /// To leave.
    Leave,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Response {
    /// What was answered.
    pub reply: Reply,
    /// The store's time of the step.
    pub at: StoreTime,
    /// The connection epoch on which it arrived. On epoch zero no pushes are received.
    pub epoch: u64,
    /// Whether enough replicas or disks have acknowledged it, if there is a policy.
    pub enough: Option<bool>,
}

impl Response {
    /// A grant that does not count, since too few have it.
    pub(super) fn is_short(&self) -> bool {
        self.enough == Some(false) && self.reply.has_token()
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No answer arrived: it is unknown whether the step was taken.
    Unanswered,
    /// The store has answered that it cannot take the step now; it was not taken.
    NotNow,
    /// The store has refused the step; it was not taken.
    Refused,
}

/// What is to be sent for a claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// Ask for the key, with both TTLs.
    Claim,
    /// Raise the deadline by this much.
    Renew(Duration),
}

/// The key is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    /// The place in the order of arrival.
    pub(super) arrival: Arrival,
    /// The fencing token.
    pub(super) token: Token,
    /// Until when to rely on it.
    pub(super) validity: Validity,
    /// When the first renewal is due if the grant still lives on the waiter TTL; `None` when it has
    /// the lease TTL.
    pub(super) confirm_at: Option<Moment>,
}

/// What a claim in a run is told of the one directly ahead.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunNews {
    /// It was passed on, under this token (`ClaimMachine::passed`).
    Turn(Arrival, Token),
    /// It was lost, or has ended without passing the hold on: the claim asks the store.
    Ended(Arrival),
    /// Its client does not know it, and may learn of it soon.
    Unknown(Arrival),
    /// It belongs to its client.
    Known,
}

/// The id of a change of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChangeId(pub(super) u32);

/// Who renews a lease, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RenewalPolicy {
    /// The watchdog renews it when this share of the TTL is over (between 0 and 1).
    Automatic(f64),
    /// The caller renews it.
    Manual,
    /// Nobody renews it: the lease ends after its TTL.
    Fixed,
}

impl Hash for RenewalPolicy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        if let Self::Automatic(share) = self {
            // Both zeros are one share.
            (share + 0.0).to_bits().hash(state);
        }
    }
}

/// Why a lease was lost. Its number (`loss as u8`) stays, for bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Loss {
    /// The store no longer has the claim: another client may hold the key.
    Gone = 1,
    /// The store has the claim, but not this grant. It lost the grant, for example when a replica
    /// was promoted, or it gave a new one because another claim of the owner was adopted. Another
    /// client may hold the key.
    Forgotten = 2,
    /// No renewal succeeded while the lease was valid: none was answered, or the store refused
    /// them, or too few acknowledged them.
    Unanswered = 3,
    /// The TTL is over, and the lease is not renewed automatically.
    Expired = 4,
    /// An administrator broke the key.
    Revoked = 5,
    /// Another client has adopted the claim, or its id was replaced elsewhere.
    Superseded = 6,
    /// It was held for its maximum time.
    MaxHold = 7,
    /// It was handed over to another process.
    HandedOver = 8,
    /// The client was shut down and released the lease.
    Shutdown = 9,
    /// This process was forked from the one that has the lease.
    Forked = 10,
}

impl Loss {
    /// Returns its name in logs, metrics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Forgotten => "forgotten",
            Self::Unanswered => "unanswered",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Superseded => "superseded",
            Self::MaxHold => "max-hold",
            Self::HandedOver => "handed-over",
            Self::Shutdown => "shutdown",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => {
                "the store no longer has the claim: it was broken, it expired, or the store lost \
                 data"
            }
            Self::Forgotten => "the store no longer knows this grant",
            Self::Unanswered => "no renewal succeeded before the lease ended",
            Self::Expired => "its TTL is over, and it is not renewed automatically",
            Self::Revoked => "an administrator broke the lock",
            Self::Superseded => "another process has taken over the claim",
            Self::MaxHold => "it was held for its maximum time",
            Self::HandedOver => "it was handed over to another process",
            Self::Shutdown => "the client was shut down",
            Self::Forked => "this process was forked from the one that has the lease",
        })
    }
}

/// The state of a lease, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Held: the last renewal was answered.
    Held,
    /// Unknown: the last renewal failed; the lease is still valid.
    Unknown,
    /// Lost: the lease is not held any more, or not valid any more.
    Lost(Loss),
}

/// A change of a lease that its caller requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Renew it for this long from now, or for its whole TTL, within its maximum hold.
    Renew(Option<Duration>),
    /// Replace its id by this one. If another rotation is in progress, that one is completed
    /// instead.
    Rotate(ClaimId),
    /// Downgrade it to a reader.
    Downgrade,
    /// Publish this note.
    Note(Note),
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The change was made.
    Done,
    /// The lease is lost.
    Lost,
    /// The new id belongs to another claim; nothing was changed.
    Taken,
    /// The store has refused it.
    Refused,
    /// No answer within the operation time-out.
    Unanswered,
    /// Too few replicas or disks have acknowledged it.
    Unacknowledged,
}

/// The purpose of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Aim {
    Caller(Change),
    /// A grant that others must acknowledge.
    Confirm,
    /// Renew once, whatever the result, a lease that took too long on its way to its caller.
    TopUp,
    /// Before a hand-over: make sure that the claim has one id and lives for a whole TTL.
    Settle,
}

/// A change that was requested, until its result was taken.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Changing {
    pub(super) id: ChangeId,
    pub(super) aim: Aim,
    pub(super) until: Moment,
    pub(super) due: Moment,
    pub(super) in_flight: bool,
    pub(super) pauses: Backoff,
    pub(super) outcome: Option<Changed>,
}

impl Changing {
    pub(super) fn due(&self) -> Option<Moment> {
        (!self.in_flight && self.outcome.is_none()).then_some(self.due)
    }
}
