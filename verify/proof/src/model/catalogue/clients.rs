//! Clients against one server, and a server that fails over.

mod runs;

use std::time::Duration;

use leasehold_core::Mode;

use super::Entry;
use crate::model::checker::Method;
use crate::model::clients::{self, Budget, ClientsModel, Person};
use crate::model::seen::Seen;

fn person(mode: Mode, attempts: u8, rate: i64) -> Person {
    Person {
        mode,
        attempts,
        rate,
        mate_of: None,
        haste: 12,
    }
}

/// Two who want the key alone. One clock is slow, the other and the server's are fast:
/// by nearly as much as the allowance bears.
fn two_writers() -> ClientsModel {
    ClientsModel {
        people: vec![
            person(Mode::EXCLUSIVE, 1, -4_500),
            person(Mode::EXCLUSIVE, 1, 4_500),
        ],
        lease: Duration::from_secs(2),
        waiter: Duration::from_secs(2),
        horizon: 4,
        faults: Budget::default(),
        server_rate: 4_500,
        quarantine: None,
        counts_all: false,
        hears_silence: true,
        promises: clients::ALL,
        seen: Seen::wanting("waits, granted by a push"),
    }
}

/// All that may go wrong without an assumption failing.
fn weather() -> Budget {
    Budget {
        doubled: 3,
        late: 6,
        cuts: 3,
        deaths: 1,
        ..Budget::default()
    }
}

const TWO_WRITERS_AND_A_READER: [Mode; 3] = [Mode::EXCLUSIVE, Mode::EXCLUSIVE, Mode::SHARED];

fn crowd(modes: &[Mode]) -> ClientsModel {
    let rates = [-4_500, 4_500, 0, 2_000];
    let people = modes.iter().zip(rates);
    ClientsModel {
        people: people.map(|(mode, rate)| person(*mode, 3, rate)).collect(),
        // Longer than a grant lives at least, so that a cut shows.
        lease: Duration::from_secs(6),
        waiter: Duration::from_secs(5),
        horizon: 30,
        faults: weather(),
        seen: Seen::wanting("waits, gone, granted by a push, lost: gone, lost: unanswered"),
        ..two_writers()
    }
}

pub(super) fn all() -> Vec<Entry> {
    let mut all = every_order();
    all.extend(counters());
    all.extend(failovers());
    all.extend(crowds());
    all.extend(runs::all());
    all
}

fn exhaustive(name: &'static str, subject: ClientsModel) -> Entry {
    Entry::new(name, Method::Exhaustive, subject)
}

fn walks(name: &'static str, subject: ClientsModel) -> Entry {
    let walks = Method::Walks(50_000, 200);
    Entry::new(name, walks, subject)
}

fn with(faults: Budget) -> ClientsModel {
    ClientsModel {
        faults,
        horizon: 3,
        ..two_writers()
    }
}

fn every_order() -> Vec<Entry> {
    let none = Budget::default();
    let (late, doubled, cuts) = (1, 1, 1);
    let (deaths, losses, breaks, jumps) = (1, 1, 1, 1);
    // What the assumptions exclude: tokens rise all the same.
    let void = |faults| ClientsModel {
        promises: clients::TOKENS,
        ..with(faults)
    };
    let stranger = ClientsModel {
        seen: Seen::wanting("granted by a push, not proved"),
        ..with(Budget { forged: 1, ..none })
    };
    vec![
        exhaustive("clients/drift", two_writers()),
        exhaustive("clients/late", with(Budget { late, ..none })),
        exhaustive("clients/doubled", with(Budget { doubled, ..none })).long(),
        exhaustive("clients/cut", with(Budget { cuts, ..none })).long(),
        exhaustive("clients/deaths", with(Budget { deaths, ..none })),
        exhaustive("clients/loss", void(Budget { losses, ..none })),
        exhaustive("clients/break", void(Budget { breaks, ..none })).long(),
        exhaustive("clients/jump", void(Budget { jumps, ..none })),
        exhaustive("clients/stranger", stranger),
    ]
}

/// A server that keeps one last token for all its keys, and nothing of an idle one: tokens rise
/// also where its clock steps back.
fn counters() -> Vec<Entry> {
    let counts_all = true;
    let none = Budget::default();
    let steps_back = 1;
    let counting = |faults| ClientsModel {
        counts_all,
        ..with(faults)
    };
    let late = Budget {
        late: 1,
        steps_back,
        ..none
    };
    let steps = counting(Budget { steps_back, ..none });
    let loss = ClientsModel {
        promises: clients::TOKENS,
        ..counting(Budget { losses: 1, ..none })
    };
    let crowd = ClientsModel {
        counts_all,
        faults: Budget {
            steps_back,
            ..weather()
        },
        ..crowd(&TWO_WRITERS_AND_A_READER)
    };
    vec![
        exhaustive("counter/steps back", steps).long(),
        exhaustive("counter/deaths", counting(Budget { deaths: 1, ..none })).long(),
        exhaustive("counter/late", counting(late)).long(),
        exhaustive("counter/loss", loss).long(),
        walks("counter/walks", crowd),
    ]
}

/// A server that may have forgotten grants nothing for a while, and then all that was
/// promised holds: nothing else is given up.
fn failovers() -> Vec<Entry> {
    let none = Budget::default();
    let (losses, restarts, copies, failovers) = (1, 1, 1, 1);
    // As long as a lease at most, by clocks that differ as much as is allowed.
    let guarded = |horizon, faults| ClientsModel {
        quarantine: Some(Duration::from_secs(2)),
        horizon,
        seen: Seen::wanting("granted by a push, quarantined, granted after a quarantine"),
        ..with(faults)
    };
    let unguarded = |faults| ClientsModel {
        quarantine: None,
        promises: clients::TOKENS,
        seen: Seen::wanting("granted by a push, lost: gone"),
        ..guarded(2, faults)
    };
    let loss = Budget { losses, ..none };
    let restart = Budget { restarts, ..none };
    let replica = Budget {
        copies,
        failovers,
        ..none
    };
    let crowd = fails_over(crowd(&TWO_WRITERS_AND_A_READER));
    vec![
        exhaustive("failover/loss", guarded(3, loss)),
        exhaustive("failover/restart", guarded(2, restart)),
        exhaustive("failover/replica", guarded(2, replica)).long(),
        exhaustive("failover/unguarded", unguarded(replica)).long(),
        exhaustive("failover/longer restart", guarded(3, restart)).long(),
        exhaustive("failover/longer replica", guarded(3, replica)).long(),
        walks("failover/walks", crowd),
    ]
}

/// A server that restarts, is replaced and forgets, and then waits for a lease of six seconds, and by how
/// much two clocks differ.
fn fails_over(model: ClientsModel) -> ClientsModel {
    ClientsModel {
        quarantine: Some(Duration::from_secs(7)),
        faults: Budget {
            losses: 1,
            restarts: 1,
            copies: 3,
            failovers: 2,
            ..model.faults
        },
        horizon: 60,
        ..model
    }
}

/// What the assumptions exclude.
fn nothing_holds(model: ClientsModel) -> ClientsModel {
    ClientsModel {
        promises: clients::TOKENS,
        faults: Budget {
            breaks: 2,
            losses: 2,
            jumps: 1,
            ..model.faults
        },
        ..model
    }
}

/// One client is slow and often cut off, the others are quick: what it believes is late.
fn sleeper() -> ClientsModel {
    let crowd = crowd(&[Mode::EXCLUSIVE; 3]);
    let mut people = crowd.people.clone();
    people[0].haste = 1;
    let cuts = 4;
    ClientsModel {
        people,
        faults: Budget {
            cuts,
            ..Budget::default()
        },
        horizon: 20,
        seen: Seen::wanting("waits, gone, granted by a push, lost: unanswered"),
        ..crowd
    }
}

fn crowds() -> Vec<Entry> {
    let permits = |take| Mode::permits(3, take);
    let (writer, reader) = (Mode::EXCLUSIVE, Mode::SHARED);
    let writers = || crowd(&[writer; 3]);
    let deaf = ClientsModel {
        hears_silence: false,
        ..writers()
    };
    let readers = crowd(&[writer, reader, reader, writer]);
    let permits = crowd(&[permits(2), permits(1), permits(3), permits(2)]);
    vec![
        walks("clients/mutex walks", writers()),
        walks("clients/deaf walks", deaf),
        walks("clients/sleeper walks", sleeper()),
        walks("clients/readers walks", readers),
        walks("clients/permits walks", permits),
        walks("clients/nothing holds walks", nothing_holds(writers())),
    ]
}
