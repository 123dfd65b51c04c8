//! The locks of the whole store as metrics, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use tokio::time::Instant;

use super::Shared;
use crate::lock_table::{Lock, LockTable};
use crate::prometheus::{Metric, add, series};
use crate::view::ClaimView;

/// What has no series of its own.
const OTHER: &str = "other";

/// A metric with a series for the keys with one prefix, and its value.
type OfPrefix = (Metric, fn(&Prefix) -> f64);

const OF_PREFIX: [OfPrefix; 4] = [
    (
        gauge("leasehold_store_locks_held", "keys that somebody holds"),
        |prefix| prefix.held as f64,
    ),
    (
        gauge("leasehold_store_waiters", "claims that wait"),
        |prefix| prefix.waiters as f64,
    ),
    (
        gauge(
            "leasehold_store_longest_wait_seconds",
            "for how long the first of them has waited",
        ),
        |prefix| prefix.longest_wait,
    ),
    (
        gauge(
            "leasehold_store_oldest_hold_seconds",
            "for how long the oldest hold has lasted",
        ),
        |prefix| prefix.oldest_hold,
    ),
];
const UP: Metric = gauge(
    "leasehold_store_up",
    "1 if the store has answered the last time",
);
const READ_AGE: Metric = gauge("leasehold_store_read_age_seconds", "how old the data is");
const DROPPED: Metric = gauge(
    "leasehold_store_prefixes_dropped",
    "prefixes that are counted as \"other\"",
);
const DEADLOCKS: Metric = gauge(
    "leasehold_store_deadlocks",
    "deadlocks among the claims of the store",
);

const fn gauge(name: &'static str, meaning: &'static str) -> Metric {
    (name, "gauge", meaning)
}

/// The keys whose names begin alike.
#[derive(Debug, Default, Clone, Copy)]
struct Prefix {
    held: usize,
    waiters: usize,
    longest_wait: f64,
    oldest_hold: f64,
}

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let of_all = |table: &LockTable| text(table, shared.options.max_series);
    let text = shared.reader.make(|reader| reader.with(of_all)).await;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], text)
}

fn text(table: &LockTable, max_series: usize) -> String {
    let mut prefixes: BTreeMap<&str, Prefix> = BTreeMap::new();
    let longest = |claims: &[ClaimView]| {
        let ages = claims.iter().filter_map(|claim| claim.age);
        ages.max().unwrap_or_default().as_secs_f64()
    };
    for Lock { view, waiting, .. } in table.locks() {
        let name = view.key.split('/').next().unwrap_or(&view.key);
        prefixes.entry(name).or_default().join(Prefix {
            held: usize::from(!view.holders.is_empty()),
            waiters: *waiting,
            longest_wait: longest(&view.waiters),
            oldest_hold: longest(&view.holders),
        });
    }
    let dropped = prefixes.len().saturating_sub(max_series);
    if dropped > 0 {
        // Those with the fewest waiters and holders are counted as one.
        let sizes = prefixes.iter();
        let sizes = sizes.map(|(name, of)| (of.waiters, of.held, *name));
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort_unstable();
        let mut other = Prefix::default();
        for (_, _, name) in sizes.into_iter().take(dropped) {
            other.join(prefixes.remove(name).unwrap_or_default());
        }
        prefixes.entry(OTHER).or_default().join(other);
    }
    let mut text = String::new();
    for (metric, value) in OF_PREFIX {
        let values = prefixes.iter();
        let values = values.map(|(prefix, of)| (series(metric.0, "prefix", prefix), value(of)));
        add(&mut text, metric, values);
    }
    let up = table.complete && table.failure.is_none();
    let age = table.data_age(Instant::now());
    for (metric, value) in [
        (UP, Some(f64::from(u8::from(up)))),
        (READ_AGE, age.map(|age| age.as_secs_f64())),
        (DROPPED, Some(dropped as f64)),
        (DEADLOCKS, Some(table.deadlocks.len() as f64)),
    ] {
        if let Some(value) = value {
            add(&mut text, metric, [(metric.0.to_owned(), value)]);
        }
    }
    text
}

impl Prefix {
    fn join(&mut self, other: Self) {
        self.held += other.held;
        self.waiters += other.waiters;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.oldest_hold = self.oldest_hold.max(other.oldest_hold);
    }
}
