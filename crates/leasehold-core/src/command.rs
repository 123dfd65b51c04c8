//! The verbs as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Arrival, AuditEntry, Capacity, ClaimId, ClientInfo, Inbox, Mode, Note, OwnerSecret, Reply,
    StoreTime, Token,
};

/// Joins the queue, or finds itself where it already stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The claim's id. The same id asked again finds the same claim.
    pub id: ClaimId,
    /// Capacity and weight.
    pub mode: Mode,
    /// How long the claim lives once granted in this step.
    pub lease_ttl: Duration,
    /// How long it lives while it waits.
    pub waiter_ttl: Duration,
    /// Whether it stays when it cannot be granted at once; else [`Reply::Busy`].
    pub wait: bool,
    /// Whether it may be granted ahead of claims that wait. Unfair.
    pub ahead: bool,
    /// Where its client hears of grants.
    pub inbox: Option<Inbox>,
    /// Who asks, for people.
    pub owner: ClientInfo,
    /// Makes the claim re-entrant: it is granted at once where its owner holds
    /// already. Counts for [`Mode::EXCLUSIVE`] only, and such a claim passes
    /// nobody ([`Claim::ahead`] does not count).
    pub secret: Option<OwnerSecret>,
    /// The least time that the key stays taken from the grant on, whatever
    /// becomes of the claim; zero for none.
    pub min_hold: Duration,
    /// What it tells the others once it holds.
    pub note: Option<Note>,
    /// Whether its client keeps the order of its own claims, so that they may be granted one
    /// right behind the other: see [`Standing::behind`](crate::Standing::behind). Counts for
    /// [`Mode::EXCLUSIVE`] without a secret and a minimum hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs: bool,
}

impl Claim {
    /// A plain claim that waits, for the waiter TTL of the design: 10 s, or the
    /// lease TTL if that is shorter.
    #[must_use]
    pub fn new(id: ClaimId, mode: Mode, lease_ttl: Duration) -> Self {
        Self {
            id,
            mode,
            lease_ttl,
            waiter_ttl: lease_ttl.min(Duration::from_secs(10)),
            wait: true,
            ahead: false,
            inbox: None,
            owner: ClientInfo::default(),
            secret: None,
            min_hold: Duration::ZERO,
            note: None,
            runs: false,
        }
    }
}

/// Raises a claim's deadline to `now + ttl`; never lowers it, since a late
/// duplicate must not shorten a lease. In the same step the claim may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renew {
    /// Which claim.
    pub id: ClaimId,
    /// How long it shall live from now.
    pub ttl: Duration,
    /// Turns a writer that holds into a reader; nothing else, and no claim with
    /// an owner's secret.
    pub downgrade: bool,
    /// Replaces the note.
    pub note: Option<Note>,
    /// Replaces the id, and perhaps the holder.
    pub rotate: Option<Rotate>,
    /// Whether it stands for the grant: where grants must be acknowledged by others, so must
    /// this be. The queue does not look at it.
    pub confirms: bool,
}

impl Renew {
    /// Raises the deadline and changes nothing else.
    #[must_use]
    pub fn new(id: ClaimId, ttl: Duration) -> Self {
        Self {
            id,
            ttl,
            downgrade: false,
            note: None,
            rotate: None,
            confirms: false,
        }
    }
}

/// Replaces a claim's id, so that one that leaked goes stale. Of concurrent
/// rotations exactly one wins; the same one asked again finds itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rotate {
    /// The new id.
    pub to: ClaimId,
    /// The version that the claim has now: 0 when made, one more with each rotation.
    pub version: u64,
    /// Also hands the claim to another client.
    pub adopt: Option<Adopt>,
}

/// Who takes a claim over. A claim that holds gets a new, higher token, and so
/// do the other claims of its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adopt {
    /// Where the new client hears.
    pub inbox: Option<Inbox>,
    /// Who it is, for people.
    pub owner: ClientInfo,
}

/// Leaves, holding or waiting. Unless settled, the id stays released: see
/// [`crate::TOMBSTONES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Release {
    /// Which claim.
    pub id: ClaimId,
    /// Whether the step hands on to the next in line (fair), or only tells it
    /// that the key is vacant (so that somebody else may come first).
    pub hand_off: bool,
    /// Whether the one request that claimed this id was answered, so that none
    /// can still be under way: then the id need not be remembered.
    pub settled: bool,
    /// Whether what it holds was never used: then no minimum hold is kept.
    pub unused: bool,
}

/// One atomic step on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// See [`Claim`]. Answered by a [`ClaimReply`](crate::ClaimReply); `Gone` says that it was
    /// released already.
    Claim(Claim),
    /// See [`Renew`]. Answered by a [`RenewReply`](crate::RenewReply); `Mismatch` is for a
    /// waiting claim that can never fit any more.
    Renew(Renew),
    /// See [`Release`]. Answered by a [`ReleaseReply`](crate::ReleaseReply).
    Release(Release),
    /// Takes the key from all who hold it: for administrators. Answered by
    /// `Broken`: a [`BreakReply`](crate::BreakReply).
    Break {
        /// Who does it, for an audit log.
        by: ClientInfo,
    },
    /// Changes the number of permits of a semaphore in use, if it is `from` now.
    /// Growing promotes at once, shrinking revokes nothing; a waiting claim that
    /// is too heavy then leaves with `Mismatch`. Answered by a
    /// [`ResizeReply`](crate::ResizeReply); `Absent` says that nobody holds or waits.
    Resize {
        /// The permits there are.
        from: u32,
        /// The permits there shall be, at least 1.
        to: u32,
    },
    /// This inbox wants to hear whenever another holds first, or its note has
    /// changed; for `ttl`, or no longer if that is zero. Answered by `Done`: a
    /// [`WatchReply`](crate::WatchReply).
    Watch {
        /// Whose.
        inbox: Inbox,
        /// For how long from now.
        ttl: Duration,
    },
    /// Nobody listens at these inboxes: cuts their claims that were granted just now, and their
    /// next waiting claims, to [`crate::UNHEARD_CUT`], and forgets their watches. Never those
    /// they hold. Answered by `Done`.
    Unheard {
        /// The silent inboxes.
        silent: Vec<Inbox>,
        /// Their claims whose grants went unheard, and for how long these had waited.
        granted: Vec<(Arrival, Duration)>,
        /// Which of them are passed over: their claims that were granted just now go back to
        /// where they stood, and the next who fit are granted.
        passed: Vec<Inbox>,
    },
    /// The clients behind these inboxes are known to be dead: drops all their claims, but for
    /// what a minimum hold keeps. All at once, so that none of them is granted what another
    /// leaves. Answered by `Done`.
    Bury {
        /// The dead clients' inboxes.
        inboxes: Vec<Inbox>,
    },
}

impl Command {
    /// The claim that it is about, as its client knows it.
    #[must_use]
    pub fn id(&self) -> Option<&ClaimId> {
        match self {
            Self::Claim(Claim { id, .. })
            | Self::Renew(Renew { id, .. })
            | Self::Release(Release { id, .. }) => Some(id),
            _ => None,
        }
    }

    /// Its name, for people and metrics.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Renew(_) => "renew",
            Self::Release(_) => "release",
            Self::Break { .. } => "break",
            Self::Resize { .. } => "resize",
            Self::Watch { .. } => "watch",
            Self::Unheard { .. } => "unheard",
            Self::Bury { .. } => "bury",
        }
    }
}

/// Something an inbox should hear. It saves time and carries no authority
/// beyond the queue's own state. A claim's id is there to be proved
/// ([`crate::Proof`]), and not to be sent: others may hear.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A waiting claim was granted.
    Granted {
        /// Who should hear it.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// Its id.
        id: ClaimId,
        /// Its fencing token.
        token: Token,
        /// Same as in [`Standing::behind`](crate::Standing::behind).
        behind: Option<Arrival>,
        /// Until when it lives without renewal.
        deadline: StoreTime,
        /// For how long it had waited.
        waited: Duration,
    },
    /// A claim is now next in line.
    Next {
        /// Who should hear it.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// The earliest time at which what blocks it can lapse.
        blocked_until: StoreTime,
    },
    /// An administrator took the key from a holder.
    Revoked {
        /// Who should hear it.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// Its id.
        id: ClaimId,
    },
    /// Another client has adopted the claim.
    Adopted {
        /// Who should hear it: the former client.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// Its id before, which the former client knows.
        id: ClaimId,
    },
    /// A waiting claim was removed, since the semaphore shrank below its weight.
    Unfit {
        /// Who should hear it.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// Its id.
        id: ClaimId,
        /// The capacity in use.
        in_use: Capacity,
    },
    /// Another holds first, or its note has changed.
    Changed {
        /// Who should hear it: one that watches.
        inbox: Inbox,
    },
}

impl Event {
    /// Who should hear it.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        match self {
            Self::Granted { inbox, .. }
            | Self::Next { inbox, .. }
            | Self::Revoked { inbox, .. }
            | Self::Adopted { inbox, .. }
            | Self::Unfit { inbox, .. }
            | Self::Changed { inbox } => inbox,
        }
    }

    /// Which claim it is about; `None` when it is about the key.
    #[must_use]
    pub fn arrival(&self) -> Option<Arrival> {
        match self {
            Self::Granted { arrival, .. }
            | Self::Next { arrival, .. }
            | Self::Revoked { arrival, .. }
            | Self::Adopted { arrival, .. }
            | Self::Unfit { arrival, .. } => Some(*arrival),
            Self::Changed { .. } => None,
        }
    }
}

/// What a step leaves behind besides the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The answer to whoever asked.
    pub reply: Reply,
    /// The store's time of the step; never goes back for a key.
    pub at: StoreTime,
    /// What to tell whom, in this order.
    pub events: Vec<Event>,
    /// What to note in the audit log, where there is one: [`Now::audited`](crate::Now::audited).
    pub audit: Vec<AuditEntry>,
}

/// A key as it can be looked at, without the claim ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// What the key can bear; `None` when nobody holds or waits.
    pub capacity: Option<Capacity>,
    /// No token of this key is higher: the last one, of all keys where the store keeps one for
    /// them together; zero if none is remembered.
    pub last_token: Token,
    /// The store's time of the look.
    pub at: StoreTime,
    /// The store's clock at the look; differs from `at` after it stepped back.
    pub clock: StoreTime,
    /// Those who hold, in order of their grants. A claim that is granted behind another of its
    /// client still waits.
    pub holders: Vec<Holder>,
    /// Those who wait, in order of arrival.
    pub waiters: Vec<WaiterView>,
}

/// What holders and waiters have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimView {
    /// The place in the order of arrival.
    pub arrival: Arrival,
    /// Capacity and weight.
    pub mode: Mode,
    /// Who.
    pub owner: ClientInfo,
    /// When it joined (a waiter) or was granted (a holder).
    pub since: StoreTime,
    /// Until when it lives without renewal.
    pub deadline: StoreTime,
    /// The first characters of the claim id.
    pub id_hint: String,
    /// What it tells the others.
    pub note: Option<Note>,
    /// Whether it has left, and only its minimum hold keeps the key.
    pub kept: bool,
    /// Of a holder with a minimum hold: until when its client has renewed it. After that
    /// the client has stopped or cannot be reached, and only the minimum hold keeps the
    /// key until the deadline.
    pub renewed: Option<StoreTime>,
}

/// One who holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The claim.
    pub claim: ClaimView,
    /// Its fencing token.
    pub token: Token,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WaiterView {
    /// The claim.
    pub claim: ClaimView,
    /// 1 is next.
    pub position: u64,
}
