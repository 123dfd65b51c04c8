//! What `docs/testing.md` shows, as it stands there; and what it says of time.
#![cfg(feature = "testing")]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::fence::Gate;
use leasehold::observe::{Fact, ObservedClaim, Observer};
use leasehold::testing::TestStore;
use leasehold::{Client, ErrorKind, LockOptions, Loss, Retry, blocking};
use tokio::time::{Instant, advance, sleep};

/// The code under test: one report at a time.
async fn report(client: &Client) -> Result<&'static str, leasehold::Error> {
    match client
        .mutex("report")?
        .with_try_lock(async |_| "done")
        .await?
    {
        Some(done) => Ok(done),
        None => Ok("somebody else is at it"),
    }
}

#[tokio::test]
async fn one_report_at_a_time() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let other = store.busy("report").await?;
    assert_eq!(report(&client).await?, "somebody else is at it");
    drop(other);
    client.wait_until_free("report").await?;
    assert_eq!(report(&client).await?, "done");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn work_stops_when_the_lease_ends() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let lease = store.connect().await?.mutex("report")?.lock().await?;
    let work = lease.run(sleep(Duration::from_secs(3600)));
    store.make_unavailable();
    let error = work.await.unwrap_err();
    assert!(error.is_lost());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_limit() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let _other = store.busy("report").await?;
    let begun = Instant::now();
    let late = client
        .mutex("report")?
        .lock_within(Duration::from_secs(2))
        .await;
    assert!(late.unwrap_err().is_timeout());
    assert_eq!(begun.elapsed().as_secs(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stalled_holder_does_no_harm() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let (stalled, next) = (store.connect().await?, store.connect().await?);
    let table = Gate::new();
    let stale = stalled.mutex("table")?.lock().await?.token();
    store.lose("table").await?;
    let lease = next.mutex("table")?.lock().await?;
    table.admit(lease.token()).unwrap();
    assert!(table.admit(stale).is_err());
    Ok(())
}

/// The code under test: stops when it may not go on.
fn counted(lease: &blocking::Lease) -> u32 {
    (0..1000).take_while(|_| lease.is_valid()).count() as u32
}

#[test]
fn a_thread_stops_when_its_lease_is_lost() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = blocking::ClientBuilder::from(store.builder()).connect()?;
    let other = blocking::ClientBuilder::from(store.builder()).connect()?;
    let report = client.mutex("report")?;
    let busy = other.mutex("report")?.lock()?;
    assert!(report.try_lock()?.is_none());
    let _ = busy.release()?;
    let lease = report.lock()?;
    assert_eq!(counted(&lease), 1000);
    other.break_key("report")?;
    println!("{}", lease.lost());
    assert_eq!(counted(&lease), 0);
    store.make_unavailable();
    assert!(report.try_lock().unwrap_err().is_unavailable());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_through() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    store.make_unavailable();
    let mutex = client.mutex("report")?;
    let error = mutex.lock().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable());
    store.restore();
    assert!(mutex.try_lock().await?.is_some());
    Ok(())
}

/// Renewals are due by the paused clock, and keep a lease for as long as the store answers.
#[tokio::test(start_paused = true)]
async fn leases_are_renewed_by_the_paused_clock() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let limit = Duration::from_secs(5);
    let client = store.builder().ttl(limit).connect().await?;
    let lease = client.mutex("k")?.lock().await?;
    sleep(Duration::from_secs(3600)).await;
    assert!(lease.is_valid());
    store.make_unavailable();
    let begun = Instant::now();
    assert_eq!(lease.lost().await, Loss::Unanswered);
    let lasted = begun.elapsed();
    assert!(lasted <= limit, "{lasted:?}");
    Ok(())
}

/// A clock that a test moves moves that of the store, too: others get what has expired.
#[tokio::test(start_paused = true)]
async fn an_advanced_clock_ends_leases() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let (one, other) = (store.connect().await?, store.connect().await?);
    let fixed = one
        .mutex("k")?
        .with_renewal(leasehold::RenewalPolicy::Fixed);
    let lease = fixed.lock().await?;
    advance(Duration::from_secs(29)).await;
    assert!(lease.is_valid() && other.mutex("k")?.try_lock().await?.is_none());
    advance(Duration::from_secs(2)).await;
    assert!(!lease.is_valid());
    assert!(other.mutex("k")?.try_lock().await?.is_some());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_and_refusing_stores_are_seen() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    store.make_slow(Duration::from_secs(1));
    let begun = Instant::now();
    let lease = client.mutex("k")?.lock().await?;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    store.restore();
    drop(lease);
    store.make_refusing();
    for error in [
        client.mutex("other")?.try_lock().await.unwrap_err(),
        client.inspect("k").await.unwrap_err(),
        client.list("*").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    Ok(())
}

/// Nor does an answer arrive that was on its way.
#[tokio::test(start_paused = true)]
async fn who_is_unavailable_meanwhile_does_not_answer() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    store.make_slow(Duration::from_secs(2));
    let breaks = async {
        sleep(Duration::from_secs(1)).await;
        store.make_unavailable();
    };
    let (seen, ()) = tokio::join!(client.inspect("k"), breaks);
    assert!(seen.unwrap_err().is_unavailable());
    Ok(())
}

/// A page whose answer was lost comes again.
#[tokio::test(start_paused = true)]
async fn a_listing_goes_on_after_a_fault() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let _other = store.busy("k").await?;
    let mut listing = client.listing("*");
    // Longer than an operation may take.
    store.make_slow(Duration::from_secs(60));
    assert!(listing.next().await.unwrap_err().is_unavailable());
    store.restore();
    let page = listing.next().await?.expect("the first page");
    assert_eq!(page.keys.len(), 1);
    assert!(listing.next().await?.is_none());
    Ok(())
}

struct Reconnects(Arc<AtomicU32>);

impl Observer for Reconnects {
    fn observe(&self, _claim: &ObservedClaim, _fact: Fact) {}

    fn reconnected(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_unavailable_still_has_not_come_back() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let count = Arc::new(AtomicU32::new(0));
    let observer = Reconnects(count.clone());
    let client = store.builder().observer(observer).connect().await?;
    let lease = client.mutex("k")?.lock().await?;
    // Its client listens by now.
    sleep(Duration::from_secs(1)).await;
    store.make_unavailable();
    store.make_unavailable();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    store.restore();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(lease);
    // Without a claim it listens no more.
    sleep(Duration::from_secs(5)).await;
    store.make_unavailable();
    store.restore();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    Ok(())
}

/// What happens while nobody can be told is learned afterwards, as after a lost connection.
#[tokio::test]
async fn what_was_missed_is_learned() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let lease = client.mutex("k")?.lock().await?;
    store.make_unavailable();
    store.lose("k").await?;
    assert!(lease.is_valid(), "it cannot know");
    store.restore();
    let lost = tokio::time::timeout(Duration::from_secs(60), lease.lost());
    assert!(matches!(lost.await, Ok(Loss::Revoked | Loss::Gone)));
    Ok(())
}

/// Also if it was told a moment ago that nobody waits any more: what says so may come behind the next wait.
#[tokio::test(start_paused = true)]
async fn who_waits_anew_is_told() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let (other, second) = (store.busy("report").await?, Duration::from_secs(1));
    let given_up = tokio::time::timeout(second, client.wait_until_free("report"));
    assert!(given_up.await.is_err());
    let begun = Instant::now();
    let release = async {
        sleep(second).await;
        other.release().await
    };
    let (freed, released) = tokio::join!(client.wait_until_free("report"), release);
    freed?;
    let _ = released?;
    assert_eq!(begun.elapsed().as_secs(), 1);
    Ok(())
}

/// Another is asked for, as for one key.
#[tokio::test(start_paused = true)]
async fn a_late_grant_of_several_keys_is_no_error() -> Result<(), leasehold::Error> {
    let (store, second) = (TestStore::new(), Duration::from_secs(1));
    let client = store.builder().ttl(second).connect().await?;
    store.make_slow(2 * second);
    let both = client.multi(["report", "mail"])?;
    let faster = async {
        sleep(second).await;
        store.restore();
    };
    let (lease, ()) = tokio::join!(both.lock(), faster);
    assert!(lease?.is_valid());
    Ok(())
}

/// A release that waits for its answer is one claim that may be left, and not two.
#[tokio::test(start_paused = true)]
async fn what_a_shutdown_leaves_is_counted_once() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let lease = client.mutex("report")?.lock().await?;
    store.make_unavailable();
    let shutdown = client.shutdown(Duration::from_secs(1));
    let (released, left) = tokio::join!(lease.release(), shutdown);
    assert!(released.is_err());
    assert_eq!((left.released, left.unconfirmed), (0, 1));
    Ok(())
}

/// Without a pause the clock is the machine's, also in a debug build.
#[tokio::test]
async fn a_clock_that_runs_is_the_real_one() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let lease = client.mutex("k")?.lock().await?;
    let (begun, left) = (Instant::now(), lease.remaining());
    sleep(Duration::from_millis(30)).await;
    let spent = left.saturating_sub(lease.remaining());
    assert!(spent >= Duration::from_millis(29) && spent <= begun.elapsed());
    Ok(())
}

#[test]
fn the_page_quotes_what_is_tested() {
    super::fencing_examples::quotes("testing.md", "testing_page.rs", 4);
}

/// The paused clock would stand still for ever while it asks.
#[tokio::test(start_paused = true)]
async fn who_polls_without_a_pause_makes_one() -> Result<(), leasehold::Error> {
    let (store, asked) = (TestStore::new(), Arc::new(AtomicU32::new(0)));
    let _other = store.busy("report").await?;
    let counts = asked.clone();
    let observer = move |_: &ObservedClaim, fact: Fact| {
        counts.fetch_add(u32::from(fact == Fact::Requested), Ordering::SeqCst);
    };
    let client = store.builder().observer(observer).connect().await?;
    let (report, none) = (client.mutex("report")?, Retry::Fixed(Duration::ZERO));
    let polls = report.retrying(none);
    // It is looked at whenever the call is.
    let flood = poll_fn(|_| match asked.load(Ordering::SeqCst) {
        // More than one for each millisecond.
        200.. => Poll::Ready(()),
        _ => Poll::Pending,
    });
    let late = tokio::select! {
        biased;
        () = flood => panic!("a flood of requests"),
        late = polls.lock_within(Duration::from_millis(100)) => late,
    };
    assert!(late.unwrap_err().is_timeout());
    assert!(asked.load(Ordering::SeqCst) > 1);
    Ok(())
}

/// It is that of the whole call, also while a lease is taken over, or its note published.
#[tokio::test(start_paused = true)]
async fn a_recovery_ends_with_its_limit() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let (report, office) = (client.mutex("report")?, client.election("office")?);
    let leads = office.campaign("one").await?;
    let lease = report.lock().await?;
    let saved = lease.parts()?;
    store.make_slow(Duration::from_secs(60));
    let begun = Instant::now();
    let within = LockOptions::new().within(Duration::from_secs(2));
    let error = report.recover(&saved, within.clone()).await.unwrap_err();
    assert!(error.is_unavailable());
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert!(error.reason().ends_with("2s, the time limit of the call"));
    let saved = leads.lease().parts()?;
    store.make_slow(Duration::from_millis(1500));
    let begun = Instant::now();
    let slower = async {
        sleep(Duration::from_secs(1)).await;
        store.make_slow(Duration::from_secs(60));
    };
    let (late, ()) = tokio::join!(office.recover(&saved, "two", within), slower);
    assert!(late.unwrap_err().is_unavailable());
    assert_eq!(begun.elapsed().as_secs(), 2);
    Ok(())
}

/// Also of a lease that is shorter than a request may take: it was valid to the end of the work.
#[tokio::test(start_paused = true)]
async fn work_that_is_done_stays_done() -> Result<(), leasehold::Error> {
    let store = TestStore::new();
    let client = store
        .builder()
        .ttl(Duration::from_secs(2))
        .connect()
        .await?;
    let report = client.mutex("report")?;
    report.with_lock(async |_| store.make_unavailable()).await?;
    store.restore();
    let lease = report.lock().await?;
    store.make_slow(Duration::from_secs(60));
    let error = lease.release().await.unwrap_err();
    assert!(error.is_unavailable());
    // Not the operation time-out, which is longer.
    assert!(error.reason().contains("no answer within 2."), "{error}");
    Ok(())
}
