//! Queues of one key.

use super::Entry;
use crate::model::checker::Method;
use crate::model::queue::{Part, QueueModel};
use crate::model::seen::Seen;
use crate::model::words::{cells, rows, said};

/// The models; what the columns are is said there.
const QUEUES: &str = include_str!("queues.txt");

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
    rows(QUEUES).map(queue).collect()
}

fn model(parts: &str, events: &str, wanted: &'static str) -> QueueModel {
    QueueModel {
        parts: parts.split(", ").map(Part::read).collect(),
        events: said(events),
        seen: Seen::wanting(wanted),
    }
}
