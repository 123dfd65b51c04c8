//! The models by name.

use std::time::Duration;

use leasehold_core::Mode;
use leasehold_core::quorum::QuorumSize;

use super::checker::{Effort, Findings, Method, Subject, run};
use super::clients::{self, Budget, ClientsModel, Person};
use super::queue::{Events, Part, QueueModel};
use super::quorum::{self, QuorumModel};
use super::seen::Seen;

/// A model, ready to run.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    run: Box<dyn Fn(Effort) -> Findings + Send + Sync>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Entry {
    fn new(name: &'static str, method: Method, subject: impl Subject) -> Self {
        Self {
            name,
            run: Box::new(move |effort| run(name, &subject, method, effort)),
        }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self, effort: Effort) -> Findings {
        (self.run)(effort)
    }
}

/// All models.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut all = queues();
    all.extend(clients());
    all.extend(quorums());
    all
}

fn person(mode: Mode, attempts: u8, rate: i64) -> Person {
    Person {
        mode,
        attempts,
        rate,
    }
}

/// Two who want the key alone. One clock is slow, the other and the server's are fast:
/// by nearly as much as the allowance bears.
fn two_writers() -> ClientsModel {
    ClientsModel {
        people: vec![
            person(Mode::Exclusive, 1, -4_500),
            person(Mode::Exclusive, 1, 4_500),
        ],
        lease: Duration::from_secs(2),
        waiter: Duration::from_secs(2),
        horizon: 4,
        faults: Budget::default(),
        server_rate: 4_500,
        quarantine: None,
        hears_silence: true,
        promises: clients::ALL,
        seen: Seen::wanting(&["waits", "granted by a push"]),
    }
}

/// All that may go wrong without an assumption failing.
const WEATHER: Budget = Budget {
    doubled: 3,
    late: 6,
    cuts: 3,
    deaths: 1,
    breaks: 0,
    losses: 0,
    restarts: 0,
    copies: 0,
    failovers: 0,
    jumps: 0,
};

fn crowd(modes: &[Mode]) -> ClientsModel {
    let rates = [-4_500, 4_500, 0, 2_000];
    let people = modes.iter().zip(rates);
    ClientsModel {
        people: people.map(|(mode, rate)| person(*mode, 3, rate)).collect(),
        // Longer than a grant lives at least, so that a cut shows.
        lease: Duration::from_secs(6),
        waiter: Duration::from_secs(5),
        horizon: 30,
        faults: WEATHER,
        seen: Seen::wanting(&[
            "waits",
            "gone",
            "granted by a push",
            "lost: gone",
            "lost: unanswered",
        ]),
        ..two_writers()
    }
}

fn clients() -> Vec<Entry> {
    let exhaustive = |name, subject| Entry::new(name, Method::Exhaustive, subject);
    let walks = |name, subject| {
        let walks = Method::Walks {
            walks: 20_000,
            steps: 200,
        };
        Entry::new(name, walks, subject)
    };
    let with = |faults| ClientsModel {
        faults,
        horizon: 3,
        ..two_writers()
    };
    // What the assumptions exclude: tokens rise all the same.
    let void = |faults| ClientsModel {
        promises: clients::TOKENS,
        ..with(faults)
    };
    // A server that may have forgotten grants nothing: nothing else is given up.
    let guarded = |faults| ClientsModel {
        quarantine: Some(Duration::from_secs(4)),
        seen: Seen::wanting(&["granted by a push", "quarantined"]),
        ..with(faults)
    };
    let none = Budget::default;
    let permits = |take| Mode::Permits { of: 3, take };
    let writer = Mode::Exclusive;
    vec![
        exhaustive("clients/drift", two_writers()),
        exhaustive("clients/late", with(Budget { late: 1, ..none() })),
        exhaustive(
            "clients/doubled",
            with(Budget {
                doubled: 1,
                ..none()
            }),
        ),
        exhaustive("clients/cut", with(Budget { cuts: 1, ..none() })),
        exhaustive(
            "clients/deaths",
            with(Budget {
                deaths: 1,
                ..none()
            }),
        ),
        exhaustive(
            "clients/loss",
            void(Budget {
                losses: 1,
                ..none()
            }),
        ),
        exhaustive(
            "clients/break",
            void(Budget {
                breaks: 1,
                ..none()
            }),
        ),
        exhaustive("clients/jump", void(Budget { jumps: 1, ..none() })),
        exhaustive(
            "failover/loss",
            guarded(Budget {
                losses: 1,
                ..none()
            }),
        ),
        exhaustive(
            "failover/restart",
            guarded(Budget {
                restarts: 1,
                ..none()
            }),
        ),
        exhaustive(
            "failover/replica",
            guarded(Budget {
                copies: 1,
                failovers: 1,
                ..none()
            }),
        ),
        walks(
            "failover/walks",
            ClientsModel {
                quarantine: Some(Duration::from_secs(12)),
                faults: Budget {
                    losses: 1,
                    restarts: 1,
                    copies: 3,
                    failovers: 2,
                    ..WEATHER
                },
                horizon: 60,
                ..crowd(&[writer, writer, Mode::Shared])
            },
        ),
        walks("clients/mutex walks", crowd(&[writer; 3])),
        walks(
            "clients/deaf walks",
            ClientsModel {
                hears_silence: false,
                ..crowd(&[writer; 3])
            },
        ),
        walks(
            "clients/readers walks",
            crowd(&[writer, Mode::Shared, Mode::Shared, writer]),
        ),
        walks(
            "clients/permits walks",
            crowd(&[permits(2), permits(1), permits(3), permits(2)]),
        ),
        walks(
            "clients/nothing holds walks",
            ClientsModel {
                promises: clients::TOKENS,
                faults: Budget {
                    breaks: 2,
                    losses: 2,
                    jumps: 1,
                    ..WEATHER
                },
                ..crowd(&[writer; 3])
            },
        ),
    ]
}

fn queue(
    name: &'static str,
    parts: Vec<Part>,
    events: Events,
    wanted: &'static [&'static str],
) -> Entry {
    let subject = QueueModel {
        parts,
        events,
        seen: Seen::wanting(wanted),
    };
    Entry::new(name, Method::Exhaustive, subject)
}

/// Two who want the key alone.
#[cfg(test)]
pub(super) fn smallest_queue() -> QueueModel {
    QueueModel {
        parts: vec![Part::writer(), Part::writer()],
        events: Events::default(),
        seen: Seen::wanting(&[]),
    }
}

fn queues() -> Vec<Entry> {
    let none = Events::default;
    vec![
        queue(
            "queue/mutex",
            vec![
                Part::writer(),
                Part::writer(),
                Part::writer(),
                Part::writer().tries(),
            ],
            Events {
                breaks: true,
                ..none()
            },
            &["granted at once", "granted while it waited", "gone", "busy"],
        ),
        queue(
            "queue/readers",
            vec![
                Part::writer(),
                Part::reader(),
                Part::reader(),
                Part::writer(),
            ],
            Events {
                downgrades: true,
                ..none()
            },
            &["granted while it waited", "two hold together"],
        ),
        queue(
            "queue/permits",
            vec![
                Part::permits(2),
                Part::permits(1),
                Part::permits(2),
                Part::permits(3),
            ],
            none(),
            &["granted while it waited", "two hold together"],
        ),
        queue(
            "queue/resized",
            vec![Part::permits(2), Part::permits(1), Part::permits(3)],
            Events {
                resizes: true,
                ..none()
            },
            &["granted while it waited", "two hold together", "mismatch"],
        ),
        queue(
            "queue/re-entrant",
            vec![
                Part::writer().of(1),
                Part::writer().of(1),
                Part::writer().of(2),
                Part::reader(),
            ],
            none(),
            &["granted while it waited", "two claims of one owner"],
        ),
        queue(
            "queue/unfair",
            vec![
                Part::writer(),
                Part::writer().ahead(),
                Part::reader().ahead().tries(),
            ],
            Events {
                unfair: true,
                ..none()
            },
            &["granted at once", "granted while it waited", "busy"],
        ),
        queue(
            "queue/minimum hold",
            vec![
                Part::writer().keeps(3),
                Part::writer().keeps(1),
                Part::reader(),
            ],
            Events {
                silence: true,
                ..none()
            },
            &["granted while it waited", "kept by its minimum hold"],
        ),
        queue(
            "queue/silence",
            vec![Part::writer(), Part::reader(), Part::reader()],
            Events {
                silence: true,
                strangers: true,
                ..none()
            },
            &["granted while it waited", "taken"],
        ),
        queue(
            "queue/losses",
            vec![Part::writer(), Part::writer(), Part::reader()],
            Events {
                losses: true,
                ..none()
            },
            &["granted while it waited"],
        ),
        queue(
            "queue/steps back",
            vec![Part::writer(), Part::writer(), Part::reader()],
            Events {
                steps_back: true,
                ..none()
            },
            &["granted while it waited"],
        ),
    ]
}

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

fn quorums() -> Vec<Entry> {
    let mut all = every_vote();
    all.extend(walks_among_servers());
    all
}

fn every_vote() -> Vec<Entry> {
    let none = quorum::Budget::default;
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
    let renewal = quorum::Budget {
        renewals: 1,
        ..none()
    };
    let loss = quorum::Budget {
        losses: 1,
        ..none()
    };
    add("quorum/tokens", three_servers(none()));
    add("quorum/exclusion", timed(three_servers(none())));
    add("quorum/renewal", timed(three_servers(renewal)));
    add("quorum/loss", timed(three_servers(loss)));
    all
}

fn walks_among_servers() -> Vec<Entry> {
    let mut all = Vec::new();
    let mut add = |name, subject: Option<QuorumModel>| {
        let walks = Method::Walks {
            walks: 20_000,
            steps: 250,
        };
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
    add(
        "quorum/four of five walks",
        assembly((5, Some(4)), restarts),
    );
    all
}
