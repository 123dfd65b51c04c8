//! One key passed on among many waiters, with nothing to do inside.

use std::cell::RefCell;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold::Client;
use tokio::time::{Instant, sleep};

use super::Bench;
use super::figures::{Figures, Sample, number};
use super::pairs::repeat;
use crate::failure::Failure;

/// How often it is looked who waits.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What the waiters of a round share.
struct Round {
    sample: Sample,
    released: Option<Instant>,
    grants: Vec<u64>,
    over: bool,
}

/// One round, with how often the least and the most lucky waiter had its turn.
pub(super) async fn round(bench: &Bench, waiters: usize) -> Result<(Figures, [u64; 2]), Failure> {
    let client = &bench.client;
    let trip = round_trip(bench).await?;
    let key = format!("bench/hand-off-{waiters}");
    let round = RefCell::new(Round {
        sample: Sample::new(),
        released: None,
        grants: vec![0; waiters],
        over: false,
    });
    // Everybody is in line before it begins.
    let first = client.mutex(&key)?.lock().await?;
    let turns = (0..waiters).map(|waiter| take_turns(client, &key, &round, waiter));
    let run = async {
        until_waiting(client, &key, waiters).await?;
        let before = bench.cost(None).await?;
        let started = Instant::now();
        let _ = first.release().await?;
        sleep(bench.time).await;
        round.borrow_mut().over = true;
        let taken = started.elapsed();
        Ok::<_, Failure>((taken, bench.spent_since(before, None).await?))
    };
    // Whoever waits at its end leaves the queue.
    let (taken, spent) = while_none_fails(run, turns).await?;
    while !client.inspect(&key).await?.waiters.is_empty() {
        sleep(LOOK_AGAIN).await;
    }
    let Round { sample, grants, .. } = &*round.borrow();
    let count = sample.count().max(1.0);
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / count;
    let of_trip = trip.map(|trip| sample.quantile(0.5) / trip);
    let figures = Figures::of(sample, taken)
        .with("p50_of_round_trip", of_trip)
        .with("commands", spent.map(|spent| number(spent.calls) / count))
        .with("command_us", spent.map(|spent| micros(spent.time)));
    let extremes = [grants.iter().min(), grants.iter().max()];
    Ok((figures, extremes.map(|count| count.copied().unwrap_or(0))))
}

/// The medians of some rounds, and the grants of the least fair one: rounds differ in length.
pub(super) fn medians(waiters: usize, rounds: Vec<(Figures, [u64; 2])>) -> Figures {
    let (figures, grants): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    let grants = grants.into_iter();
    let unfairest = grants.max_by_key(|[fewest, most]| most - fewest);
    let [fewest, most] = unfairest.unwrap_or_default();
    Figures::of_measure("hand_off")
        .with("waiters", waiters)
        .with_medians(&figures)
        .with("fewest_grants", fewest)
        .with("most_grants", most)
}

/// Until so many wait, or more: others may measure here, too.
async fn until_waiting(client: &Client, key: &str, waiters: usize) -> Result<(), Failure> {
    while client.inspect(key).await?.waiters.len() < waiters {
        sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn take_turns(
    client: &Client,
    key: &str,
    round: &RefCell<Round>,
    waiter: usize,
) -> Result<(), Failure> {
    let lock = client.mutex(key)?;
    loop {
        let lease = lock.lock().await?;
        let now = Instant::now();
        {
            let mut round = round.borrow_mut();
            if round.over {
                return Ok(());
            }
            if let Some(released) = round.released {
                round.sample.add(now - released);
                round.grants[waiter] += 1;
            }
            round.released = Some(Instant::now());
        }
        let _ = lease.release().await?;
    }
}

/// Runs this while these take their turns: until one of them fails.
async fn while_none_fails<T>(
    run: impl Future<Output = Result<T, Failure>>,
    turns: impl Iterator<Item = impl Future<Output = Result<(), Failure>>>,
) -> Result<T, Failure> {
    let turns = turns.collect::<FuturesUnordered<_>>();
    tokio::select! {
        done = run => done,
        Err(failure) = turns.try_collect::<Vec<()>>() => Err(failure),
    }
}

/// The median of bare round trips, one after the other.
async fn round_trip(bench: &Bench) -> Result<Option<f64>, Failure> {
    let Some(bare) = &bench.bare else {
        return Ok(None);
    };
    let until = Instant::now() + bench.time / 2;
    let sample = repeat(until, async || Ok(bare.work(0, 0).await?)).await?;
    Ok(Some(sample.quantile(0.5)))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn a_round_begins_also_where_others_wait_for_its_key() {
        let client = leasehold::connect("memory:").await.unwrap();
        let first = client.mutex("k").unwrap().lock().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..3 {
            let lock = client.mutex("k").unwrap();
            waiting.spawn(async move { lock.lock().await.map(drop) });
        }
        until_waiting(&client, "k", 3).await.unwrap();
        let limit = Duration::from_secs(60);
        let begun = tokio::time::timeout(limit, until_waiting(&client, "k", 2)).await;
        begun.expect("three are enough").unwrap();
        drop(first);
    }

    #[tokio::test]
    async fn a_waiter_that_fails_ends_the_round() {
        let turns = [Ok(()), Err(Failure::system("full"))].map(ready);
        let ended = while_none_fails(pending::<Result<(), _>>(), turns.into_iter()).await;
        assert_eq!(ended.unwrap_err().message, "full");
    }
}
