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
        seen: Seen::wanting(&["held"]),
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
        seen: Seen::wanting(&["held", "renewed", "proposed again"]),
        ..three_servers(faults)?
    })
}

pub(super) fn all() -> Vec<Entry> {
    let mut all = every_vote();
    all.extend(walks_among_servers());
    all
}

fn every_vote() -> Vec<Entry> {
    let none = quorum::Budget::default();
    let (renewals, losses) = (1, 1);
    let mut all = Vec::new();
    let mut add = |name, subject: Option<QuorumModel>| {
        all.extend(subject.map(|subject| Entry::new(name, Method::Exhaustive, subject)));
    };
    let timed = |subject: Option<QuorumModel>| {
        subject.map(|subject| QuorumModel {
            horizon: Some(1),
            promises: quorum::TIMED,
            ..subject
        })
    };
    let renewal = quorum::Budget { renewals, ..none };
    let loss = quorum::Budget { losses, ..none };
    add("quorum/tokens", three_servers(none));
    add("quorum/exclusion", timed(three_servers(none)));
    add("quorum/renewal", timed(three_servers(renewal)));
    add("quorum/loss", timed(three_servers(loss)));
    all
}

fn walks_among_servers() -> Vec<Entry> {
    let mut all = Vec::new();
    let mut add = |name, subject: Option<QuorumModel>| {
        let walks = Method::Walks(20_000, 250);
        all.extend(subject.map(|subject| Entry::new(name, walks, subject)));
    };
    let weather = quorum::Budget {
        doubled: 3,
        late: 4,
        renewals: 4,
        restarts: 0,
        losses: 0,
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
    let untimed = |subject: Option<QuorumModel>| {
        subject.map(|subject| QuorumModel {
            horizon: None,
            promises: quorum::UNTIMED,
            ..subject
        })
    };
    add("quorum/tokens walks", untimed(assembly((3, None), weather)));
    add("quorum/exclusion walks", assembly((3, None), weather));
    add("quorum/restarts walks", assembly((3, None), restarts));
    add("quorum/losses walks", assembly((3, None), losses));
    let four_of_five = assembly((5, Some(4)), restarts);
    add("quorum/four of five walks", four_of_five);
    all
}
