//! Votes of several servers.

use leasehold_core::quorum::QuorumSize;
use serde::Deserialize;

use super::Entry;
use crate::model::checker::Method;
use crate::model::clock::TICK;
use crate::model::quorum::{self, QuorumModel};
use crate::model::seen::Seen;
use crate::model::words::{cells, rows, said};

/// The models; what the columns are is said there.
const QUORUMS: &str = include_str!("quorums.txt");

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
    rows(QUORUMS).map(entry).collect()
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
