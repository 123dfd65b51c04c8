//! Uncontended acquire-and-release pairs, each task on its own key.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use leasehold::store::redis::{Baseline, ServerCost};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Bench;
use super::sample::Sample;
use crate::exit;
use crate::failure::Failure;

/// What a pair is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// One bare round trip, no lock.
    RoundTrip,
    /// `SET NX PX`, compare-and-delete.
    Plain,
    /// `SET NX PX` with `INCR` in a script, compare-and-delete.
    Fenced,
    /// `lock()`, `release()`.
    Lease,
}

/// Every kind of work in one round.
pub(super) type Round = Vec<(Work, Pairs)>;

/// What one kind of work came to in one round.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    pub(super) per_second: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Microseconds inside commands, per pair; where the server says.
    pub(super) command_time: Option<f64>,
    /// Microseconds of the server's processor, per pair.
    pub(super) cpu: Option<f64>,
    /// Scripts run, per pair.
    pub(super) scripts: Option<f64>,
}

/// Every kind of work once, one after the other, so that they share the
/// machine's moods.
pub(super) async fn round(bench: &Bench, tasks: usize) -> Result<Round, Failure> {
    let kinds: &[Work] = match bench.baseline {
        Some(_) => &[Work::RoundTrip, Work::Plain, Work::Fenced, Work::Lease],
        None => &[Work::Lease],
    };
    let mut done = Vec::new();
    for work in kinds {
        done.push((*work, measure(bench, *work, tasks).await?));
    }
    Ok(done)
}

async fn measure(bench: &Bench, work: Work, tasks: usize) -> Result<Pairs, Failure> {
    let before = cost(bench.baseline.as_deref()).await?;
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
    let after = cost(bench.baseline.as_deref()).await?;
    Ok(sum_up(work, &sample, taken, before.zip(after)))
}

async fn drive(
    client: Client,
    baseline: Option<Arc<Baseline>>,
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
                lock.lock().await?.release().await?;
            }
        }
        sample.add(started.elapsed());
    }
    if let Some(baseline) = baseline {
        baseline.clear(&name).await?;
    }
    Ok(sample)
}

fn sum_up(
    work: Work,
    sample: &Sample,
    taken: Duration,
    cost: Option<(ServerCost, ServerCost)>,
) -> Pairs {
    #[expect(clippy::cast_precision_loss, reason = "a count in a report")]
    let pairs = sample.count().max(1) as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / pairs;
    let spent = cost.map(|(before, after)| {
        let scripts = micros(after.script_time - before.script_time);
        let sets = micros(after.set_time - before.set_time);
        // Within a script a SET is counted already.
        let inside = if work == Work::Plain {
            scripts + sets
        } else {
            scripts
        };
        #[expect(clippy::cast_precision_loss, reason = "a count in a report")]
        let count = (after.scripts - before.scripts) as f64 / pairs;
        (inside, micros(after.cpu.saturating_sub(before.cpu)), count)
    });
    Pairs {
        per_second: pairs / taken.as_secs_f64(),
        p50: sample.quantile(0.5),
        p99: sample.quantile(0.99),
        command_time: spent.map(|(inside, _, _)| inside),
        cpu: spent.map(|(_, cpu, _)| cpu),
        scripts: spent.map(|(_, _, scripts)| scripts),
    }
}

pub(super) async fn cost(baseline: Option<&Baseline>) -> Result<Option<ServerCost>, Failure> {
    match baseline {
        Some(baseline) => Ok(Some(baseline.server_cost().await?)),
        None => Ok(None),
    }
}
