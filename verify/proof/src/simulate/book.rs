//! What happened, as data: what the invariants judge and the trace shows.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::{Any, ErrorKind, Lease, Loss, Mode, Released};
use leasehold_store::sync::lock;

use super::world;

/// Which attempt to get a lease; one number in a run.
pub(crate) type Attempt = u64;

/// What is wanted of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) key: &'static str,
    pub(crate) mode: Mode,
    /// Whether the lease has a fencing token.
    pub(crate) fences: bool,
    /// Whether it stands in line.
    pub(crate) fair: bool,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// A client begins to ask.
    Asked(Attempt, usize, Wanted),
    /// It has learned that it stands in line.
    Queued { attempt: Attempt, rejoined: u32 },
    /// It may not have heard of its turn at any of its claims that wait.
    Deaf { client: usize },
    /// It has the lease, and believes in it until then unless it is renewed.
    Granted {
        attempt: Attempt,
        number: u64,
        until: Duration,
        rejoined: u32,
    },
    /// It ended without a lease.
    NotGranted(Attempt, Why),
    /// It still believes in its lease, until then, or not any more; and whether its host runs.
    Believes(Attempt, Option<Duration>, bool),
    /// It was told that the lease is lost.
    Lost(Attempt, Loss),
    /// It begins to give it back.
    Leaving { attempt: Attempt },
    /// What came of that; `None` if nothing was waited for.
    Left(Attempt, Option<Result<Released, ErrorKind>>),
    /// A write to the fenced register of a key.
    Wrote {
        key: &'static str,
        token: u64,
        value: u64,
        outcome: Outcome,
    },
    /// What is in that register at the end.
    Stands { key: &'static str, value: u64 },
    /// A client's process is gone, and so is what it believed.
    Died { client: usize },
    /// A store lost its data, or its clock was stepped: lines are forgotten, and, unless
    /// it waits for all that it may have forgotten, who holds.
    Forgot { holders: bool },
    /// From here on nothing is disturbed any more.
    Quiet,
    /// In quiet: a client was served a key within that time, or was not in time.
    Served(usize, &'static str, Option<Duration>),
    /// At the end: what is still there, and how many.
    Remains(String, usize),
    /// Something was disturbed.
    Fault(String),
}

/// Why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Busy,
    /// The caller did not wait any longer.
    Dropped,
    Failed(ErrorKind),
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Fenced,
    Unknown,
}

/// Where facts are written down. A clone is the same book.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    fresh: Vec<(Duration, Fact)>,
    /// Leases, and the hosts where they are held.
    holdings: Vec<(Attempt, usize, Weak<Lease<Any>>)>,
    attempts: Attempt,
}

impl Book {
    /// A number for a new attempt.
    pub(crate) fn attempt(&self) -> Attempt {
        let mut pages = lock(&self.0);
        pages.attempts += 1;
        pages.attempts
    }

    /// Writes down what happens where this is called, at this moment.
    pub(crate) fn note(&self, fact: Fact) {
        self.note_at(world::now(), fact);
    }

    /// The same from outside the hosts.
    pub(crate) fn note_at(&self, at: Duration, fact: Fact) {
        lock(&self.0).fresh.push((at, fact));
    }

    /// A lease to be looked at from now on.
    pub(crate) fn hold(&self, attempt: Attempt, lease: &Arc<Lease<Any>>) {
        let lease = Arc::downgrade(lease);
        let host = world::this_host();
        lock(&self.0).holdings.push((attempt, host, lease));
    }

    /// Asks every lease what its client believes. Each is looked at on its own host.
    pub(crate) fn look(&self, world: &world::World) {
        let mut pages = lock(&self.0);
        let holdings = std::mem::take(&mut pages.holdings);
        for (attempt, host, lease) in holdings {
            let Some(held) = lease.upgrade() else {
                continue;
            };
            let remaining = world.look_from(host, || held.is_valid().then(|| held.remaining()));
            let until =
                remaining.map(|remaining| world.now + world.hosts[host].in_world(remaining));
            let fact = Fact::Believes(attempt, until, world.hosts[host].runs());
            pages.fresh.push((world.now, fact));
            pages.holdings.push((attempt, host, lease));
        }
    }

    /// What has happened since the last time, in the order of time.
    pub(crate) fn take(&self) -> Vec<(Duration, Fact)> {
        let mut fresh = std::mem::take(&mut lock(&self.0).fresh);
        fresh.sort_by_key(|(at, _)| *at);
        fresh
    }
}
