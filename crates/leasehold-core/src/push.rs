//! Pushes to a client's inbox, and the proofs that they come from the store.
//!
//! A push arrives on a channel on which others may listen and publish. So a push that begins or
//! ends a hold contains a proof that only the store and the claim's client can make. All other
//! pushes are hints: a fake one causes only a few extra requests.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha1_smol::Sha1;

use crate::text::is_hex;
use crate::{Arrival, Capacity, ClaimId, Event, Key, StoreTime, Token};

/// A keyed hash of a push. It proves that the sender knows the claim's id, which is never
/// published.
///
/// The hash is SHA-1, because Redis scripts have it. Collisions of SHA-1 do not help an attacker,
/// who does not know the id and so cannot compute either hash.
///
/// ```
/// use leasehold_core::{ClaimId, Proof};
/// let id = ClaimId::from_random(1);
/// let proof = Proof::of(&id, "g 7 9 8 orders/42");
/// assert_eq!(Proof::parse(&proof.to_string()), Some(proof));
/// assert_ne!(Proof::of(&ClaimId::from_random(2), "g 7 9 8 orders/42"), proof);
/// assert_ne!(Proof::of(&id, "g 7 9 8 orders/43"), proof);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proof([u8; 20]);

impl Proof {
    /// The proof of what is said about the claim `id`. The id stands on both sides: with
    /// one alone, a longer text could be proved by whoever heard the proof of a shorter.
    #[must_use]
    pub fn of(id: &ClaimId, said: &str) -> Self {
        let id = id.expose().as_bytes();
        let mut hash = Sha1::new();
        for part in [id, b" ", said.as_bytes(), b" ", id] {
            hash.update(part);
        }
        Self(hash.digest().bytes())
    }

    /// Reads what [`fmt::Display`] writes: 40 hexadecimal digits, the letters small.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 20];
        if !is_hex(text, 2 * bytes.len()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A push that a client's inbox received.
///
/// Others may listen to an inbox and send to it. A push that begins or ends a hold contains a
/// proof, which needs the claim's id ([`Push::is_proved_by`]). Without a valid proof it is
/// ignored. All other pushes are hints, after which a client asks the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
        /// Same as in [`Standing::behind`](crate::Standing::behind).
        behind: Option<Arrival>,
        /// The store's time of the grant.
        at: StoreTime,
        /// The proof that it comes from the store.
        proof: Proof,
    },
    /// A claim is next in the queue. A store may leave it out where the client renews the claim, at a
    /// third of its TTL, before the claim ahead can expire.
    Next {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// After how long a blocking claim can expire.
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
        /// The proof that it comes from the store.
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
        /// The proof that it comes from the store, made with the former id of the claim.
        proof: Proof,
    },
    /// A waiting claim was removed, because the semaphore shrank below its weight.
    Unfit {
        /// The key.
        key: Key,
        /// Which claim.
        arrival: Arrival,
        /// The capacity in use.
        in_use: Capacity,
        /// The store's time.
        at: StoreTime,
        /// The proof that it comes from the store.
        proof: Proof,
    },
    /// The first holder of a watched key or its note has changed; or, on a store without a queue,
    /// a busy key may be free.
    Changed {
        /// The key.
        key: Key,
    },
    /// The connection to the store is lost, and another is being opened: until [`Push::Reset`],
    /// nothing is known of the store but what its answers say.
    Disconnected,
    /// Pushes may have been missed, and the store is reachable again: every waiting claim should
    /// ask it.
    Reset,
}

impl Push {
    /// Makes the push for `event` of a step on `key` at `at`.
    #[must_use]
    pub fn of(event: &Event, key: &Key, at: StoreTime, epoch: u64) -> Self {
        let key = key.clone();
        match event {
            Event::Granted {
                arrival,
                id,
                token,
                behind,
                ..
            } => Self::Granted {
                epoch,
                arrival: *arrival,
                token: *token,
                behind: *behind,
                at,
                proof: Proof::of(id, &said_granted(*arrival, *token, *behind, at, &key)),
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

    /// Returns the claim that it is about; `None` if it is about the key or all claims.
    #[must_use]
    pub fn arrival(&self) -> Option<Arrival> {
        self.claim().map(|(_, arrival)| arrival)
    }

    /// Returns the key and the claim that it is about.
    #[must_use]
    pub fn claim(&self) -> Option<(&Key, Arrival)> {
        match self {
            Self::Granted { key, arrival, .. }
            | Self::Next { key, arrival, .. }
            | Self::Unfit { key, arrival, .. }
            | Self::Adopted { key, arrival, .. }
            | Self::Revoked { key, arrival, .. } => Some((key, *arrival)),
            Self::Changed { .. } | Self::Disconnected | Self::Reset => None,
        }
    }

    /// Returns whether its proof was made with this claim id. False for hints.
    #[must_use]
    pub fn is_proved_by(&self, id: &ClaimId) -> bool {
        let by = |(said, proof): (String, &Proof)| Proof::of(id, &said) == *proof;
        self.proved().is_some_and(by)
    }

    /// What it says that has to be proved, and the proof.
    pub(crate) fn proved(&self) -> Option<(String, &Proof)> {
        let (key, arrival) = self.claim()?;
        let said = |kind, number, at: &StoreTime| said(kind, arrival, number, *at, key);
        match self {
            Self::Granted {
                token,
                behind,
                at,
                proof,
                ..
            } => Some((said_granted(arrival, *token, *behind, *at, key), proof)),
            Self::Revoked { at, proof, .. } => Some((said('r', None, at), proof)),
            Self::Adopted { at, proof, .. } => Some((said('a', None, at), proof)),
            Self::Unfit {
                in_use, at, proof, ..
            } => Some((said('u', Some(in_use.units()), at), proof)),
            Self::Next { .. } | Self::Changed { .. } | Self::Disconnected | Self::Reset => None,
        }
    }
}

fn said_granted(
    arrival: Arrival,
    token: Token,
    behind: Option<Arrival>,
    at: StoreTime,
    key: &Key,
) -> String {
    match behind {
        None => said('g', arrival, Some(token.0), at, key),
        Some(behind) => format!("f {arrival} {token} {behind} {} {key}", at.0),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_the_hash_that_scripts_make() {
        // redis-cli eval 'return redis.sha1hex(...)' with the same text.
        let proof = Proof::of(&ClaimId::new("id").unwrap(), "r 1 2 k");
        let text = Sha1::from("id r 1 2 k id").digest().to_string();
        assert_eq!(proof.to_string(), text);
        assert_eq!(Proof::parse(&text), Some(proof));
        for wrong in [
            "",
            &text[1..],
            &text.to_uppercase(),
            &text.replace(&text[..1], "x"),
        ] {
            assert_eq!(Proof::parse(wrong), None, "{wrong}");
        }
    }
}
