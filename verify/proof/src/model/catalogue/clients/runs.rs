//! Clients of which some share a process: their claims are granted in runs.

use std::time::Duration;

use leasehold_core::Mode;

use super::{
    Entry, crowd, exhaustive, fails_over, nothing_holds, person, two_writers, walks, weather,
};
use crate::model::clients::{self, Budget, ClientsModel, Person};
use crate::model::seen::Seen;

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
        seen: Seen::wanting("granted in a run, passed on, ahead has ended"),
        ..two_writers()
    }
}

/// The other client asks for what a caller lets others have.
fn adopted(count: usize, horizon: u64) -> ClientsModel {
    let adoption = Budget {
        adoptions: 1,
        ..Budget::default()
    };
    let mut model = with(count, horizon, adoption);
    model.people[count].attempts = 0;
    model.seen = Seen::wanting("granted in a run, passed on, adopted");
    model
}

fn every_order() -> Vec<Entry> {
    let none = Budget::default();
    let (late, doubled, cuts, deaths) = (1, 1, 1, 1);
    let (losses, breaks) = (1, 1);
    let void = |faults| ClientsModel {
        promises: clients::TOKENS,
        ..with(2, 1, faults)
    };
    let guarded = |faults| ClientsModel {
        quarantine: Some(Duration::from_secs(1)),
        seen: Seen::wanting("granted in a run, passed on, quarantined"),
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
        ..none
    };
    vec![
        exhaustive("runs/drift", with(2, 2, none)),
        exhaustive("runs/three", with(3, 0, none)),
        exhaustive("runs/late", with(2, 1, Budget { late, ..none })),
        exhaustive("runs/doubled", with(2, 1, Budget { doubled, ..none })).long(),
        exhaustive("runs/cut", with(2, 1, Budget { cuts, ..none })).long(),
        exhaustive("runs/deaths", with(2, 1, Budget { deaths, ..none })),
        exhaustive("runs/break", void(Budget { breaks, ..none })).long(),
        exhaustive("runs/loss", void(Budget { losses, ..none })),
        exhaustive("runs/adoption", adopted(2, 2)),
        exhaustive("runs/adoption of three", adopted(3, 0)),
        exhaustive("runs/quarantine", guarded(Budget { losses, ..none })),
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
            ..weather()
        },
        seen: Seen::wanting(
            "granted in a run, passed on, ahead has ended, adopted, lost: gone, lost: unanswered",
        ),
        ..crowd(&[])
    }
}

fn long_ways() -> Vec<Entry> {
    vec![
        walks("runs/walks", processes()),
        walks("runs/fail-over walks", fails_over(processes())),
        walks("runs/nothing holds walks", nothing_holds(processes())),
    ]
}

pub(super) fn all() -> Vec<Entry> {
    let mut all = every_order();
    all.extend(long_ways());
    all
}
