//! What a client's inbox hears, and what shows that the store has said it.

use std::time::Duration;

use leasehold_core::{Arrival, Capacity, ClaimId, Event, Key, Proof, StoreTime, Token};

/// Something a client's inbox heard.
///
/// Others may listen to an inbox and send to it. What begins or ends a hold carries a
/// proof, which needs the claim's id ([`Push::is_proved_by`]); without it, it counts for
/// nothing. The rest are hints, on which a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Push {
    /// A waiting claim was granted.
    Granted {
        /// The connection epoch on which it came.
        epoch: u64,
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// Its fencing token.
        token: Token,
        /// The store's time of the grant.
        at: StoreTime,
        /// That the store says so.
        proof: Proof,
    },
    /// A claim is next in line.
    Next {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// After how long what blocks it can lapse.
        left: Duration,
    },
    /// An administrator took the key from a holder.
    Revoked {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// The store's time.
        at: StoreTime,
        /// That the store says so.
        proof: Proof,
    },
    /// Another client has adopted a claim.
    Adopted {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// The store's time.
        at: StoreTime,
        /// That the store says so, by the id that the claim had before.
        proof: Proof,
    },
    /// A waiting claim was removed: the semaphore shrank below what it takes.
    Unfit {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// The capacity in use.
        in_use: Capacity,
        /// The store's time.
        at: StoreTime,
        /// That the store says so.
        proof: Proof,
    },
    /// Another holds a watched key first, or its note has changed; or, where there is
    /// no queue, a key that was busy may be free.
    Changed {
        /// The key.
        key: Key,
    },
    /// Pushes may have been missed, and the store can be asked again: every
    /// waiting claim should.
    Reset,
}

impl Push {
    /// The push that tells `event` of a step on `key` at `at`.
    #[must_use]
    pub fn of(event: &Event, key: &Key, at: StoreTime, epoch: u64) -> Self {
        let key = key.clone();
        match event {
            Event::Granted {
                arrival, id, token, ..
            } => Self::Granted {
                epoch,
                arrival: *arrival,
                token: *token,
                at,
                proof: Proof::of(id, &said('g', *arrival, Some(token.0), at, &key)),
                key,
            },
            Event::Next {
                arrival,
                blocked_until,
                ..
            } => Self::Next {
                key,
                arrival: *arrival,
                left: blocked_until.since(at),
            },
            Event::Revoked { arrival, id, .. } => Self::Revoked {
                arrival: *arrival,
                at,
                proof: Proof::of(id, &said('r', *arrival, None, at, &key)),
                key,
            },
            Event::Adopted { arrival, id, .. } => Self::Adopted {
                arrival: *arrival,
                at,
                proof: Proof::of(id, &said('a', *arrival, None, at, &key)),
                key,
            },
            Event::Unfit {
                arrival,
                id,
                in_use,
                ..
            } => Self::Unfit {
                arrival: *arrival,
                in_use: *in_use,
                at,
                proof: Proof::of(id, &said('u', *arrival, Some(in_use.units()), at, &key)),
                key,
            },
            Event::Changed { .. } => Self::Changed { key },
        }
    }

    /// Whether its proof was made with this claim id. A hint proves nothing.
    #[must_use]
    pub fn is_proved_by(&self, id: &ClaimId) -> bool {
        let by = |(said, proof): (String, &Proof)| Proof::of(id, &said) == *proof;
        self.proved().is_some_and(by)
    }

    /// What it says that has to be proved, and the proof.
    ///
    /// Hidden: the client compares with the ids of its own claims; others ask
    /// [`is_proved_by`](Self::is_proved_by).
    #[doc(hidden)]
    #[must_use]
    pub fn proved(&self) -> Option<(String, &Proof)> {
        match self {
            Self::Granted {
                key,
                arrival,
                token,
                at,
                proof,
                ..
            } => Some((said('g', *arrival, Some(token.0), *at, key), proof)),
            Self::Revoked {
                key,
                arrival,
                at,
                proof,
            } => Some((said('r', *arrival, None, *at, key), proof)),
            Self::Adopted {
                key,
                arrival,
                at,
                proof,
            } => Some((said('a', *arrival, None, *at, key), proof)),
            Self::Unfit {
                key,
                arrival,
                in_use,
                at,
                proof,
            } => Some((said('u', *arrival, Some(in_use.units()), *at, key), proof)),
            Self::Next { .. } | Self::Changed { .. } | Self::Reset => None,
        }
    }
}

/// What is proved, word for word as the scripts of Redis write it.
fn said(kind: char, arrival: Arrival, number: Option<u64>, at: StoreTime, key: &Key) -> String {
    let at = at.0;
    match number {
        Some(number) => format!("{kind} {arrival} {number} {at} {key}"),
        None => format!("{kind} {arrival} {at} {key}"),
    }
}
