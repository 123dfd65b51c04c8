//! Votes of several servers.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;

use super::Entry;
use crate::model::checker::Method;
use crate::model::quorum::{self, QuorumModel};
use crate::model::seen::Seen;

/// Two clients and three servers; without clocks.
fn three_servers(faults: quorum::Budget) -> Option<QuorumModel> {
    let client = |rate| quorum::Person {
        attempts: 1,
        rate,
        off: 0,
    };
    Some(QuorumModel {
        size: QuorumSize::new(3, None).ok()?,
        people: vec![client(-4_500), client(4_500)],
        ttl: Duration::from_secs(1),
        quarantine: Duration::from_secs(2),
        repair: true,
        horizon: None,
        faults,
        server_rate: 4_500,
        promises: quorum::UNTIMED,
        seen: Seen::wanting("held"),
    })
}

/// More of everything, for walks.
fn assembly(size: (usize, Option<usize>), faults: quorum::Budget) -> Option<QuorumModel> {
    let client = |rate, off| quorum::Person {
        attempts: 3,
        rate,
        off,
    };
    Some(QuorumModel {
        size: QuorumSize::new(size.0, size.1).ok()?,
        people: vec![
            client(-4_500, 900_000),
            client(4_500, -900_000),
            client(0, 0),
        ],
        ttl: Duration::from_secs(2),
        quarantine: Duration::from_secs(4),
        horizon: Some(16),
        promises: quorum::TIMED,
        seen: Seen::wanting("held, renewed, proposed again"),
        ..three_servers(faults)?
    })
}

/// Two clients and three servers; with clocks.
fn timed(faults: quorum::Budget) -> Option<QuorumModel> {
    Some(QuorumModel {
        horizon: Some(1),
        promises: quorum::TIMED,
        ..three_servers(faults)?
    })
}

pub(super) fn all() -> Vec<Entry> {
    let none = quorum::Budget::default();
    let (renewals, losses) = (1, 1);
    let renewal = quorum::Budget { renewals, ..none };
    let loss = quorum::Budget { losses, ..none };
    let weather = quorum::Budget {
        doubled: 3,
        late: 4,
        renewals: 4,
        ..none
    };
    let restarts = quorum::Budget {
        restarts: 1,
        losses: 1,
        ..weather
    };
    let losses = quorum::Budget {
        losses: 3,
        ..weather
    };
    let of_three = |faults| assembly((3, None), faults);
    let untimed = of_three(weather).map(|model| QuorumModel {
        horizon: None,
        promises: quorum::UNTIMED,
        ..model
    });
    let four_of_five = assembly((5, Some(4)), restarts);
    let (every, walks) = (Method::Exhaustive, Method::Walks(20_000, 250));
    let all = [
        ("quorum/tokens", every, three_servers(none)),
        ("quorum/exclusion", every, timed(none)),
        ("quorum/renewal", every, timed(renewal)),
        ("quorum/loss", every, timed(loss)),
        ("quorum/tokens walks", walks, untimed),
        ("quorum/exclusion walks", walks, of_three(weather)),
        ("quorum/restarts walks", walks, of_three(restarts)),
        ("quorum/losses walks", walks, of_three(losses)),
        ("quorum/four of five walks", walks, four_of_five),
    ];
    all.into_iter()
        .filter_map(|(name, method, subject)| Some(Entry::new(name, method, subject?)))
        .collect()
}
