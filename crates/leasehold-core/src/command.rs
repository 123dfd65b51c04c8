//! The verbs as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Arrival, Capacity, ClaimId, Inbox, Mode, Owner, StoreTime, Token};

/// Joins the queue, or finds itself where it already stands.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub owner: Owner,
}

/// Raises a claim's deadline to `now + ttl`; never lowers it, since a late
/// duplicate must not shorten a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew {
    /// Which claim.
    pub id: ClaimId,
    /// How long it shall live from now.
    pub ttl: Duration,
}

/// Leaves, holding or waiting. Unless settled, the id stays released: see
/// [`crate::TOMBSTONES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Which claim.
    pub id: ClaimId,
    /// Whether the step hands on to the next in line (fair), or only tells it
    /// that the key is vacant (so that somebody else may come first).
    pub hand_off: bool,
    /// Whether the one request that claimed this id was answered, so that none
    /// can still be under way: then the id need not be remembered.
    pub settled: bool,
}

/// One atomic step on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// See [`Claim`]. Answered by `Standing`, `Busy`, `Gone` (already released)
    /// or `Mismatch`.
    Claim(Claim),
    /// See [`Renew`]. Answered by `Standing` or `Gone`.
    Renew(Renew),
    /// See [`Release`]. Answered by `Released` or `Absent`.
    Release(Release),
    /// Takes the key from all who hold it: for administrators. Answered by `Broken`.
    Break,
    /// Nobody listens at this inbox: cuts the claims that were granted just now,
    /// and the inbox's next waiting claims, to [`crate::UNHEARD_CUT`]. Never
    /// those it holds. Answered by `Done`.
    Unheard {
        /// The silent inbox.
        inbox: Inbox,
        /// The claims of that inbox whose grants went unheard.
        granted: Vec<Arrival>,
    },
    /// The client behind this inbox is known to be dead: drops all its claims.
    /// Answered by `Done`.
    Bury {
        /// The dead client's inbox.
        inbox: Inbox,
    },
}

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Its place in the order of arrival.
    pub arrival: Arrival,
    /// The fencing token, once granted: *granted means having a token*.
    pub token: Option<Token>,
    /// 0 when granted, 1 for the next in line; an upper bound.
    pub position: u64,
    /// Until when it lives without renewal.
    pub deadline: StoreTime,
    /// The earliest time at which what blocks it can lapse. It comes early rather
    /// than late. `None` when granted.
    pub blocked_until: Option<StoreTime>,
}

/// What a step answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The claim is in the queue.
    Standing(Standing),
    /// It could not be granted at once and did not want to wait; it is not in
    /// the queue.
    Busy {
        /// The earliest time at which what blocks it can lapse.
        blocked_until: StoreTime,
    },
    /// The claim is not in the queue: it lapsed, was released, or was never there.
    Gone,
    /// It left.
    Released {
        /// Whether it held the key.
        held: bool,
    },
    /// There was nothing to release.
    Absent,
    /// The key is in use with another capacity.
    Mismatch {
        /// The capacity in use.
        in_use: Capacity,
    },
    /// The key was taken from so many holders.
    Broken {
        /// How many there were.
        holders: u64,
        /// The highest token that is now void.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

/// Something an inbox should hear. It saves time and carries no authority
/// beyond the queue's own state; it names no claim id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A waiting claim was granted.
    Granted {
        /// Who should hear it.
        inbox: Inbox,
        /// Which claim.
        arrival: Arrival,
        /// Its fencing token.
        token: Token,
        /// Until when it lives without renewal.
        deadline: StoreTime,
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
    },
}

impl Event {
    /// Who should hear it.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        match self {
            Self::Granted { inbox, .. }
            | Self::Next { inbox, .. }
            | Self::Revoked { inbox, .. } => inbox,
        }
    }

    /// Which claim it is about.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        match self {
            Self::Granted { arrival, .. }
            | Self::Next { arrival, .. }
            | Self::Revoked { arrival, .. } => *arrival,
        }
    }
}

/// What a step leaves behind besides the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to whoever asked.
    pub reply: Reply,
    /// The store's time of the step; never goes back for a key.
    pub at: StoreTime,
    /// What to tell whom, in this order.
    pub events: Vec<Event>,
}

/// A key as it can be looked at, without the claim ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What the key can bear; `None` when nobody holds or waits.
    pub capacity: Option<Capacity>,
    /// The highest token issued; zero if none is remembered.
    pub last_token: Token,
    /// The store's time of the look.
    pub at: StoreTime,
    /// The store's clock at the look; differs from `at` after it stepped back.
    pub clock: StoreTime,
    /// Those who hold, in order of their grants.
    pub holders: Vec<Holder>,
    /// Those who wait, in order of arrival.
    pub waiters: Vec<WaiterView>,
}

/// What holders and waiters have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// The place in the order of arrival.
    pub arrival: Arrival,
    /// Capacity and weight.
    pub mode: Mode,
    /// Who.
    pub owner: Owner,
    /// When it joined (a waiter) or was granted (a holder).
    pub since: StoreTime,
    /// Until when it lives without renewal.
    pub deadline: StoreTime,
    /// The first characters of the claim id.
    pub id_hint: String,
}

/// One who holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The claim.
    pub claim: ClaimView,
    /// Its fencing token.
    pub token: Token,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterView {
    /// The claim.
    pub claim: ClaimView,
    /// 1 is next.
    pub position: u64,
}
