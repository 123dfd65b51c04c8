//! One key passed on among many waiters, with nothing to do inside.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use leasehold::Client;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::Bench;
use super::pairs::cost;
use super::sample::Sample;
use crate::failure::Failure;

/// What one round came to.
#[derive(Debug, Clone)]
pub(super) struct Handoff {
    pub(super) per_second: f64,
    /// From the release being sent to the next holder running, in microseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// One bare round trip in this round, in microseconds; where there is a server.
    pub(super) round_trip: Option<f64>,
    /// Commands of the client per hand-off.
    pub(super) commands: Option<f64>,
    /// Microseconds inside commands per hand-off.
    pub(super) command_time: Option<f64>,
    pub(super) fewest: u64,
    pub(super) most: u64,
}

/// What the waiters of a round share.
struct Round {
    sample: RefCell<Sample>,
    released: Cell<Option<Instant>>,
    grants: RefCell<Vec<u64>>,
    over: Cell<bool>,
}

pub(super) async fn round(bench: &Bench, waiters: usize) -> Result<Handoff, Failure> {
    let trips = round_trips(bench).await?;
    let key = format!("bench/hand-off-{waiters}");
    let round = Rc::new(Round {
        sample: RefCell::new(Sample::new()),
        released: Cell::new(None),
        grants: RefCell::new(vec![0; waiters]),
        over: Cell::new(false),
    });
    // Everybody is in line before it begins.
    let first = bench.client.mutex(&key)?.lock().await?;
    let local = LocalSet::new();
    for waiter in 0..waiters {
        let (client, key, round) = (bench.client.clone(), key.clone(), round.clone());
        local.spawn_local(async move { take_turns(&client, &key, &round, waiter).await });
    }
    let run = async {
        while bench.client.inspect(&key).await?.waiters.len() < waiters {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let before = cost(bench.baseline.as_deref()).await?;
        let started = Instant::now();
        first.release().await?;
        tokio::time::sleep(bench.time).await;
        round.over.set(true);
        let taken = started.elapsed();
        Ok::<_, Failure>((taken, before.zip(cost(bench.baseline.as_deref()).await?)))
    };
    let (taken, spent) = local.run_until(run).await?;
    let sample = round.sample.borrow().clone();
    let grants = round.grants.borrow().clone();
    // Whoever still waits leaves the queue.
    drop(local);
    while !bench.client.inspect(&key).await?.waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts in a report")]
    let per_grant = |count: u64| count as f64 / sample.count().max(1) as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 * per_grant(1);
    #[expect(clippy::cast_precision_loss, reason = "a count in a report")]
    let per_second = sample.count() as f64 / taken.as_secs_f64();
    Ok(Handoff {
        per_second,
        p50: sample.quantile(0.5),
        p99: sample.quantile(0.99),
        round_trip: trips,
        commands: spent.map(|(before, after)| per_grant(after.scripts - before.scripts)),
        command_time: spent.map(|(before, after)| micros(after.script_time - before.script_time)),
        fewest: grants.iter().copied().min().unwrap_or(0),
        most: grants.iter().copied().max().unwrap_or(0),
    })
}

async fn take_turns(
    client: &Client,
    key: &str,
    round: &Round,
    waiter: usize,
) -> Result<(), Failure> {
    let lock = client.mutex(key)?;
    while !round.over.get() {
        let lease = lock.lock().await?;
        let now = Instant::now();
        if round.over.get() {
            return Ok(());
        }
        if let Some(released) = round.released.get() {
            round.sample.borrow_mut().add(now - released);
            if let Some(grants) = round.grants.borrow_mut().get_mut(waiter) {
                *grants += 1;
            }
        }
        round.released.set(Some(Instant::now()));
        lease.release().await?;
    }
    Ok(())
}

/// The median of bare round trips, one after the other.
async fn round_trips(bench: &Bench) -> Result<Option<f64>, Failure> {
    let Some(baseline) = &bench.baseline else {
        return Ok(None);
    };
    let mut sample = Sample::new();
    let until = Instant::now() + bench.time / 2;
    while Instant::now() < until {
        let started = Instant::now();
        baseline.round_trip().await?;
        sample.add(started.elapsed());
    }
    Ok(Some(sample.quantile(0.5)))
}
