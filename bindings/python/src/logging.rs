//! What the library logs, for Python's `logging`.
//!
//! Threads of the runtime call no Python: they leave records in a list, from the level on that
//! somebody listens to, and a thread of Python takes them from there.

use std::fmt::{Debug, Write as _};
use std::mem::{replace, take};
use std::sync::{Mutex, Once};

use leasehold_store::fork::PerProcess;
use pyo3::prelude::*;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Metadata, Subscriber};

use crate::bridge::lock;
use crate::op::{Op, Output};

/// More than that have not been taken: those that come then are dropped.
const MOST: usize = 1000;

static LISTENED: Mutex<LevelFilter> = Mutex::new(LevelFilter::OFF);
static RECORDS: PerProcess<Records> = PerProcess::new();

/// A level, and a message.
pub(crate) type Record = (&'static str, String);

#[derive(Default)]
struct Records {
    list: Mutex<Vec<Record>>,
    come: Notify,
}

/// Somebody listens from this level on. Most calls change nothing.
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
        let records = RECORDS.get_or_init(Records::default);
        loop {
            let taken = take(&mut *lock(&records.list));
            if !taken.is_empty() {
                return Ok(Output::Records(taken));
            }
            records.come.notified().await;
        }
    })
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
        let records = RECORDS.get_or_init(Records::default);
        let mut list = lock(&records.list);
        if list.len() < MOST {
            let level = event.metadata().level().as_str();
            list.push((level, text.message + &text.fields));
            records.come.notify_one();
        }
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
