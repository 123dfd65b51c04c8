//! Queues of one key.

use super::Entry;
use crate::model::checker::Method;
use crate::model::queue::{Events, Part, QueueModel};
use crate::model::seen::Seen;

fn queue(name: &'static str, parts: Vec<Part>, events: Events, wanted: &'static str) -> Entry {
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
        seen: Seen::wanting(""),
    }
}

pub(super) fn all() -> Vec<Entry> {
    let (writer, reader, permits) = (Part::writer, Part::reader, Part::permits);
    let of = |client| writer().runs(client);
    let none = Events::default();
    let [breaks, downgrades, losses, passes, resizes] = [true; 5];
    let [silence, steps_back, strangers, unfair] = [true; 4];
    vec![
        queue(
            "queue/mutex",
            vec![writer(), writer(), writer(), writer().tries()],
            Events { breaks, ..none },
            "granted at once, granted while it waited, gone, busy",
        ),
        queue(
            "queue/readers",
            vec![writer(), reader(), reader(), writer()],
            Events { downgrades, ..none },
            "granted while it waited, two hold together",
        ),
        queue(
            "queue/permits",
            vec![permits(2), permits(1), permits(2), permits(3)],
            none,
            "granted while it waited, two hold together",
        ),
        queue(
            "queue/resized",
            vec![permits(2), permits(1), permits(3)],
            Events { resizes, ..none },
            "granted while it waited, two hold together, mismatch",
        ),
        queue(
            "queue/runs",
            vec![of(0), of(0), of(2), of(2)],
            Events { breaks, ..none },
            "granted in a run, granted while it waited, gone",
        ),
        queue(
            "queue/runs of three",
            vec![of(0), of(0), of(0), reader()],
            Events {
                breaks,
                downgrades,
                ..none
            },
            "granted in a run, granted while it waited",
        ),
        queue(
            "queue/runs in silence",
            vec![of(0), of(0), writer()],
            Events { silence, ..none },
            "granted in a run, granted while it waited",
        ),
        queue(
            "queue/runs passed over",
            vec![of(0), of(0), writer()],
            Events { passes, ..none },
            "granted in a run, passed over",
        ),
        queue(
            "queue/passed over",
            vec![writer(), writer().keeps(3), reader()],
            Events { passes, ..none },
            "granted while it waited, passed over",
        ),
        queue(
            "queue/re-entrant",
            vec![writer().of(1), writer().of(1), writer().of(2), reader()],
            none,
            "granted while it waited, two claims of one owner",
        ),
        queue(
            "queue/unfair",
            vec![writer(), writer().ahead(), reader().ahead().tries()],
            Events { unfair, ..none },
            "granted at once, granted while it waited, busy",
        ),
        queue(
            "queue/minimum hold",
            vec![writer().keeps(3), writer().keeps(1), reader()],
            Events { silence, ..none },
            "granted while it waited, kept by its minimum hold",
        ),
        queue(
            "queue/silence",
            vec![writer(), reader(), reader()],
            Events {
                silence,
                strangers,
                ..none
            },
            "granted while it waited, taken",
        ),
        queue(
            "queue/losses",
            vec![writer(), writer(), reader()],
            Events { losses, ..none },
            "granted while it waited",
        ),
        queue(
            "queue/steps back",
            vec![writer(), writer(), reader()],
            Events { steps_back, ..none },
            "granted while it waited",
        ),
    ]
}
