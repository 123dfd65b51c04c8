//! Uncontended acquire-and-release pairs, each task on its own key, beside what the bare server does.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Bench;
use super::figures::{Figures, Sample, number};
use crate::failure::Failure;

/// One round: every work of the bare server once and `lock()` with `release()`, one after the
/// other, so that they share the machine's moods.
pub(super) async fn round(bench: &Bench, tasks: usize) -> Result<Vec<Figures>, Failure> {
    let mut done = Vec::new();
    for place in 0..bench.works().len() {
        done.push(measure(bench, Some(place), tasks).await?);
    }
    let mut lease = measure(bench, None, tasks).await?;
    for (work, bare) in bench.works().iter().zip(&done) {
        let ratio = |name| Some(lease.get(name)? / bare.get(name)?);
        let (command_time, server_cpu) = (ratio("command_us"), ratio("server_cpu_us"));
        if let Some((name, pairs)) = work.ratio {
            let of_it = ratio("per_second").map(|ratio| ratio / pairs);
            lease = lease.with(name, of_it);
        }
        if work.name == "fenced" {
            lease = lease
                .with("command_time_of_fenced", command_time)
                .with("server_cpu_of_fenced", server_cpu);
        }
    }
    done.push(lease);
    Ok(done)
}

/// The medians of some rounds, for each kind of work.
pub(super) fn medians(bench: &Bench, tasks: usize, rounds: &[Vec<Figures>]) -> Vec<Figures> {
    let works = bench.works().iter().map(|work| work.name);
    let row = |(place, name)| {
        let rounds = rounds.iter();
        let of_this = rounds.filter_map(|round| round.get(place).cloned());
        Figures::of_measure("pairs")
            .with("work", name)
            .with("tasks", tasks)
            .with_medians(&of_this.collect::<Vec<_>>())
    };
    works.chain(["lease"]).enumerate().map(row).collect()
}

/// Measures one of the works of the bare server, or locks.
async fn measure(bench: &Bench, work: Option<usize>, tasks: usize) -> Result<Figures, Failure> {
    let before = bench.cost(work).await?;
    let started = Instant::now();
    let until = started + bench.time;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        match (&bench.bare, work) {
            (Some(bare), Some(work)) => {
                let bare = bare.clone();
                running.spawn(repeat(until, async move || {
                    Ok(bare.work(work, task).await?)
                }));
            }
            _ => {
                let lock = bench.client.mutex(format!("bench/pair-{task}"))?;
                running.spawn(repeat(until, async move || {
                    let _ = lock.lock().await?.release().await?;
                    Ok(())
                }));
            }
        }
    }
    let mut sample = Sample::new();
    while let Some(done) = running.join_next().await {
        let done = done.map_err(|error| Failure::system(error.to_string()))?;
        sample.merge(&done?);
    }
    let taken = started.elapsed();
    let spent = bench.spent_since(before, work).await?;
    let pairs = sample.count().max(1.0);
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / pairs;
    Ok(Figures::of(&sample, taken)
        .with("command_us", spent.map(|spent| micros(spent.time)))
        .with("server_cpu_us", spent.map(|spent| micros(spent.cpu)))
        .with("scripts", spent.map(|spent| number(spent.calls) / pairs)))
}

/// Times the same work again and again, until then.
pub(super) async fn repeat(
    until: Instant,
    mut work: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<Sample, Failure> {
    let mut sample = Sample::new();
    while Instant::now() < until {
        let started = Instant::now();
        work().await?;
        sample.add(started.elapsed());
    }
    Ok(sample)
}
