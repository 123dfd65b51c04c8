//! Queues of one key.

use super::Entry;
use crate::model::checker::Method;
use crate::model::queue::{Events, Part, QueueModel};
use crate::model::seen::Seen;

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
pub(in crate::model) fn smallest_queue() -> QueueModel {
    QueueModel {
        parts: vec![Part::writer(), Part::writer()],
        events: Events::default(),
        seen: Seen::wanting(&[]),
    }
}

pub(super) fn all() -> Vec<Entry> {
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
            "queue/runs",
            vec![
                Part::writer().runs(0),
                Part::writer().runs(0),
                Part::writer().runs(2),
                Part::writer().runs(2),
            ],
            Events {
                breaks: true,
                ..none()
            },
            &["granted in a run", "granted while it waited", "gone"],
        ),
        queue(
            "queue/runs of three",
            vec![
                Part::writer().runs(0),
                Part::writer().runs(0),
                Part::writer().runs(0),
                Part::reader(),
            ],
            Events {
                breaks: true,
                downgrades: true,
                ..none()
            },
            &["granted in a run", "granted while it waited"],
        ),
        queue(
            "queue/runs in silence",
            vec![
                Part::writer().runs(0),
                Part::writer().runs(0),
                Part::writer(),
            ],
            Events {
                silence: true,
                ..none()
            },
            &["granted in a run", "granted while it waited"],
        ),
        queue(
            "queue/runs passed over",
            vec![
                Part::writer().runs(0),
                Part::writer().runs(0),
                Part::writer(),
            ],
            Events {
                passes: true,
                ..none()
            },
            &["granted in a run", "passed over"],
        ),
        queue(
            "queue/passed over",
            vec![Part::writer(), Part::writer().keeps(3), Part::reader()],
            Events {
                passes: true,
                ..none()
            },
            &["granted while it waited", "passed over"],
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
