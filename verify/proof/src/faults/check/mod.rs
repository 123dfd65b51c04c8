//! What a history proves: pure code that reads operations and says what is wrong.
//!
//! A finding is certain. Where a history leaves it open what happened first, the
//! operation gets the benefit: a lease counts from when its caller had it to the last
//! moment at which it was certainly believed in.

mod audit;
mod exclusion;
mod order;
mod queue;
mod service;
mod tokens;
mod writes;

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::history::{Micros, Op};
use crate::value_name::value_name;
pub use audit::audit;
pub use exclusion::exclusion;
pub use order::order;
pub use queue::{Replayed, replay};
pub use service::{Gap, gaps, longest_gap, unserved};
pub use tokens::tokens;
pub use writes::{Tally, fenced_writes, unfenced_writes};

/// What may be violated.
#[derive(Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Valid leases on a key fit its capacity.
    Exclusion,
    /// Later grants have higher tokens, and no two have the same.
    Tokens,
    /// A resource that compares tokens loses no increment.
    #[value(name = "fenced writes")]
    FencedWrites,
    /// Whoever queued first is granted first.
    Order,
    /// The core's queue, given the same operations, does the same.
    Queue,
    /// When the faults have ended everybody gets a grant.
    Service,
    /// The audit log says what the clients saw, and nothing that cannot be.
    Audit,
}

impl Property {
    /// As tables name it.
    pub fn name(self) -> String {
        value_name(&self)
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it goes against.
    pub property: Property,
    /// When it was so.
    pub at: Micros,
    /// On which key.
    pub key: String,
    /// What happened, by the operations' names.
    pub what: String,
}

impl Finding {
    fn new(property: Property, at: Micros, key: &str, what: String) -> Self {
        Self {
            property,
            at,
            key: key.to_owned(),
            what,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, at, what, .. } = self;
        write!(f, "{} on {key} at {at}: {what}", self.property.name())
    }
}

/// The operations of each key.
fn by_key(ops: &[Op]) -> BTreeMap<&str, Vec<&Op>> {
    let mut keys: BTreeMap<&str, Vec<&Op>> = BTreeMap::new();
    for op in ops {
        keys.entry(&op.key).or_default().push(op);
    }
    keys
}

/// How messages name an operation.
fn name(op: &Op) -> String {
    let token = op.grant.as_ref().and_then(|grant| grant.token);
    let token = token.map_or_else(String::new, |token| format!(" (token {token})"));
    format!("client {} op {}{token}", op.id.client, op.id.number)
}

#[cfg(test)]
pub(crate) mod examples {
    //! Histories written by hand.

    use leasehold::Mode;

    use super::super::history::{Grant, Micros, Op, OpId};

    /// A claim that was never granted.
    pub(crate) fn wish(client: usize, invoked: Micros) -> Op {
        let number = invoked;
        Op::new(OpId { client, number }, invoked, "k", Mode::EXCLUSIVE)
    }

    /// A lease from `at` to `until`, asked for at `asked`, released then.
    pub(crate) fn lease(client: usize, asked: Micros, at: Micros, until: Micros, token: u64) -> Op {
        let grant = Grant {
            at,
            token: Some(token),
            until,
            releasing: Some(until),
            released: Some((until + 1, true)),
            ..Grant::default()
        };
        Op {
            grant: Some(grant),
            ..wish(client, asked)
        }
    }

    pub(crate) fn held_as(mode: Mode, op: Op) -> Op {
        Op { mode, ..op }
    }

    pub(crate) fn queued(at: Micros, op: Op) -> Op {
        Op {
            queued: Some(at),
            ..op
        }
    }
}
