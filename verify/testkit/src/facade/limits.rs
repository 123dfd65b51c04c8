//! Calls with a time limit, on a store that does not answer: each ends with its limit and one
//! allowance, says that the store is out of reach, and names the limit.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use leasehold::core::{GRACE, written};
use leasehold::{Client, Error, ErrorKind, LockOptions, Retry, Settings};
use tokio::time::Instant;

use super::gated::{Gate, Gated};
use super::{Fixture, Outcome, client, client_on, idle, knows_all_kinds, queued, soon};

/// The name of a call, and how it ends if it is not granted.
type Call = (&'static str, BoxFuture<'static, Option<Error>>);

macro_rules! call {
    ($name:literal, $work:expr) => {{
        let ended: BoxFuture<'static, Option<Error>> = Box::pin(async move { $work.await.err() });
        ($name, ended)
    }};
}

/// Asks, by each call that has a limit; `all`: the store knows all kinds of locks. A call that
/// is added to the library belongs here.
fn calls(client: &Client, all: bool, limit: Duration) -> Vec<Call> {
    let lock = client.mutex("k").expect("a lock");
    let (with_options, retrying) = (lock.clone(), lock.clone().retrying(Retry::default()));
    let options = LockOptions::new().within(limit);
    let blocking = leasehold::blocking::Client::from(client.clone());
    let blocking = async move {
        let lock = blocking.mutex("k").expect("a lock");
        let late = tokio::task::spawn_blocking(move || lock.lock_within(limit).map(drop));
        late.await.expect("no panic")
    };
    let election = client.election("e").expect("an election");
    let mut calls = vec![
        call!("lock_within", lock.lock_within(limit)),
        call!("acquire", with_options.lock_opts(options)),
        call!("retrying", retrying.lock_within(limit)),
        call!("blocking", blocking),
        call!("campaign_within", election.campaign_within("", limit)),
    ];
    if all {
        let several = client.multi(["k", "l"]).expect("a lock");
        let permits = client.semaphore("s", 1).expect("a semaphore");
        let reads = client.rwlock("r").expect("a lock");
        let writes = reads.clone();
        calls.extend([
            call!("multi", several.lock_within(limit)),
            call!("acquire_within", permits.acquire_within(limit)),
            call!("read_within", reads.read_within(limit)),
            call!("write_within", writes.write_within(limit)),
        ]);
    }
    calls
}

/// The same for calls that do not wait: they have the time of an operation.
fn tries(client: &Client, all: bool) -> Vec<Call> {
    let lock = client.mutex("k").expect("a lock");
    let mut calls = vec![call!("try_lock", lock.try_lock())];
    if all {
        let several = client.multi(["k", "l"]).expect("a lock");
        let permits = client.semaphore("s", 1).expect("a semaphore");
        calls.push(call!("multi", several.try_lock()));
        calls.push(call!("try_acquire", permits.try_acquire()));
    }
    calls
}

/// Where calls are in their way when the store falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    BeforeThey,
    /// What this client held before is still leaving.
    WhileOthersLeave,
    InLine,
}

/// What all that is held or waited for is held by.
async fn held_by(client: &Client, all: bool) -> Vec<Box<dyn Send>> {
    let mut held: Vec<Box<dyn Send>> = Vec::new();
    let lock = client.mutex("k").expect("a lock");
    held.push(Box::new(lock.lock().await.expect("a lease")));
    let election = client.election("e").expect("an election");
    held.push(Box::new(election.campaign("").await.expect("a term")));
    if all {
        let permits = client.semaphore("s", 1).expect("a semaphore");
        held.push(Box::new(permits.acquire().await.expect("a permit")));
        let writes = client.rwlock("r").expect("a lock");
        held.push(Box::new(writes.write().await.expect("a lease")));
    }
    held
}

/// The name of a call, how it has ended, and after how long.
type Ended = (&'static str, Option<Error>, Duration);

/// How each call has ended. `waits`: with this limit.
async fn ended(
    fixture: &dyn Fixture,
    when: When,
    waits: Option<Duration>,
    settings: Settings,
) -> Vec<Ended> {
    let all = knows_all_kinds(fixture).await;
    let other = client(fixture).await;
    let store = Gated::new(fixture.client().await);
    let client = client_on(store.clone(), settings).await;
    let held = match when {
        When::BeforeThey => Vec::new(),
        When::WhileOthersLeave => held_by(&client, all).await,
        When::InLine => held_by(&other, all).await,
    };
    if when != When::InLine {
        store.set(Gate::Silent);
        // Those of this client begin to leave, and are not heard.
        drop(held);
    }
    let calls = match waits {
        Some(limit) => calls(&client, all, limit),
        None => tries(&client, all),
    };
    let timed = calls.into_iter().map(|(name, call)| async move {
        let began = Instant::now();
        let error = soon(name, call).await;
        (name, error, began.elapsed())
    });
    let silence = async {
        if when == When::InLine {
            // Those that poll are not in line.
            queued(&other, "k", if all { 4 } else { 3 }).await;
            store.set(Gate::Silent);
        }
    };
    let (ended, ()) = tokio::join!(join_all(timed), silence);
    store.set(Gate::Open);
    idle(&client, "l").await;
    ended
}

/// What is wrong with one of them, if anything is.
fn fault((name, error, took): &Ended, most: Duration, limit: &str) -> Option<String> {
    let Some(error) = error else {
        return Some(format!("{name}: granted"));
    };
    let told = error.kind() == ErrorKind::Unavailable && error.to_string().contains(limit);
    (!told || *took >= most).then(|| format!("{name} after {took:?}: {error}"))
}

/// A call with a limit keeps it, but for one allowance, whatever it waits for meanwhile. What is
/// not answered is not told as contention, and the message says which limit it was.
pub async fn a_limit_is_kept_on_a_store_that_does_not_answer(fixture: &dyn Fixture) -> Outcome {
    let brief = Duration::from_millis(10);
    let mut faults = Vec::new();
    // On a busy machine any may be late. All three times, it is none.
    for attempt in 1..=3 {
        let long = GRACE * 2 * attempt;
        let operation = GRACE / 2;
        let usual = Settings::default();
        let quick = usual.clone().with_operation_timeout(operation);
        let cases = [
            (When::BeforeThey, Some(brief), usual.clone(), brief),
            (When::WhileOthersLeave, Some(brief), usual.clone(), brief),
            (When::InLine, Some(long), usual, long),
            (When::BeforeThey, None, quick.clone(), operation),
            (When::WhileOthersLeave, None, quick, operation),
        ];
        let all = cases.map(|(when, waits, settings, limit)| async move {
            let named = match waits {
                Some(_) if limit < GRACE => {
                    format!("the time limit of the call is {}", written(limit))
                }
                Some(_) => format!("{}, the time limit of the call", written(limit)),
                None => format!("{}, the operation time-out", written(limit)),
            };
            let allowance = waits.map_or(Duration::ZERO, |_| GRACE);
            // Less than a second allowance.
            let most = limit + allowance + GRACE * 3 / 4;
            let ended = ended(fixture, when, waits, settings).await;
            let faults = ended.iter().filter_map(|one| fault(one, most, &named));
            faults.map(|fault| format!("{when:?}: {fault}")).collect()
        });
        let mut found: Vec<Vec<String>> = Vec::new();
        for case in all {
            found.push(case.await);
        }
        faults = found.concat();
        if faults.is_empty() {
            return Ok(());
        }
    }
    Err(format!("{faults:#?}").into())
}

/// While the store answers, it is others who have the key.
pub async fn a_limit_that_is_over_while_others_hold_is_a_time_out(
    fixture: &dyn Fixture,
) -> Outcome {
    let (all, waits) = (knows_all_kinds(fixture).await, client(fixture).await);
    let other = client(fixture).await;
    let held = held_by(&other, all).await;
    for limit in [Duration::ZERO, Duration::from_millis(200)] {
        let calls = calls(&waits, all, limit).into_iter();
        let ended = calls.map(|(name, call)| async move { (name, soon(name, call).await) });
        for (name, error) in join_all(ended).await {
            let error = error.unwrap_or_else(|| panic!("{name}: granted"));
            assert_eq!(error.kind(), ErrorKind::Timeout, "{name}: {error}");
        }
    }
    drop(held);
    Ok(())
}
