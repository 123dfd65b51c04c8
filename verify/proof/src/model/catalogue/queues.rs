//! Queues of one key.

use super::Entry;
use crate::model::checker::Method;
use crate::model::queue::{Part, QueueModel};
use crate::model::seen::Seen;
use crate::model::words::{cells, said};

/// A queue a line: its name, who takes part (see [`Part::read`]), what happens besides, and what has to
/// happen somewhere.
const QUEUES: &str = "\
queue/mutex | writer, writer, writer, writer tries | breaks | granted at once, granted while it waited, gone, busy
queue/readers | writer, reader, reader, writer | downgrades | granted while it waited, two hold together
queue/permits | takes 2, takes 1, takes 2, takes 3 | none | granted while it waited, two hold together
queue/resized | takes 2, takes 1, takes 3 | resizes | granted while it waited, two hold together, mismatch
queue/runs | writer runs 0, writer runs 0, writer runs 2, writer runs 2 | breaks | granted in a run, granted while it waited, gone
queue/runs of three | writer runs 0, writer runs 0, writer runs 0, reader | breaks, downgrades | granted in a run, granted while it waited
queue/runs in silence | writer runs 0, writer runs 0, writer | silence | granted in a run, granted while it waited
queue/runs passed over | writer runs 0, writer runs 0, writer | passes | granted in a run, passed over
queue/passed over | writer, writer keeps 3, reader | passes | granted while it waited, passed over
queue/re-entrant | writer of 1, writer of 1, writer of 2, reader | none | granted while it waited, two claims of one owner
queue/unfair | writer, writer ahead, reader ahead tries | unfair | granted at once, granted while it waited, busy
queue/minimum hold | writer keeps 3, writer keeps 1, reader | silence | granted while it waited, kept by its minimum hold
queue/silence | writer, reader, reader | silence, strangers | granted while it waited, taken
queue/losses | writer, writer, reader | losses | granted while it waited
queue/steps back | writer, writer, reader | steps back | granted while it waited";

/// Two who want the key alone.
#[cfg(test)]
pub(in crate::model) fn smallest_queue() -> QueueModel {
    model("writer, writer", "none", "")
}

pub(super) fn all() -> Vec<Entry> {
    let queue = |line| {
        let [name, parts, events, wanted] = cells(line);
        Entry::new(name, Method::Exhaustive, model(parts, events, wanted))
    };
    QUEUES.lines().map(queue).collect()
}

fn model(parts: &str, events: &str, wanted: &'static str) -> QueueModel {
    QueueModel {
        parts: parts.split(", ").map(Part::read).collect(),
        events: said(events),
        seen: Seen::wanting(wanted),
    }
}
