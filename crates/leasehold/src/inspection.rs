//! The state of a key: its holders and waiters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{
    Arrival, Capacity, ClaimView, ClientInfo, Holder, Key, Mode, Snapshot, StoreTime, Token,
    WaiterView,
};

use crate::error::{Error, Operation};
use crate::session::Session;

/// The state of a key when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The key.
    pub key: Key,
    /// The number of permits, if the key is in use as a semaphore. `None` for a lock, and for a
    /// key that nobody holds or waits for.
    pub permits: Option<u32>,
    /// An upper bound of the key's tokens: the last token of the key, or of all keys if the store
    /// keeps one for all. Zero if the store has none.
    pub last_token: Token,
    /// When the key was read, by the store's clock.
    pub at: SystemTime,
    /// The holders, in the order of their grants.
    pub holders: Vec<HolderInfo>,
    /// The waiters, in the order of arrival.
    pub waiters: Vec<WaiterInfo>,
}

/// A holder of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The mode of the lease.
    pub mode: Mode,
    /// The client; [`ClientInfo::unknown`] if the store does not keep it.
    pub owner: ClientInfo,
    /// When it was granted, by the store's clock; 1970 if the store does not keep it.
    pub since: SystemTime,
    /// How long the lease lives without another renewal. [`Duration::MAX`] for a lock of another
    /// library that does not expire.
    pub expires_in: Duration,
    /// The fencing token; [`Token::NONE`] if the store has none.
    pub token: Token,
    /// The first characters of the claim id; the rest is a secret.
    pub id_hint: String,
    /// The note of the holder, such as a leader's address.
    pub note: Option<String>,
    /// Whether only the minimum hold keeps the key: the holder has released it or has died, or
    /// its client has not renewed it for the TTL.
    pub kept: bool,
}

/// A waiter for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The mode that it waits for.
    pub mode: Mode,
    /// Who.
    pub owner: ClientInfo,
    /// When it began to wait, by the store's clock.
    pub since: SystemTime,
    /// How long its place in the queue lasts without another renewal.
    pub expires_in: Duration,
    /// The position in the queue; 1 is next.
    pub position: u64,
    /// The first characters of the claim id; the rest is a secret.
    pub id_hint: String,
    /// Tells it from the other claims of the key.
    pub(crate) arrival: Arrival,
}

impl Inspection {
    /// Looks at a key.
    pub(crate) async fn of(session: &Session, key: &Key) -> Result<Self, Error> {
        let look = session.snapshot(key).await;
        let look = look.map_err(Operation::Inspect.failed_on(key))?;
        Ok(Self::new(key.clone(), look))
    }

    pub(crate) fn new(key: Key, look: Snapshot) -> Self {
        let (at, clock) = (look.at, look.clock);
        // Deadlines run in a time that never goes back; people read the clock.
        let wall = |time: StoreTime| {
            UNIX_EPOCH + Duration::from_micros(clock.0).saturating_sub(at.since(time))
        };
        let left = |claim: &ClaimView| match claim.deadline {
            StoreTime::NEVER => Duration::MAX,
            deadline => deadline.since(at),
        };
        let holder = |holder: Holder| HolderInfo {
            mode: holder.claim.mode,
            since: wall(holder.claim.since),
            expires_in: left(&holder.claim),
            token: holder.token,
            owner: holder.claim.owner,
            id_hint: holder.claim.id_hint,
            // An empty one has replaced another.
            note: (holder.claim.note.map(String::from)).filter(|it| !it.is_empty()),
            kept: holder.claim.kept || holder.claim.renewed.is_some_and(|until| until <= at),
        };
        let waiter = |waiter: WaiterView| WaiterInfo {
            mode: waiter.claim.mode,
            since: wall(waiter.claim.since),
            expires_in: left(&waiter.claim),
            position: waiter.position,
            owner: waiter.claim.owner,
            id_hint: waiter.claim.id_hint,
            arrival: waiter.claim.arrival,
        };
        Self {
            key,
            permits: match look.capacity {
                None | Some(Capacity::Lock) => None,
                Some(Capacity::Permits(permits)) => Some(permits),
            },
            last_token: look.last_token,
            at: wall(at),
            holders: look.holders.into_iter().map(holder).collect(),
            waiters: look.waiters.into_iter().map(waiter).collect(),
        }
    }
}

/// The result of breaking a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// How many holders it had.
    pub holders: u64,
    /// Tokens up to this one are void, and the next one is higher. A protected system that is
    /// given this token refuses the former holders and admits the next one. [`Token::NONE`] if
    /// the store has no tokens: then the holder notices the break at its next renewal.
    pub token: Token,
}

/// The result of shutting down a client.
#[must_use = "it says whether claims are left, which expire after their TTL"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Claims whose release was confirmed.
    pub released: u64,
    /// Claims whose release was not confirmed in time: they expire after their TTL.
    pub unconfirmed: u64,
}
