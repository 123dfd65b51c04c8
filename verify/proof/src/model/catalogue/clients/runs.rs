//! Clients of which some share a process: their claims are granted in runs.

use std::time::Duration;

use leasehold_core::Mode;

use super::{Entry, WEATHER, crowd, exhaustive, person, two_writers, walks};
use crate::model::clients::{self, Budget, ClientsModel, Person};
use crate::model::seen::Seen;

const NONE: Budget = Budget {
    doubled: 0,
    late: 0,
    cuts: 0,
    deaths: 0,
    ..WEATHER
};

const ADOPTION: Budget = Budget {
    adoptions: 1,
    ..NONE
};

/// Writers that share a process with the first of them.
fn mates(first: usize, count: usize, of: Person) -> Vec<Person> {
    let mate_of = |number| (number > 0).then_some(first);
    let mates = (0..count).map(|number| Person {
        mate_of: mate_of(number),
        ..of
    });
    mates.collect()
}

/// So many writers of one process whose clock is fast, and another client. Three claims make
/// more states than two: the leases are short.
fn with(count: usize, horizon: u64, faults: Budget) -> ClientsModel {
    let mut people = mates(0, count, person(Mode::EXCLUSIVE, 1, 4_500));
    people.push(person(Mode::EXCLUSIVE, 1, -4_500));
    ClientsModel {
        people,
        lease: Duration::from_secs(1),
        waiter: Duration::from_secs(1),
        horizon,
        faults,
        seen: Seen::wanting(&["granted in a run", "passed on", "ahead has ended"]),
        ..two_writers()
    }
}

/// The other client asks for what a caller lets others have.
fn adopted(count: usize, horizon: u64) -> ClientsModel {
    let mut model = with(count, horizon, ADOPTION);
    model.people[count].attempts = 0;
    model.seen = Seen::wanting(&["granted in a run", "passed on", "adopted"]);
    model
}

fn every_order() -> Vec<Entry> {
    let (late, doubled, cuts, deaths) = (1, 1, 1, 1);
    let (losses, breaks) = (1, 1);
    let void = |faults| ClientsModel {
        promises: clients::TOKENS,
        ..with(2, 1, faults)
    };
    let guarded = |faults| ClientsModel {
        quarantine: Some(Duration::from_secs(1)),
        seen: Seen::wanting(&["granted in a run", "passed on", "quarantined"]),
        ..with(2, 1, faults)
    };
    // The process alone, and leases that are renewed before they lapse.
    let alone = |faults| ClientsModel {
        people: mates(0, 2, person(Mode::EXCLUSIVE, 1, 4_500)),
        lease: Duration::from_secs(2),
        waiter: Duration::from_secs(2),
        quarantine: Some(Duration::from_secs(2)),
        ..guarded(faults)
    };
    let replica = Budget {
        copies: 1,
        failovers: 1,
        ..NONE
    };
    vec![
        exhaustive("runs/drift", with(2, 2, NONE)),
        exhaustive("runs/three", with(3, 0, NONE)),
        exhaustive("runs/late", with(2, 1, Budget { late, ..NONE })),
        exhaustive("runs/doubled", with(2, 1, Budget { doubled, ..NONE })).long(),
        exhaustive("runs/cut", with(2, 1, Budget { cuts, ..NONE })).long(),
        exhaustive("runs/deaths", with(2, 1, Budget { deaths, ..NONE })),
        exhaustive("runs/break", void(Budget { breaks, ..NONE })).long(),
        exhaustive("runs/loss", void(Budget { losses, ..NONE })),
        exhaustive("runs/adoption", adopted(2, 2)),
        exhaustive("runs/adoption of three", adopted(3, 0)),
        exhaustive("runs/quarantine", guarded(Budget { losses, ..NONE })),
        exhaustive("runs/replica", alone(replica)),
    ]
}

/// Three of one process, two of another, and one that adopts.
fn processes() -> ClientsModel {
    let [first, second] = [-4_500, 4_500].map(|rate| person(Mode::EXCLUSIVE, 3, rate));
    let mut people = mates(0, 3, first);
    people.extend(mates(3, 2, second));
    people.push(person(Mode::EXCLUSIVE, 0, 2_000));
    ClientsModel {
        people,
        faults: Budget {
            adoptions: 1,
            ..WEATHER
        },
        seen: Seen::wanting(&[
            "granted in a run",
            "passed on",
            "ahead has ended",
            "adopted",
            "lost: gone",
            "lost: unanswered",
        ]),
        ..crowd(&[])
    }
}

fn long_ways() -> Vec<Entry> {
    vec![
        walks("runs/walks", processes()),
        walks(
            "runs/fail-over walks",
            ClientsModel {
                quarantine: Some(Duration::from_secs(7)),
                faults: Budget {
                    losses: 1,
                    restarts: 1,
                    copies: 3,
                    failovers: 2,
                    adoptions: 1,
                    ..WEATHER
                },
                horizon: 60,
                ..processes()
            },
        ),
        walks(
            "runs/nothing holds walks",
            ClientsModel {
                promises: clients::TOKENS,
                faults: Budget {
                    breaks: 2,
                    losses: 2,
                    jumps: 1,
                    adoptions: 1,
                    ..WEATHER
                },
                ..processes()
            },
        ),
    ]
}

pub(super) fn all() -> Vec<Entry> {
    let mut all = every_order();
    all.extend(long_ways());
    all
}
