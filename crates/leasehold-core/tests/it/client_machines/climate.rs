//! The parameters of a simulated world, from its seed.

use std::time::Duration;

use crate::client_machines::chance::Dice;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Real time, in microseconds since the world began.
pub(crate) type Real = u64;

/// What this world is like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Climate {
    pub(crate) clients: usize,
    pub(crate) lease: Duration,
    pub(crate) waiter: Duration,
    /// Millionths by which the store's clock runs fast (or slow).
    pub(crate) store_rate: i64,
    pub(crate) delay: (u64, u64),
    /// Per mille of requests: lost, executed without an answer, delayed for long.
    pub(crate) lost: u64,
    pub(crate) unanswered: u64,
    pub(crate) slow: u64,
    pub(crate) slow_for: u64,
    /// How often, on average, a connection is cut and a client stalls; 0 is never.
    pub(crate) cut_every: u64,
    pub(crate) stall_every: u64,
    pub(crate) stall_for: u64,
    /// Whether pushes come on a connection of their own, unordered with answers.
    pub(crate) pushes_apart: bool,
    /// Whether the store knows at once that a client is disconnected.
    pub(crate) knows_deaf: bool,
    /// The store forgets, or an administrator breaks the lock: exclusion is not promised.
    pub(crate) void: bool,
    pub(crate) unfair: bool,
    pub(crate) shared: u64,
    /// Per mille of leases: their id is replaced, they are given to another
    /// client, they become readers, they are held for so long at most.
    pub(crate) rotates: u64,
    pub(crate) gives: u64,
    pub(crate) downgrades: u64,
    pub(crate) bounded: u64,
    /// Whether what callers ask goes on a connection of its own.
    pub(crate) callers_apart: bool,
    pub(crate) op_timeout: u64,
    pub(crate) hold: (u64, u64),
    pub(crate) until: Real,
}

impl Climate {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let lease = dice.one_of(&[400 * MS, SECOND, 3 * SECOND, 10 * SECOND, 30 * SECOND]);
        let waiter = (lease / dice.one_of(&[1, 1, 3])).min(10 * SECOND);
        let rough = dice.chance(700);
        let delay = dice.one_of(&[(50, 300), (200, 5 * MS), (MS, lease / 8), (MS, lease / 2)]);
        Self {
            clients: usize::try_from(dice.between(2, 6)).unwrap(),
            lease: Duration::from_micros(lease),
            waiter: Duration::from_micros(waiter),
            store_rate: i64::try_from(dice.between(0, 10_001)).unwrap() - 5_000,
            delay,
            lost: if rough { dice.between(0, 150) } else { 0 },
            unanswered: if rough { dice.between(0, 150) } else { 0 },
            slow: if rough { dice.between(0, 60) } else { 0 },
            slow_for: lease * 2,
            cut_every: match rough {
                true => dice.one_of(&[0, lease, lease * 4]),
                false => 0,
            },
            stall_every: match rough {
                true => dice.one_of(&[0, lease * 2, lease * 6]),
                false => 0,
            },
            stall_for: lease * 2,
            pushes_apart: dice.chance(500),
            knows_deaf: dice.chance(700),
            void: dice.chance(200),
            unfair: dice.chance(200),
            shared: if dice.chance(200) { 600 } else { 0 },
            rotates: dice.one_of(&[0, 300, 800]),
            gives: dice.one_of(&[0, 300, 600]),
            downgrades: dice.one_of(&[0, 0, 300]),
            bounded: dice.one_of(&[0, 300]),
            callers_apart: dice.chance(500),
            op_timeout: (lease / dice.one_of(&[3, 6])).min(2 * SECOND),
            hold: dice.one_of(&[(0, lease / 10), (0, lease * 2), (lease, lease * 4)]),
            until: lease * 8,
        }
    }

    pub(crate) fn lease_micros(&self) -> u64 {
        u64::try_from(self.lease.as_micros()).unwrap()
    }

    pub(crate) fn waiter_micros(&self) -> u64 {
        u64::try_from(self.waiter.as_micros()).unwrap()
    }
}
