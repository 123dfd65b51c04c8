//! The commands of a store and their results, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Arrival, AuditEntry, Capacity, ClaimId, ClientInfo, Inbox, Mode, Note, OwnerSecret, Proposal,
    Reply, StoreTime, Token, Void, Voided,
};

/// Joins the queue of a key, or finds the same claim in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The claim's id. A repeated command with the same id finds the same claim.
    pub id: ClaimId,
    /// Capacity and weight.
    pub mode: Mode,
    /// How long the claim lives if it is granted in this step.
    pub lease_ttl: Duration,
    /// How long it lives while it waits.
    pub waiter_ttl: Duration,
    /// Whether it waits if it cannot be granted at once; if not, the reply is [`Reply::Busy`].
    pub wait: bool,
    /// Whether it may be granted ahead of waiting claims. Unfair.
    pub ahead: bool,
    /// The inbox to which grants are pushed.
    pub inbox: Option<Inbox>,
    /// The client, for display.
    pub owner: ClientInfo,
    /// Makes the claim re-entrant: it is granted at once if its owner already holds the key. Only
    /// for [`Mode::EXCLUSIVE`]. Such a claim overtakes nobody else ([`Claim::ahead`] is ignored).
    pub secret: Option<OwnerSecret>,
    /// The minimum time for which the key stays taken from the grant on, even if the claim ends
    /// earlier; zero for none.
    pub min_hold: Duration,
    /// The note that is published while it holds.
    pub note: Option<Note>,
    /// Whether its client orders its own claims, so that they may be granted one behind the
    /// other: see [`Standing::behind`](crate::Standing::behind). Only for [`Mode::EXCLUSIVE`]
    /// without a secret and a minimum hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs: bool,
    /// At a member of a set: the token that it is granted with, or is not granted at all. Only
    /// for [`Mode::EXCLUSIVE`] without a secret and a minimum hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
}

impl Claim {
    /// Makes a plain claim that waits, with the default waiter TTL: 10 s, or the lease TTL if
    /// that is shorter.
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
            proposal: None,
        }
    }
}

/// Raises a claim's deadline to `now + ttl`. It never lowers the deadline, since a late duplicate
/// must not shorten a lease. The claim may change in the same step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renew {
    /// The claim.
    pub id: ClaimId,
    /// How long it lives from now on.
    pub ttl: Duration,
    /// Downgrades a holding writer to a reader. Not possible for other claims, or for a claim
    /// with an owner's secret.
    pub downgrade: bool,
    /// Replaces the note.
    pub note: Option<Note>,
    /// Replaces the id, and optionally the client.
    pub rotate: Option<Rotate>,
    /// Whether it confirms the grant: if grants must be acknowledged, so must this renewal. The
    /// queue ignores it.
    pub confirms: bool,
}

impl Renew {
    /// Makes a renewal that raises the deadline and changes nothing else.
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

/// Replaces a claim's id, so that a leaked id becomes useless. Of concurrent rotations exactly
/// one succeeds; if it is repeated, it succeeds again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rotate {
    /// The new id.
    pub to: ClaimId,
    /// The current version of the id: 0 for a new claim, one more with each rotation.
    pub version: u64,
    /// Also hands the claim to another client.
    pub adopt: Option<Adopt>,
}

/// The client that takes over a claim. A holding claim gets a new, higher token, and so do the
/// other claims of its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adopt {
    /// The inbox of the new client.
    pub inbox: Option<Inbox>,
    /// The new client, for display.
    pub owner: ClientInfo,
}

/// Removes a claim, holding or waiting. The id stays released, unless it is settled: see
/// [`crate::TOMBSTONES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Release {
    /// The claim.
    pub id: ClaimId,
    /// Whether the step grants the key to the next waiter (fair), or only notifies it that the
    /// key is free (so that another client may be faster).
    pub hand_off: bool,
    /// Whether the only request that claimed this id was answered, so that none can arrive late.
    /// Then the id need not be remembered.
    pub settled: bool,
    /// Whether the grant was never used. Then the minimum hold does not apply.
    pub unused: bool,
}

/// One atomic step on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// See [`Claim`]. The reply is a [`ClaimReply`](crate::ClaimReply); `Gone` means that it was
    /// already released.
    Claim(Claim),
    /// See [`Renew`]. The reply is a [`RenewReply`](crate::RenewReply); `Mismatch` is for a
    /// waiting claim that can no longer be granted.
    Renew(Renew),
    /// See [`Release`]. The reply is a [`ReleaseReply`](crate::ReleaseReply).
    Release(Release),
    /// See [`Void`]: for a member of a set.
    Void(Void),
    /// Takes the key from all its holders, or from those of one grant: for administrators. The
    /// reply is `Broken`, a [`BreakReply`](crate::BreakReply).
    Break {
        /// The client that does it, for the audit log.
        by: ClientInfo,
        /// Only from the holders with this token. If there are none, nothing is taken, and no
        /// token is void.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<Token>,
    },
    /// Changes the number of permits of a semaphore in use, if it is `from` now. Growing grants
    /// to waiters at once. Shrinking revokes nothing; a waiting claim that is then too heavy is
    /// removed with `Mismatch`. The reply is a [`ResizeReply`](crate::ResizeReply); `Absent`
    /// means that nobody holds or waits.
    Resize {
        /// The current number of permits.
        from: u32,
        /// The new number of permits, at least 1.
        to: u32,
    },
    /// Subscribes an inbox to changes of the key's first holder or of its note, for `ttl`; zero
    /// ends the subscription. The reply is `Done`, a [`WatchReply`](crate::WatchReply).
    Watch {
        /// The inbox.
        inbox: Inbox,
        /// How long the subscription lasts from now.
        ttl: Duration,
    },
    /// Reports that nobody listens at these inboxes. Their claims that were granted just now and
    /// their next waiting claims are cut to [`crate::UNHEARD_CUT`], and their watches are
    /// removed. Claims that already held are not touched. The reply is `Done`.
    Unheard {
        /// The silent inboxes.
        silent: Vec<Inbox>,
        /// Their claims whose grants nobody received, and how long these had waited.
        granted: Vec<(Arrival, Duration)>,
        /// The inboxes to skip: their claims that were granted just now return to their former
        /// place, and the next claims that fit are granted.
        passed: Vec<Inbox>,
    },
    /// Removes all claims of dead clients, except what a minimum hold keeps. It takes all inboxes
    /// in one step, so that no dead client is granted the key of another. The reply is `Done`.
    Bury {
        /// The dead clients' inboxes.
        inboxes: Vec<Inbox>,
    },
}

impl Command {
    /// Returns the id of the claim that the command is about.
    #[must_use]
    pub fn id(&self) -> Option<&ClaimId> {
        match self {
            Self::Claim(Claim { id, .. })
            | Self::Renew(Renew { id, .. })
            | Self::Release(Release { id, .. })
            | Self::Void(Void {
                whose: Voided::Claim { id, .. },
                ..
            }) => Some(id),
            _ => None,
        }
    }

    /// Returns the name of the verb, for display and metrics.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Renew(_) => "renew",
            Self::Release(_) => "release",
            Self::Void(_) => "void",
            Self::Break { .. } => "break",
            Self::Resize { .. } => "resize",
            Self::Watch { .. } => "watch",
            Self::Unheard { .. } => "unheard",
            Self::Bury { .. } => "bury",
        }
    }
}

/// A notification for an inbox. It only saves time: the state of the queue decides. The claim's
/// id is included for the proof ([`crate::Proof`]) and must not be sent, since others may listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A waiting claim was granted.
    Granted {
        /// The inbox that is notified.
        inbox: Inbox,
        /// The claim.
        arrival: Arrival,
        /// The id of the claim.
        id: ClaimId,
        /// Its fencing token.
        token: Token,
        /// Same as in [`Standing::behind`](crate::Standing::behind).
        behind: Option<Arrival>,
        /// Until when it lives without renewal.
        deadline: StoreTime,
        /// How long it had waited.
        waited: Duration,
    },
    /// A claim is now next in the queue.
    Next {
        /// The inbox that is notified.
        inbox: Inbox,
        /// The claim.
        arrival: Arrival,
        /// The earliest time at which a blocking claim can expire.
        blocked_until: StoreTime,
    },
    /// An administrator took the key from a holder.
    Revoked {
        /// The inbox that is notified.
        inbox: Inbox,
        /// The claim.
        arrival: Arrival,
        /// The id of the claim.
        id: ClaimId,
    },
    /// Another client has adopted the claim.
    Adopted {
        /// The inbox that is notified: that of the former client.
        inbox: Inbox,
        /// The claim.
        arrival: Arrival,
        /// The former id of the claim, which the former client knows.
        id: ClaimId,
    },
    /// A waiting claim was removed, since the semaphore shrank below its weight.
    Unfit {
        /// The inbox that is notified.
        inbox: Inbox,
        /// The claim.
        arrival: Arrival,
        /// The id of the claim.
        id: ClaimId,
        /// The capacity in use.
        in_use: Capacity,
    },
    /// The first holder or its note has changed.
    Changed {
        /// The inbox that is notified: one that watches.
        inbox: Inbox,
    },
}

impl Event {
    /// The inbox that is notified.
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

    /// Returns the claim that it is about; `None` if it is about the key.
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

/// The outcome of a step: the reply, the events and the audit entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The reply to the client.
    pub reply: Reply,
    /// The store's time of the step; never goes back for a key.
    pub at: StoreTime,
    /// The notifications, in order.
    pub events: Vec<Event>,
    /// The entries for the audit log, if there is one: [`Now::audited`](crate::Now::audited).
    pub audit: Vec<AuditEntry>,
}

/// A snapshot of a key for display, without the claim ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The capacity of the key; `None` if nobody holds or waits.
    pub capacity: Option<Capacity>,
    /// An upper bound of the key's tokens: the last token of the key, or of all keys if the store
    /// keeps one for all. Zero if the store has none.
    pub last_token: Token,
    /// The store's time of the snapshot.
    pub at: StoreTime,
    /// The store's clock at the snapshot; differs from `at` after the clock stepped back.
    pub clock: StoreTime,
    /// The holders, in the order of their grants. A claim that is granted behind another of its
    /// client is still a waiter.
    pub holders: Vec<Holder>,
    /// The waiters, in the order of arrival.
    pub waiters: Vec<WaiterView>,
}

/// The common part of holders and waiters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimView {
    /// The arrival number.
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
    /// The note.
    pub note: Option<Note>,
    /// Whether it has ended, and only its minimum hold keeps the key.
    pub kept: bool,
    /// For a holder with a minimum hold: until when its client has renewed it. After that the
    /// client has stopped or is unreachable, and only the minimum hold keeps the key until the
    /// deadline.
    pub renewed: Option<StoreTime>,
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The claim.
    pub claim: ClaimView,
    /// Its fencing token.
    pub token: Token,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WaiterView {
    /// The claim.
    pub claim: ClaimView,
    /// The position in the queue; 1 is next.
    pub position: u64,
}
