//! Who holds what, and who waits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Capacity, ClaimView, ClientInfo, Key, Mode, Snapshot, StoreTime, Token};

use crate::error::{Error, Operation};
use crate::session::{Session, looks};

/// A key as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The key.
    pub key: Key,
    /// How many permits there are of a semaphore in use. `None`: a lock, or a key that nobody
    /// holds or waits for.
    pub permits: Option<u32>,
    /// No token of this key is higher: the last one, of all keys where the store keeps one for
    /// them together; zero if none is remembered.
    pub last_token: Token,
    /// When the store was looked at, by its own clock.
    pub at: SystemTime,
    /// Those who hold, in order of their grants.
    pub holders: Vec<HolderInfo>,
    /// Those who wait, in order of arrival.
    pub waiters: Vec<WaiterInfo>,
}

/// One who holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// How it holds.
    pub mode: Mode,
    /// Who; [`ClientInfo::unknown`] where the store does not keep it.
    pub owner: ClientInfo,
    /// Since when, by the store's clock; 1970 where the store does not keep it.
    pub since: SystemTime,
    /// How long the lease lives without renewal; [`Duration::MAX`] for a lock of
    /// another library that does not lapse by itself.
    pub expires_in: Duration,
    /// The fencing token; [`Token::NONE`] where the store has none.
    pub token: Token,
    /// The first characters of the claim id; the rest is a secret.
    pub id_hint: String,
    /// What it tells the others, such as a leader's address.
    pub note: Option<String>,
    /// Whether only its minimum hold keeps the key: it has left or died, or its client
    /// has not renewed it for its TTL.
    pub kept: bool,
}

/// One who waits for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// How it wants to hold.
    pub mode: Mode,
    /// Who.
    pub owner: ClientInfo,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// How long the place lasts without renewal.
    pub expires_in: Duration,
    /// 1 is next.
    pub position: u64,
    /// The first characters of the claim id; the rest is a secret.
    pub id_hint: String,
}

impl Inspection {
    /// Looks at a key.
    pub(crate) async fn of(session: &Session, key: &Key) -> Result<Self, Error> {
        match looks::look(session, key).await {
            Ok(look) => Ok(Self::new(key.clone(), look)),
            Err(error) => Err(Error::new(Operation::Inspect, Some(key.clone()), error)),
        }
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
        Self {
            key,
            permits: match look.capacity {
                None | Some(Capacity::Lock) => None,
                Some(Capacity::Permits(permits)) => Some(permits),
            },
            last_token: look.last_token,
            at: wall(at),
            holders: look
                .holders
                .into_iter()
                .map(|holder| HolderInfo {
                    mode: holder.claim.mode,
                    since: wall(holder.claim.since),
                    expires_in: left(&holder.claim),
                    token: holder.token,
                    owner: holder.claim.owner,
                    id_hint: holder.claim.id_hint,
                    note: holder.claim.note.map(String::from),
                    kept: holder.claim.kept
                        || holder.claim.renewed.is_some_and(|until| until <= at),
                })
                .collect(),
            waiters: look
                .waiters
                .into_iter()
                .map(|waiter| WaiterInfo {
                    mode: waiter.claim.mode,
                    since: wall(waiter.claim.since),
                    expires_in: left(&waiter.claim),
                    position: waiter.position,
                    owner: waiter.claim.owner,
                    id_hint: waiter.claim.id_hint,
                })
                .collect(),
        }
    }
}

/// What breaking a lock did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// How many held it.
    pub holders: u64,
    /// Tokens up to this one are void, and the next one is higher: a protected system
    /// that is told it refuses the former holders and admits the next. [`Token::NONE`]
    /// where the store has none: then the holder learns of it at its next renewal.
    pub token: Token,
}

/// What shutting down a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Claims whose release was confirmed.
    pub released: u64,
    /// Claims whose release was not confirmed in time: they lapse by their TTL.
    pub unconfirmed: u64,
}
