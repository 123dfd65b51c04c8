//! What was found, as tables and as rows of JSON.

use serde::Serialize;

use super::Findings;
use super::handoff::Handoff;
use super::pairs::{Pairs, Round, Work};
use super::sample::median;
use crate::output::table;

/// One line of `--json`.
#[derive(Debug, Serialize)]
#[serde(tag = "measure", rename_all = "snake_case")]
pub(super) enum Row {
    /// Uncontended pairs.
    Pairs {
        work: Work,
        tasks: usize,
        per_second: f64,
        p50_us: f64,
        p99_us: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        command_us: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        server_cpu_us: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        scripts: Option<f64>,
        /// Of the pairs per second of the plain and the fenced pair.
        #[serde(skip_serializing_if = "Option::is_none")]
        of_plain: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        of_fenced: Option<f64>,
        /// Time inside commands, against the fenced pair's.
        #[serde(skip_serializing_if = "Option::is_none")]
        command_time_of_fenced: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        server_cpu_of_fenced: Option<f64>,
    },
    /// Hand-off of one key.
    HandOff {
        waiters: usize,
        per_second: f64,
        p50_us: f64,
        p99_us: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        p50_of_round_trip: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        commands: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        command_us: Option<f64>,
        fewest_grants: u64,
        most_grants: u64,
    },
    /// Leases held by one client.
    Kept {
        leases: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        renewals_per_second: Option<f64>,
        lost: usize,
        /// Of one core.
        client_cpu: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        server_cpu: Option<f64>,
    },
}

/// Medians of the rounds; ratios are taken within each round first.
pub(super) fn rows(findings: &Findings) -> Vec<Row> {
    let mut rows = Vec::new();
    for (tasks, rounds) in &findings.pairs {
        for work in [Work::RoundTrip, Work::Plain, Work::Fenced, Work::Lease] {
            rows.extend(pairs(*tasks, rounds, work));
        }
    }
    rows.extend(
        findings
            .handoffs
            .iter()
            .map(|(waiters, rounds)| handoff(*waiters, rounds)),
    );
    rows.extend(findings.kept.iter().map(|kept| Row::Kept {
        leases: kept.leases,
        renewals_per_second: kept.renewals_per_second,
        lost: kept.lost,
        client_cpu: kept.client_cpu,
        server_cpu: kept.server_cpu,
    }));
    rows
}

fn pairs(tasks: usize, rounds: &[Round], work: Work) -> Option<Row> {
    let of = |round: &Round, work| {
        round
            .iter()
            .find(|(kind, _)| *kind == work)
            .map(|(_, pairs)| pairs.clone())
    };
    let mine: Vec<_> = rounds.iter().filter_map(|round| of(round, work)).collect();
    if mine.is_empty() {
        return None;
    }
    let middle =
        |value: &dyn Fn(&Pairs) -> Option<f64>| finite(median(mine.iter().filter_map(value)));
    let ratio = |other, value: &dyn Fn(&Pairs) -> Option<f64>| {
        let ratios = rounds
            .iter()
            .filter_map(|round| Some(value(&of(round, work)?)? / value(&of(round, other)?)?));
        finite(median(ratios)).filter(|_| work == Work::Lease)
    };
    Some(Row::Pairs {
        work,
        tasks,
        per_second: middle(&|p| Some(p.per_second))?,
        p50_us: middle(&|p| Some(p.p50))?,
        p99_us: middle(&|p| Some(p.p99))?,
        command_us: middle(&|p| p.command_time),
        server_cpu_us: middle(&|p| p.cpu),
        scripts: middle(&|p| p.scripts),
        of_plain: ratio(Work::Plain, &|p| Some(p.per_second)),
        of_fenced: ratio(Work::Fenced, &|p| Some(p.per_second)),
        command_time_of_fenced: ratio(Work::Fenced, &|p| p.command_time),
        server_cpu_of_fenced: ratio(Work::Fenced, &|p| p.cpu),
    })
}

fn handoff(waiters: usize, rounds: &[Handoff]) -> Row {
    let middle = |value: &dyn Fn(&Handoff) -> Option<f64>| median(rounds.iter().filter_map(value));
    // Of one round: rounds differ in length.
    let unfairest = rounds.iter().max_by_key(|h| h.most - h.fewest);
    Row::HandOff {
        waiters,
        per_second: middle(&|h| Some(h.per_second)),
        p50_us: middle(&|h| Some(h.p50)),
        p99_us: middle(&|h| Some(h.p99)),
        p50_of_round_trip: finite(middle(&|h| Some(h.p50 / h.round_trip?))),
        commands: finite(middle(&|h| h.commands)),
        command_us: finite(middle(&|h| h.command_time)),
        fewest_grants: unfairest.map_or(0, |h| h.fewest),
        most_grants: unfairest.map_or(0, |h| h.most),
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The tables.
pub(super) fn text(findings: &Findings) -> String {
    let mut pairs = table(&[
        "UNCONTENDED",
        "TASKS",
        "PAIRS/S",
        "OF PLAIN",
        "OF FENCED",
        "P50 µs",
        "P99 µs",
        "SCRIPTS",
        "SERVER µs",
        "OF FENCED",
        "CPU OF FENCED",
    ]);
    let mut passing = table(&[
        "HAND-OFF",
        "PER SECOND",
        "P50 µs",
        "P99 µs",
        "P50 / ROUND TRIP",
        "COMMANDS",
        "SERVER µs",
        "GRANTS PER WAITER",
    ]);
    let mut keeping = table(&["KEEPING", "RENEWALS/S", "LOST", "CLIENT CPU", "SERVER CPU"]);
    for row in rows(findings) {
        match row {
            Row::Kept {
                leases,
                renewals_per_second,
                lost,
                client_cpu,
                server_cpu,
            } => {
                let percent = |share: f64| format!("{:.1} %", share * 100.0);
                keeping.add_row(vec![
                    format!("{leases} leases"),
                    renewals_per_second.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}")),
                    lost.to_string(),
                    percent(client_cpu),
                    server_cpu.map_or_else(|| "-".to_owned(), percent),
                ]);
            }
            Row::Pairs {
                work,
                tasks,
                per_second,
                p50_us,
                p99_us,
                command_us,
                scripts,
                of_plain,
                of_fenced,
                command_time_of_fenced,
                server_cpu_of_fenced,
                ..
            } => {
                pairs.add_row(vec![
                    name(work).to_owned(),
                    tasks.to_string(),
                    format!("{per_second:.0}"),
                    two(of_plain),
                    two(of_fenced),
                    format!("{p50_us:.0}"),
                    format!("{p99_us:.0}"),
                    two(scripts),
                    two(command_us),
                    two(command_time_of_fenced),
                    two(server_cpu_of_fenced),
                ]);
            }
            Row::HandOff {
                waiters,
                per_second,
                p50_us,
                p99_us,
                p50_of_round_trip,
                commands,
                command_us,
                fewest_grants,
                most_grants,
            } => {
                passing.add_row(vec![
                    format!("{waiters} waiters"),
                    format!("{per_second:.0}"),
                    format!("{p50_us:.0}"),
                    format!("{p99_us:.0}"),
                    two(p50_of_round_trip),
                    two(commands),
                    two(command_us),
                    format!("{fewest_grants} to {most_grants}"),
                ]);
            }
        }
    }
    let mut text = format!(
        "{}, medians of {} rounds; ratios within each round\n\n{pairs}\n\n{passing}\n",
        findings.store,
        findings.pairs.first().map_or(0, |(_, rounds)| rounds.len()),
    );
    if findings.kept.is_some() {
        text.push_str(&format!("\n{keeping}\n"));
    }
    text
}

fn name(work: Work) -> &'static str {
    match work {
        Work::RoundTrip => "one round trip",
        Work::Plain => "SET NX, delete",
        Work::Fenced => "fenced minimum",
        Work::Lease => "leasehold",
    }
}

fn two(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
