//! Clients against one server, and a server that fails over.
//!
//! A model a line: its name, its clients (see [`person`]), how many ticks a lease and a place in line live
//! and the model lasts, what is set, what may go wrong, and what has to happen somewhere.

use leasehold_core::RenewalPolicy;
use serde::Deserialize;

use super::Entry;
use crate::model::checker::Method;
use crate::model::clients::{self, ClientsModel, Person};
use crate::model::clock::TICK;
use crate::model::seen::Seen;
use crate::model::words::{cells, mode, number, said};

/// Two who want the key alone. One clock is slow, the other and the server's are fast: by nearly as much
/// as the allowance bears. Only tokens are promised where the assumptions are void.
const EVERY_ORDER: &str = "\
clients/drift | two | 2 2 4 | none | none | a wait and a push
clients/late | two | 2 2 3 | none | late 1 | a wait and a push
clients/doubled | two | 2 2 3 | long | doubled 1 | a wait and a push
clients/cut | two | 2 2 3 | long | cuts 1 | a wait and a push
clients/deaths | two | 2 2 3 | none | deaths 1 | a wait and a push
clients/loss | two | 2 2 3 | void | losses 1 | a wait and a push
clients/break | two | 2 2 3 | void, long | breaks 1 | a wait and a push
clients/jump | two | 2 2 3 | void | jumps 1 | a wait and a push
clients/stranger | two | 2 2 3 | none | forged 1 | granted by a push, not proved";

/// A server that keeps one last token for all its keys, and nothing of an idle one: tokens rise
/// also where its clock steps back.
const COUNTERS: &str = "\
counter/steps back | two | 2 2 3 | counts all, long | steps back 1 | a wait and a push
counter/deaths | two | 2 2 3 | counts all, long | deaths 1 | a wait and a push
counter/late | two | 2 2 3 | counts all, long | late 1, steps back 1 | a wait and a push
counter/loss | two | 2 2 3 | counts all, void, long | losses 1 | a wait and a push
counter/walks | two and a reader | 6 5 30 | counts all, walks | weather, steps back 1 | all of crowds";

/// A server that may have forgotten grants nothing for a while, and then all that was
/// promised holds: nothing else is given up. It waits as long as a lease at most, by clocks that
/// differ as much as is allowed; on walks for a lease of six seconds, and by how much two clocks differ.
const FAILOVERS: &str = "\
failover/loss | two | 2 2 3 | quarantine 2 | losses 1 | a quarantine and its end
failover/restart | two | 2 2 2 | quarantine 2 | restarts 1 | a quarantine and its end
failover/replica | two | 2 2 2 | quarantine 2, long | copies 1, failovers 1 | a quarantine and its end
failover/unguarded | two | 2 2 2 | void, long | copies 1, failovers 1 | granted by a push, lost: gone
failover/longer restart | two | 2 2 3 | quarantine 2, long | restarts 1 | a quarantine and its end
failover/longer replica | two | 2 2 3 | quarantine 2, long | copies 1, failovers 1 | a quarantine and its end
failover/walks | two and a reader | 6 5 60 | quarantine 7, walks | weather, losses 1, restarts 1, copies 3, failovers 2 | all of crowds";

/// Leases that live longer than a grant lives at least, so that a cut shows. The sleeper is slow and often
/// cut off, the others are quick: what it believes is late.
const CROWDS: &str = "\
clients/mutex walks | three | 6 5 30 | walks | weather | all of crowds
clients/deaf walks | three | 6 5 30 | deaf, walks | weather | all of crowds
clients/sleeper walks | writer slow thrice sleepy, writer fast thrice, writer thrice | 6 5 20 | walks | cuts 4 | waits, gone, granted by a push, lost: unanswered
clients/readers walks | writer slow thrice, reader fast thrice, reader thrice, writer quick thrice | 6 5 30 | walks | weather | all of crowds
clients/permits walks | takes 2 slow thrice, takes 1 fast thrice, takes 3 thrice, takes 2 quick thrice | 6 5 30 | walks | weather | all of crowds
clients/nothing holds walks | three | 6 5 30 | void, walks | weather, breaks 2, losses 2, jumps 1 | all of crowds";

/// Callers that change their leases, or renew them by hand, or not at all, or for so long at most; some
/// do not stand in line. Leases of 24 ticks show what happens between two renewals.
const CHANGED: &str = "\
clients/rotation | two | 2 2 3 | changes, long | rotations 1 | waits, granted by a push, rotated
clients/downgrade | writer slow, reader fast | 2 2 3 | changes, long | downgrades 1 | waits, granted by a push, reads on
clients/hand over | writer slow, writer fast, writer adopts | 2 2 3 | changes, long | hand overs 1 | waits, granted by a push, handed over
clients/changes walks | writer slow thrice, writer fast thrice, reader thrice, writer quick adopts | 6 5 30 | changes, walks | weather, rotations 4, downgrades 1, hand overs 1 | waits, gone, granted by a push, lost: gone, lost: unanswered, rotated, reads on, handed over, stale answer
clients/policies walks | writer slow thrice fixed, writer fast thrice manual, writer thrice late, writer quick thrice holds 9 | 6 5 30 | changes, walks | weather, rotations 2 | waits, gone, granted by a push, lost: gone, lost: unanswered, rotated, longest hold
clients/long walks | writer slow thrice, writer fast thrice late, writer thrice manual, writer quick adopts | 24 20 100 | changes, walks | weather, rotations 4, hand overs 1 | waits, granted by a push, rotated, handed over
clients/unfair walks | writer slow thrice ahead vacates, writer fast thrice tries, writer thrice vacates, reader quick thrice ahead | 6 5 30 | changes, walks | weather, rotations 2, downgrades 1 | waits, gone, granted by a push, lost: gone, lost: unanswered, rotated";

/// Clients of which some share a process: their claims are granted in runs. Three claims make more
/// states than two: the leases are short. In `runs/replica` the process is alone, and its leases are
/// renewed before they lapse. On walks there are three of one process, two of another, and one that adopts.
const RUNS: &str = "\
runs/drift | mates and one | 1 1 2 | none | none | all of runs
runs/three | writer fast, writer fast with 0, writer fast with 0, writer slow | 1 1 0 | none | none | all of runs
runs/late | mates and one | 1 1 1 | none | late 1 | all of runs
runs/doubled | mates and one | 1 1 1 | long | doubled 1 | all of runs
runs/cut | mates and one | 1 1 1 | long | cuts 1 | all of runs
runs/deaths | mates and one | 1 1 1 | none | deaths 1 | all of runs
runs/break | mates and one | 1 1 1 | void, long | breaks 1 | all of runs
runs/loss | mates and one | 1 1 1 | void | losses 1 | all of runs
runs/adoption | writer fast, writer fast with 0, writer slow adopts | 1 1 2 | none | adoptions 1 | granted in a run, passed on, adopted
runs/adoption of three | writer fast, writer fast with 0, writer fast with 0, writer slow adopts | 1 1 0 | none | adoptions 1 | granted in a run, passed on, adopted
runs/quarantine | mates and one | 1 1 1 | quarantine 1 | losses 1 | granted in a run, passed on, quarantined
runs/replica | writer fast, writer fast with 0 | 2 2 1 | quarantine 2 | copies 1, failovers 1 | granted in a run, passed on, quarantined
runs/walks | processes | 6 5 30 | walks | weather, adoptions 1 | all of runs and crowds
runs/fail-over walks | processes | 6 5 60 | quarantine 7, walks | weather, adoptions 1, losses 1, restarts 1, copies 3, failovers 2 | all of runs and crowds
runs/nothing holds walks | processes | 6 5 30 | void, walks | weather, adoptions 1, breaks 2, losses 2, jumps 1 | all of runs and crowds";

/// What stands for several words.
const SHORT: &str = "\
processes = writer slow thrice, writer slow thrice with 0, writer slow thrice with 0, writer fast thrice, writer fast thrice with 3, writer quick adopts
two and a reader = writer slow thrice, writer fast thrice, reader thrice
three = writer slow thrice, writer fast thrice, writer thrice
mates and one = writer fast, writer fast with 0, writer slow
two = writer slow, writer fast
all of runs and crowds = granted in a run, passed on, ahead has ended, adopted, lost: gone, lost: unanswered
all of crowds = waits, gone, granted by a push, lost: gone, lost: unanswered
all of runs = granted in a run, passed on, ahead has ended
a quarantine and its end = granted by a push, quarantined, granted after a quarantine
a wait and a push = waits, granted by a push";

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
    /// What callers want of their leases is judged.
    changes: bool,
    long: bool,
    walks: bool,
}

pub(super) fn all() -> Vec<Entry> {
    let all = [EVERY_ORDER, COUNTERS, FAILOVERS, CROWDS, CHANGED, RUNS];
    all.into_iter().flat_map(str::lines).map(entry).collect()
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
        promises: match (set.void, set.changes) {
            (true, _) => clients::TOKENS,
            (_, true) => clients::OF_CHANGES,
            _ => clients::ALL,
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
    let mut short = SHORT.lines();
    let whole = short.find_map(|line| line.strip_prefix(cell)?.strip_prefix(" = "));
    whole.unwrap_or(cell)
}

/// Reads a client: how it wants the key, once, and what else is said of it.
fn person(text: &str) -> Person {
    let mut words = text.split(' ');
    let mut person = Person {
        mode: mode(&mut words),
        policy: RenewalPolicy::Automatic(1.0 / 3.0),
        max_hold: None,
        wait: true,
        ahead: false,
        hand_off: true,
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
            "manual" => person.policy = RenewalPolicy::Manual,
            "fixed" => person.policy = RenewalPolicy::Fixed,
            "late" => person.policy = RenewalPolicy::Automatic(0.8),
            "holds" => person.max_hold = Some(TICK * number(&mut words)),
            "tries" => person.wait = false,
            "ahead" => person.ahead = true,
            // It hands on to nobody.
            "vacates" => person.hand_off = false,
            // It shares the process of the client at that place.
            "with" => person.mate_of = Some(number(&mut words) as usize),
            _ => unreachable!("{word:?} says nothing of a client"),
        }
    }
    person
}
