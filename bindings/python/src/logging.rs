//! What the library logs, for Python's `logging`.
//!
//! Threads of the runtime call no Python: they leave records in a list, from the level on that
//! somebody listens to, and a thread of Python takes them from there.

use std::fmt::{Debug, Write as _};
use std::mem::{replace, take};
use std::sync::{Mutex, Once};
use std::thread::{self, ThreadId};
use std::time::Duration;

use leasehold_store::fork::PerProcess;
use leasehold_store::sync::lock;
use pyo3::prelude::*;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Metadata, Subscriber};

use crate::op::Op;

/// More than that have not been taken: those that come then are dropped, and counted.
const MOST: usize = 1000;

static LISTENED: Mutex<LevelFilter> = Mutex::new(LevelFilter::OFF);
static RECORDS: PerProcess<watch::Sender<Records>> = PerProcess::new();

/// A level, and a message.
type Record = (&'static str, String);

#[derive(Default)]
struct Records {
    list: Vec<Record>,
    dropped: usize,
    /// The thread that takes them, until it has come back from those that it took.
    said_by: Option<ThreadId>,
}

/// Somebody listens from this level on, and takes the records; at `OFF` nobody does. Most calls
/// change nothing.
#[pyfunction]
pub(crate) fn listen(level: &str) {
    static BEGIN: Once = Once::new();
    let level = level.parse().unwrap_or(LevelFilter::OFF);
    if replace(&mut *lock(&LISTENED), level) != level {
        BEGIN.call_once(|| drop(tracing::subscriber::set_global_default(Listener)));
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Waits for records, and takes them.
#[pyfunction]
pub(crate) fn records() -> Op {
    Op::new(async {
        let records = RECORDS.get_or_init(watch::Sender::default);
        records.send_modify(|it| it.said_by = None);
        let mut come = records.subscribe();
        let _come = come.wait_for(|it| !it.list.is_empty()).await.is_ok();
        let mut taken = Vec::new();
        records.send_modify(|it| {
            (taken, it.said_by) = (take(&mut it.list), Some(thread::current().id()));
            let dropped = take(&mut it.dropped);
            if dropped > 0 {
                let message = "records were dropped, as a handler of logging is slow";
                taken.push(("WARN", format!("{dropped} {message}")));
            }
        });
        Ok(taken)
    })
}

/// Waits until `logging` has had what was logged so far, unless a handler takes longer than this.
pub(crate) async fn said(within: Duration) {
    let mut records = RECORDS.get_or_init(watch::Sender::default).subscribe();
    let is_heard = *lock(&LISTENED) != LevelFilter::OFF;
    // A handler that closes a client of its own does not wait for itself.
    let is_own = records.borrow().said_by == Some(thread::current().id());
    let said = |it: &Records| !is_heard || is_own || it.list.is_empty() && it.said_by.is_none();
    let _in_time = timeout(within, records.wait_for(said)).await.is_ok();
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("leasehold")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(*lock(&LISTENED))
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let message = text.message + &text.fields;
        let record = (event.metadata().level().as_str(), message);
        let records = RECORDS.get_or_init(watch::Sender::default);
        records.send_modify(|it| match it.list.len() {
            ..MOST => it.list.push(record),
            _ => it.dropped += 1,
        });
    }

    // There are no spans.
    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _span: &Id, _values: &Values<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// An event in words.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let name = field.name().trim_start_matches("leasehold.");
        let _ = match name {
            "message" => write!(self.message, "{value:?}"),
            _ => write!(self.fields, " {name}={value:?}"),
        };
    }
}
