//! Uncontended acquire-and-release pairs, each task on its own key.

use std::time::Duration;

use leasehold::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Bench;
use super::baseline::Baseline;
use super::figures::{Figures, Sample, number};
use crate::exit;
use crate::failure::Failure;

/// What a pair is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// One bare round trip, no lock.
    RoundTrip,
    /// `SET NX PX`, compare-and-delete.
    Plain,
    /// `SET NX PX` with `INCR` in a script, compare-and-delete.
    Fenced,
    /// `lock()`, `release()`.
    Lease,
}

/// The work by its name, the lease last.
const WORK: [(&str, Work); 4] = [
    ("round_trip", Work::RoundTrip),
    ("plain", Work::Plain),
    ("fenced", Work::Fenced),
    ("lease", Work::Lease),
];

/// One round: every kind of work once, one after the other, so that they share the machine's
/// moods. In the order of [`kinds`].
pub(super) async fn round(bench: &Bench, tasks: usize) -> Result<Vec<Figures>, Failure> {
    let mut done = Vec::new();
    for (_, work) in kinds(bench) {
        done.push(measure(bench, *work, tasks).await?);
    }
    if let [_, plain, fenced, lease] = &mut *done {
        let ratio = |other: &Figures, name| Some(lease.get(name)? / other.get(name)?);
        *lease = lease
            .clone()
            .with("of_plain", ratio(plain, "per_second"))
            .with("of_fenced", ratio(fenced, "per_second"))
            .with("command_time_of_fenced", ratio(fenced, "command_us"))
            .with("server_cpu_of_fenced", ratio(fenced, "server_cpu_us"));
    }
    Ok(done)
}

/// The medians of some rounds, for each kind of work.
pub(super) fn medians(bench: &Bench, tasks: usize, rounds: &[Vec<Figures>]) -> Vec<Figures> {
    let row = |(n, (name, _)): (usize, &(&'static str, Work))| {
        let of_this: Vec<_> = rounds
            .iter()
            .filter_map(|round| round.get(n).cloned())
            .collect();
        Figures::of_measure("pairs")
            .with("work", *name)
            .with("tasks", tasks)
            .with_medians(&of_this)
    };
    kinds(bench).iter().enumerate().map(row).collect()
}

/// The kinds of work that can be done here: without a raw server there is nothing to compare with.
fn kinds(bench: &Bench) -> &'static [(&'static str, Work)] {
    match bench.baseline {
        Some(_) => &WORK,
        None => &WORK[3..],
    }
}

async fn measure(bench: &Bench, work: Work, tasks: usize) -> Result<Figures, Failure> {
    let before = bench.cost().await?;
    let started = Instant::now();
    let until = started + bench.time;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let name = format!("pair-{task}");
        let (client, baseline) = (bench.client.clone(), bench.baseline.clone());
        running.spawn(async move { drive(client, baseline, work, name, until).await });
    }
    let mut sample = Sample::new();
    while let Some(done) = running.join_next().await {
        let done = done.map_err(|error| Failure::new(exit::SYSTEM, error.to_string()))?;
        sample.merge(&done?);
    }
    let taken = started.elapsed();
    let spent = bench.spent_since(before).await?;
    let pairs = sample.count().max(1.0);
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / pairs;
    let inside = spent.map(|spent| match work {
        Work::Plain => micros(spent.script_time + spent.set_time),
        // Within a script a SET is counted already.
        _ => micros(spent.script_time),
    });
    Ok(Figures::of(&sample, taken)
        .with("command_us", inside)
        .with("server_cpu_us", spent.map(|spent| micros(spent.cpu)))
        .with("scripts", spent.map(|spent| number(spent.scripts) / pairs)))
}

async fn drive(
    client: Client,
    baseline: Option<Baseline>,
    work: Work,
    name: String,
    until: Instant,
) -> Result<Sample, Failure> {
    let mut sample = Sample::new();
    let lock = client.mutex(format!("bench/{name}"))?;
    while Instant::now() < until {
        let started = Instant::now();
        match (&baseline, work) {
            (Some(baseline), Work::RoundTrip) => baseline.round_trip().await?,
            (Some(baseline), Work::Plain) => {
                baseline.plain_acquire(&name, "id").await?;
                baseline.release(&name, "id").await?;
            }
            (Some(baseline), Work::Fenced) => {
                baseline.fenced_acquire(&name, "id").await?;
                baseline.release(&name, "id").await?;
            }
            _ => {
                let _ = lock.lock().await?.release().await?;
            }
        }
        sample.add(started.elapsed());
    }
    if let Some(baseline) = baseline {
        baseline.clear(&name).await?;
    }
    Ok(sample)
}
