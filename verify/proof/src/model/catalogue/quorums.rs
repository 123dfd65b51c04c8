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
/// where every state is tried, three on walks; without a horizon, without clocks.
const QUORUMS: &str = "\
quorum/tokens | servers 3 | none | held
quorum/exclusion | servers 3, horizon 1 | none | held
quorum/renewal | servers 3, horizon 1 | renewals 1 | held
quorum/loss | servers 3, horizon 1 | losses 1 | held
quorum/tokens walks | servers 3, walks | doubled 3, late 4, renewals 4 | held, renewed, proposed again
quorum/exclusion walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4 | held, renewed, proposed again
quorum/restarts walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4, restarts 1, losses 1 | held, renewed, proposed again
quorum/losses walks | servers 3, horizon 16, walks | doubled 3, late 4, renewals 4, losses 3 | held, renewed, proposed again
quorum/four of five walks | servers 5, quorum 4, horizon 16, walks | doubled 3, late 4, renewals 4, restarts 1, losses 1 | held, renewed, proposed again";

/// What is set of a model.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    servers: usize,
    quorum: Option<usize>,
    horizon: Option<u64>,
    walks: bool,
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
    };
    let (method, people, ttl) = if set.walks {
        let (one, other) = (client(3, -4_500, 900_000), client(3, 4_500, -900_000));
        let people = vec![one, other, client(3, 0, 0)];
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
        promises: match set.horizon {
            Some(_) => quorum::TIMED,
            None => quorum::UNTIMED,
        },
        seen: Seen::wanting(wanted),
    };
    Entry::new(name, method, model)
}
