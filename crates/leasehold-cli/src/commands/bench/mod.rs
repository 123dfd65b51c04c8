//! `leasehold bench`: what a lock costs here, beside the raw server.
//!
//! Times on a shared machine mean little; ratios to what the same server does
//! in the same run, through the same connection, mean something.

mod handoff;
mod keeping;
mod pairs;
mod report;
mod sample;

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::Client;
use leasehold::store::redis::Baseline;

use crate::cli::BenchArgs;
use crate::connect::{Measured, connect_to_measure};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

use handoff::Handoff;
use keeping::Kept;
use pairs::Round;

/// How many tasks take uncontended locks at once.
const TASKS: [usize; 4] = [1, 16, 64, 256];

/// How many waiters pass one key on.
const WAITERS: [usize; 3] = [2, 100, 1000];

/// What is measured with.
struct Bench {
    client: Client,
    store: String,
    /// The raw server, where there is one.
    baseline: Option<Arc<Baseline>>,
    time: Duration,
    rounds: usize,
    leases: Option<usize>,
    bar: ProgressBar,
}

/// Everything that was measured.
struct Findings {
    store: String,
    /// For each number of tasks: its rounds, each with every kind of work.
    pairs: Vec<(usize, Vec<Round>)>,
    /// For each number of waiters: its rounds.
    handoffs: Vec<(usize, Vec<Handoff>)>,
    /// Many leases held, if that was asked for.
    kept: Option<Kept>,
}

/// Measures and prints.
pub(crate) async fn bench(args: &BenchArgs, printer: &Printer) -> Result<u8, Failure> {
    let Measured {
        client,
        store,
        baseline,
    } = connect_to_measure(&args.common.store).await?;
    let steps = TASKS.len() + WAITERS.len();
    let bench = Bench {
        client,
        store,
        baseline,
        time: args.time,
        rounds: args.rounds.into(),
        leases: args.leases,
        bar: bar(printer, steps * usize::from(args.rounds)),
    };
    printer.show_live(Some(bench.bar.clone()));
    let findings = bench.run().await;
    printer.show_live(None);
    let findings = findings?;
    if args.common.output.json {
        for row in report::rows(&findings) {
            printer.json(&row)?;
        }
    } else {
        printer.text(&report::text(&findings))?;
    }
    bench.client.shutdown(Duration::from_secs(2)).await;
    Ok(exit::OK)
}

impl Bench {
    async fn run(&self) -> Result<Findings, Failure> {
        let mut findings = Findings {
            store: self.store.clone(),
            pairs: Vec::new(),
            handoffs: Vec::new(),
            kept: None,
        };
        for tasks in TASKS {
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                self.bar
                    .set_message(format!("uncontended locks, {tasks} tasks"));
                rounds.push(pairs::round(self, tasks).await?);
                self.bar.inc(1);
            }
            findings.pairs.push((tasks, rounds));
        }
        for waiters in WAITERS {
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                self.bar
                    .set_message(format!("hand-off among {waiters} waiters"));
                rounds.push(handoff::round(self, waiters).await?);
                self.bar.inc(1);
            }
            findings.handoffs.push((waiters, rounds));
        }
        if let Some(leases) = self.leases {
            self.bar.set_message(format!("{leases} leases, kept"));
            findings.kept = Some(keeping::keep(self, leases).await?);
        }
        Ok(findings)
    }
}

fn bar(printer: &Printer, steps: usize) -> ProgressBar {
    if !printer.is_live() {
        return ProgressBar::hidden();
    }
    let steps = u64::try_from(steps).ok();
    let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
