//! Votes of several servers.

use leasehold_core::quorum::QuorumSize;
use serde::Deserialize;

use super::Entry;
use crate::model::checker::Method;
use crate::model::clock::TICK;
use crate::model::quorum::{self, QuorumModel};
use crate::model::seen::Seen;
use crate::model::words::{cells, said};

/// A model a line: its name, what is set, what may happen, and what has to happen somewhere. Two clients
/// where every state is tried, three on walks, unless it says how many; without a horizon, without clocks.
const QUORUMS: &str = "\
quorum/tokens | servers 3 | none | held
quorum/exclusion | servers 3, horizon 1 | none | held
quorum/renewal | servers 3, horizon 1 | renewals 1 | held
quorum/loss | servers 3, horizon 1 | losses 1 | held
quorum/tokens walks | servers 3, walks | doubled 3, late 4, renewals 4 | held, renewed, proposed again
quorum/exclusion walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4 | held, renewed, proposed again
quorum/restarts walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4, restarts 1, losses 1 | held, renewed, proposed again
quorum/losses walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4, losses 3 | held, renewed, proposed again, busy, unanswered, quarantined, repaired, held after a restart
quorum/four of five walks | servers 5, quorum 4, horizon 16, walks | doubled 3, late 4, renewals 4, restarts 1, losses 1 | held, renewed, proposed again
quorum/four walks | servers 4, horizon 16, plain renewals, walks | doubled 3, late 4, renewals 4, restarts 1, losses 1 | held, renewed, proposed again, busy, unanswered, quarantined
quorum/five walks | servers 5, clients 4, horizon 16, hours off, walks | doubled 3, late 4, renewals 4, restarts 2 | held, renewed, proposed again, busy, unanswered, quarantined, repaired";

/// What is set of a model.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    servers: usize,
    quorum: Option<usize>,
    horizon: Option<u64>,
    walks: bool,
    clients: Option<usize>,
    plain_renewals: bool,
    /// The times of day of two clients are an hour off, and not 0.9 s.
    hours_off: bool,
}

pub(super) fn all() -> Vec<Entry> {
    QUORUMS.lines().map(entry).collect()
}

fn entry(line: &'static str) -> Entry {
    let [name, settings, faults, wanted] = cells(line);
    let set: Settings = said(settings);
    let client = |attempts, rate, off| quorum::Person {
        attempts,
        rate,
        off,
        // Whose time of day is right, a new process makes each attempt.
        remembers: off != 0,
    };
    let (method, people, ttl) = if set.walks {
        let off = if set.hours_off {
            3_600_000_000
        } else {
            900_000
        };
        let mut people = vec![client(3, -4_500, off), client(3, 4_500, -off)];
        people.resize(set.clients.unwrap_or(3), client(3, 0, 0));
        (Method::Walks(20_000, 250), people, 2 * TICK)
    } else {
        let people = vec![client(1, -4_500, 0), client(1, 4_500, 0)];
        (Method::Exhaustive, people, TICK)
    };
    let size = QuorumSize::new(set.servers, set.quorum);
    let model = QuorumModel {
        size: size.unwrap_or_else(|error| unreachable!("{name}: {error}")),
        people,
        ttl,
        quarantine: 2 * ttl,
        horizon: set.horizon,
        faults: said(faults),
        plain_renewals: set.plain_renewals,
        promises: match set.horizon {
            Some(_) => quorum::TIMED,
            None => quorum::UNTIMED,
        },
        seen: Seen::wanting(wanted),
    };
    Entry::new(name, method, model)
}
