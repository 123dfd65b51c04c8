//! What a client's inbox hears, and what shows that the store has said it.
//!
//! A push comes on a channel that others may listen to and publish on. What ends or
//! begins a hold therefore carries a proof that only the store and the claim's client
//! can make; the rest are hints, which cost the store a few questions.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha1_smol::Sha1;

use crate::{Arrival, Capacity, ClaimId, Event, Key, StoreTime, Token};

/// Shows that whoever made a push knows the claim's id, which is never published: a
/// keyed hash of what the push says.
///
/// The hash is SHA-1, since that is what scripts of Redis have. That two texts with one
/// hash can be found does not help: whoever does not know the id knows neither hash.
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
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            for digit in digits {
                let value = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
                *byte = *byte << 4 | value;
            }
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Something a client's inbox heard.
///
/// Others may listen to an inbox and send to it. What begins or ends a hold carries a
/// proof, which needs the claim's id ([`Push::is_proved_by`]); without it, it counts for
/// nothing. The rest are hints, on which a client asks.
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

    /// Which claim it is about; `None` for one that is about the key, or all of them.
    #[must_use]
    pub fn arrival(&self) -> Option<Arrival> {
        self.claim().map(|(_, arrival)| arrival)
    }

    /// The key and the claim that it is about.
    #[must_use]
    pub fn claim(&self) -> Option<(&Key, Arrival)> {
        match self {
            Self::Granted { key, arrival, .. }
            | Self::Next { key, arrival, .. }
            | Self::Unfit { key, arrival, .. }
            | Self::Adopted { key, arrival, .. }
            | Self::Revoked { key, arrival, .. } => Some((key, *arrival)),
            Self::Changed { .. } | Self::Reset => None,
        }
    }

    /// Whether its proof was made with this claim id. A hint proves nothing.
    #[must_use]
    pub fn is_proved_by(&self, id: &ClaimId) -> bool {
        let by = |(said, proof): (String, &Proof)| Proof::of(id, &said) == *proof;
        self.proved().is_some_and(by)
    }

    /// What it says that has to be proved, and the proof.
    pub(crate) fn proved(&self) -> Option<(String, &Proof)> {
        match self {
            Self::Granted {
                key,
                arrival,
                token,
                behind,
                at,
                proof,
                ..
            } => Some((said_granted(*arrival, *token, *behind, *at, key), proof)),
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
