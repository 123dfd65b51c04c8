//! What was found, as tables. The figures themselves are the lines of `--json`.

use super::figures::Figures;
use crate::output::{Column, table};

const PAIRS: &[Column<Figures>] = &[
    ("UNCONTENDED", |row| work(row).to_owned()),
    ("TASKS", |row| row.shown("tasks", 0)),
    ("PAIRS/S", |row| row.shown("per_second", 0)),
    ("OF PLAIN", |row| row.shown("of_plain", 2)),
    ("OF FENCED", |row| row.shown("of_fenced", 2)),
    ("P50 µs", |row| row.shown("p50_us", 0)),
    ("P99 µs", |row| row.shown("p99_us", 0)),
    ("SCRIPTS", |row| row.shown("scripts", 2)),
    ("SERVER µs", |row| row.shown("command_us", 2)),
    ("OF FENCED", |row| row.shown("command_time_of_fenced", 2)),
    ("CPU OF FENCED", |row| row.shown("server_cpu_of_fenced", 2)),
];

const HAND_OFFS: &[Column<Figures>] = &[
    ("HAND-OFF", |row| row.shown("waiters", 0) + " waiters"),
    ("PER SECOND", |row| row.shown("per_second", 0)),
    ("P50 µs", |row| row.shown("p50_us", 0)),
    ("P99 µs", |row| row.shown("p99_us", 0)),
    ("P50 / ROUND TRIP", |row| row.shown("p50_of_round_trip", 2)),
    ("COMMANDS", |row| row.shown("commands", 2)),
    ("SERVER µs", |row| row.shown("command_us", 2)),
    ("GRANTS PER WAITER", |row| {
        row.shown("fewest_grants", 0) + " to " + &row.shown("most_grants", 0)
    }),
];

const KEEPING: &[Column<Figures>] = &[
    ("KEEPING", |row| row.shown("leases", 0) + " leases"),
    ("RENEWALS/S", |row| row.shown("renewals_per_second", 0)),
    ("LOST", |row| row.shown("lost", 0)),
    ("CLIENT CPU", |row| row.percent("client_cpu")),
    ("SERVER CPU", |row| row.percent("server_cpu")),
];

/// The tables.
pub(super) fn text(findings: &[Figures], store: &str, rounds: u8) -> String {
    let of = |measure: &'static str| {
        let rows = findings.iter();
        rows.filter(move |row| row.text("measure") == measure)
    };
    let (pairs, hand_offs) = (table(PAIRS, of("pairs")), table(HAND_OFFS, of("hand_off")));
    let mut text = format!(
        "{store}, medians of {rounds} rounds; ratios within each round\n\n{pairs}\n{hand_offs}"
    );
    if of("kept").next().is_some() {
        text += &format!("\n{}", table(KEEPING, of("kept")));
    }
    text
}

fn work(row: &Figures) -> &'static str {
    match row.text("work") {
        "round_trip" => "one round trip",
        "plain" => "SET NX, delete",
        "fenced" => "fenced minimum",
        _ => "leasehold",
    }
}
