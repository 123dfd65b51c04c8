//! Clients against one server, and a server that fails over.

use serde::Deserialize;

use super::Entry;
use crate::model::checker::Method;
use crate::model::clients::{self, ClientsModel, Person};
use crate::model::clock::TICK;
use crate::model::seen::Seen;
use crate::model::words::{cells, mode, number, rows, said};

/// The models, and what stands for several words in them.
const CLIENTS: &str = include_str!("clients.txt");

/// All that may go wrong without an assumption failing.
const WEATHER: &str = "doubled 3, late 6, cuts 3, deaths 1";

/// What is set of a model.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// In ticks.
    quarantine: Option<u32>,
    counts_all: bool,
    /// The store cannot tell that nobody listens.
    deaf: bool,
    /// Its assumptions do not hold.
    void: bool,
    long: bool,
    walks: bool,
}

pub(super) fn all() -> Vec<Entry> {
    let models = rows(CLIENTS).filter(|line| !line.contains(" = "));
    models.map(entry).collect()
}

fn entry(line: &'static str) -> Entry {
    let [name, people, times, settings, faults, wanted] = cells(line);
    let (set, mut times): (Settings, _) = (said(settings), times.split(' '));
    let mut ticks = || number(&mut times);
    let method = match set.walks {
        true => Method::Walks(50_000, 200),
        false => Method::Exhaustive,
    };
    let model = ClientsModel {
        people: whole(people).split(", ").map(person).collect(),
        lease: TICK * ticks(),
        waiter: TICK * ticks(),
        horizon: ticks().into(),
        faults: said(&faults.replace("weather", WEATHER)),
        quarantine: set.quarantine.map(|ticks| TICK * ticks),
        counts_all: set.counts_all,
        hears_silence: !set.deaf,
        promises: match set.void {
            true => clients::TOKENS,
            false => clients::ALL,
        },
        seen: Seen::wanting(whole(wanted)),
    };
    Entry {
        long: set.long,
        ..Entry::new(name, method, model)
    }
}

/// What a cell stands for.
fn whole(cell: &'static str) -> &'static str {
    let mut short = rows(CLIENTS);
    let whole = short.find_map(|line| line.strip_prefix(cell)?.strip_prefix(" = "));
    whole.unwrap_or(cell)
}

/// Reads a client: how it wants the key, once, and what else is said of it.
fn person(text: &str) -> Person {
    let mut words = text.split(' ');
    let mut person = Person {
        mode: mode(&mut words),
        attempts: 1,
        rate: 0,
        mate_of: None,
        haste: 12,
    };
    while let Some(word) = words.next() {
        match word {
            "thrice" => person.attempts = 3,
            "adopts" => person.attempts = 0,
            // Its clock, against the real time.
            "slow" => person.rate = -4_500,
            "fast" => person.rate = 4_500,
            "quick" => person.rate = 2_000,
            // It is seldom called.
            "sleepy" => person.haste = 1,
            // It shares the process of the client at that place.
            "with" => person.mate_of = Some(number(&mut words) as usize),
            _ => unreachable!("{word:?} says nothing of a client"),
        }
    }
    person
}
