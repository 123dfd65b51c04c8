//! The parameters of a simulated world.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use proptest::prelude::*;

/// Which rule does not hold in this world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// All rules hold.
    Nothing,
    /// A server that has lost its data votes at once.
    NoQuarantine,
    /// Clients propose the highest token they have heard of plus one, whatever
    /// the time is.
    CountersOnly,
    /// Each server counts for itself; the highest of a quorum is the token.
    ServersCount,
    /// The tombstone goes into the register of accepted tokens, and renewals are
    /// held against that.
    OneRegister,
    /// A release leaves no tombstone.
    NoTombstone,
    /// A renewal brings a claim back whatever has happened since.
    Resurrect,
}

/// The longest TTL of every world.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Climate {
    pub(crate) seed: u64,
    pub(crate) broken: Broken,
    pub(crate) size: QuorumSize,
    pub(crate) clients: usize,
    pub(crate) ttl: Duration,
    pub(crate) repair: bool,
    /// Of a thousand messages, how many are lost, doubled, late.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    /// How long a late message may take.
    pub(crate) latest: Duration,
    /// How often some server restarts; with or without its data.
    pub(crate) restarts: Option<Duration>,
    pub(crate) loses_data: bool,
    /// How far a client's time of day may be off, to either side.
    pub(crate) skew: Duration,
    /// Of a thousand leases, how many are not given back.
    pub(crate) deaths: u64,
}

impl Climate {
    /// Twice the longest TTL: longer than an attempt and all skew together.
    pub(crate) fn quarantine(&self) -> Duration {
        match self.broken {
            Broken::NoQuarantine => Duration::ZERO,
            _ => 2 * MAX_TTL,
        }
    }
}

fn size() -> impl Strategy<Value = QuorumSize> {
    prop_oneof![
        3 => Just((3, None)),
        2 => Just((5, None)),
        1 => Just((4, None)),
        1 => Just((5, Some(4))),
    ]
    .prop_map(|(servers, quorum)| QuorumSize::new(servers, quorum).unwrap())
}

pub(crate) fn worlds(broken: Broken) -> impl Strategy<Value = Climate> {
    let faults = (0..150_u64, 0..150_u64, 0..200_u64, 20..2_500_u64);
    let restarts = prop_oneof![
        1 => Just(None),
        2 => (300..3_000_u64).prop_map(|ms| Some(Duration::from_millis(ms))),
    ];
    let people = (2..5_usize, 150..1_000_u64, any::<bool>(), 0..300_u64);
    (
        any::<u64>(),
        size(),
        people,
        faults,
        (restarts, any::<bool>()),
        any::<bool>(),
    )
        .prop_map(move |(seed, size, people, faults, restarts, mad)| {
            let (clients, ttl, repair, deaths) = people;
            let (lost, doubled, late, latest) = faults;
            let (restarts, loses_data) = restarts;
            let forgets = restarts.is_some() && loses_data;
            Climate {
                seed,
                broken,
                size,
                clients,
                ttl: Duration::from_millis(ttl),
                repair,
                lost,
                doubled,
                late,
                latest: Duration::from_millis(latest),
                restarts,
                loses_data,
                // While no server forgets, no clock matters for the tokens.
                skew: if mad && !forgets {
                    Duration::from_secs(3_600)
                } else {
                    MAX_TTL * 9 / 20
                },
                deaths,
            }
        })
}
