//! What was found, as tables. The figures themselves are the lines of `--json`.

use leasehold::store::BareWork;

use super::figures::Figures;
use crate::output::{Column, table};

const PAIRS: &[Column<Figures>] = &[
    ("UNCONTENDED", |row| row.text("title").to_owned()),
    ("TASKS", |row| row.shown("tasks", 0)),
    ("PAIRS/S", |row| row.shown("per_second", 0)),
    ("OF PLAIN", |row| row.shown("of_plain", 2)),
    ("OF FENCED", |row| row.shown("of_fenced", 2)),
    ("OF TWO WRITES", |row| row.shown("of_writes", 2)),
    ("OF ADVISORY", |row| row.shown("of_advisory", 2)),
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

const KEPT: &[Column<Figures>] = &[
    ("KEEPING", |row| row.shown("leases", 0) + " leases"),
    ("RENEWALS/S", |row| row.shown("renewals_per_second", 0)),
    ("LOST", |row| row.shown("lost", 0)),
    ("CLIENT CPU", |row| row.percent("client_cpu")),
    ("SERVER CPU", |row| row.percent("server_cpu")),
];

/// The tables, without what the server does not tell.
pub(super) fn text(findings: &[Figures], works: &[BareWork], store: &str, rounds: u8) -> String {
    let titled = |row: &Figures| {
        let work = works.iter().find(|work| work.name == row.text("work"));
        row.clone()
            .with("title", work.map_or("leasehold", |work| work.title))
    };
    let rows: Vec<_> = findings.iter().map(titled).collect();
    let of = |measure: &str, columns: &[Column<Figures>]| {
        let rows = rows.iter().filter(|row| row.text("measure") == measure);
        let is_told = |(_, shown): &&Column<Figures>| rows.clone().any(|row| shown(row) != "-");
        let columns: Vec<_> = columns.iter().filter(is_told).copied().collect();
        table(&columns, rows)
    };
    let mut text = format!("{store}, medians of {rounds} rounds; ratios within each round\n");
    for (measure, columns) in [("pairs", PAIRS), ("hand_off", HAND_OFFS), ("kept", KEPT)] {
        if rows.iter().any(|row| row.text("measure") == measure) {
            text += &format!("\n{}", of(measure, columns));
        }
    }
    text
}
