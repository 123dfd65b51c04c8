//! The locks of the whole store as metrics, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Shared;
use super::table::{Lock, Table};
use crate::metrics_file::escaped;

/// What has no series of its own.
const OTHER: &str = "other";

/// Name, help, and value for the keys with one prefix.
type OfPrefix = (&'static str, &'static str, fn(&Prefix) -> f64);

const OF_PREFIX: [OfPrefix; 4] = [
    (
        "leasehold_store_locks_held",
        "keys that somebody holds",
        |prefix| prefix.held as f64,
    ),
    ("leasehold_store_waiters", "claims that wait", |prefix| {
        prefix.waiters as f64
    }),
    (
        "leasehold_store_longest_wait_seconds",
        "for how long the first of them has waited",
        |prefix| prefix.longest_wait,
    ),
    (
        "leasehold_store_oldest_hold_seconds",
        "for how long the oldest hold has lasted",
        |prefix| prefix.oldest_hold,
    ),
];
const UP: (&str, &str) = (
    "leasehold_store_up",
    "1 if the store has answered the last time",
);
const READ_AGE: (&str, &str) = ("leasehold_store_read_age_seconds", "how old the data is");
const DROPPED: (&str, &str) = (
    "leasehold_store_prefixes_dropped",
    "prefixes that are counted as \"other\"",
);
const DEADLOCKS: (&str, &str) = (
    "leasehold_store_deadlocks",
    "deadlocks among the claims of the store",
);

/// The keys whose names begin alike.
#[derive(Debug, Default, Clone, Copy)]
struct Prefix {
    held: usize,
    waiters: usize,
    longest_wait: f64,
    oldest_hold: f64,
}

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let of_all = |table: &Table| text(table, shared.max_series);
    let text = shared.reader.make(|reader| reader.with(of_all)).await;
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

fn text(table: &Table, max_series: usize) -> String {
    let mut prefixes: BTreeMap<&str, Prefix> = BTreeMap::new();
    for lock in table.locks() {
        let key = &*lock.view.key;
        let name = key.split_once('/').map_or(key, |(name, _)| name);
        prefixes.entry(name).or_default().add(lock);
    }
    let dropped = prefixes.len().saturating_sub(max_series);
    if dropped > 0 {
        fold_the_smallest(&mut prefixes, dropped);
    }
    let mut text = String::new();
    for (name, help, value) in OF_PREFIX {
        begin(&mut text, (name, help));
        for (prefix, of) in &prefixes {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name}{{prefix=\"{}\"}} {}",
                escaped(prefix),
                value(of)
            );
        }
    }
    let up = table.complete && table.error.is_none();
    let age = table.age().map(|age| age.as_secs_f64());
    let of_all = [
        (UP, Some(f64::from(u8::from(up)))),
        (READ_AGE, age),
        (DROPPED, Some(dropped as f64)),
        (DEADLOCKS, Some(table.deadlocks.len() as f64)),
    ];
    for (metric, value) in of_all {
        if let Some(value) = value {
            begin(&mut text, metric);
            let _ = writeln!(text, "{} {value}", metric.0);
        }
    }
    text
}

fn begin(text: &mut String, (name, help): (&str, &str)) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

/// Counts those with the fewest waiters and holders as one.
fn fold_the_smallest(prefixes: &mut BTreeMap<&str, Prefix>, dropped: usize) {
    let mut sizes: Vec<_> = prefixes
        .iter()
        .map(|(name, of)| (of.waiters, of.held, *name))
        .collect();
    sizes.sort_unstable();
    let mut other = Prefix::default();
    for (_, _, name) in sizes.into_iter().take(dropped) {
        if let Some(of) = prefixes.remove(name) {
            other.join(of);
        }
    }
    prefixes.entry(OTHER).or_default().join(other);
}

impl Prefix {
    fn add(
        &mut self,
        Lock {
            view: lock,
            waiting,
            ..
        }: &Lock,
    ) {
        let longest = |claims: &[crate::view::ClaimView]| {
            let ages = claims.iter().map(|claim| lock.age(claim).as_secs_f64());
            ages.fold(0.0, f64::max)
        };
        self.join(Self {
            held: usize::from(!lock.holders.is_empty()),
            waiters: *waiting,
            longest_wait: longest(&lock.waiters),
            oldest_hold: longest(&lock.holders),
        });
    }

    fn join(&mut self, other: Self) {
        self.held += other.held;
        self.waiters += other.waiters;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.oldest_hold = self.oldest_hold.max(other.oldest_hold);
    }
}
