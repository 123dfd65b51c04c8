//! Facts about claims, as observers and `tracing` receive them.

use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use futures_util::FutureExt as _;
use leasehold::observe::{AcquireOutcome, Acquisition, End, Fact, ObservedClaim, Observer};
use leasehold::testing::TestStore;
use leasehold::{ClientBuilder, Mode};
use tokio::runtime::Builder;

use crate::log::Log;
use crate::steps::*;

/// What was heard, by the number of the claim.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(ObservedClaim, Fact)>>>);

impl Heard {
    async fn client(&self) -> Client {
        self.client_of(Client::builder().store("memory:")).await
    }

    async fn client_of(&self, builder: ClientBuilder) -> Client {
        let heard = self.0.clone();
        let observer = move |claim: &ObservedClaim, fact: Fact| {
            heard.lock().unwrap().push((claim.clone(), fact));
        };
        builder.observer(observer).connect().await.unwrap()
    }

    /// How often it was renewed does not matter.
    fn of(&self, number: u64) -> Vec<Fact> {
        let heard = self.0.lock().unwrap();
        let of_claim = heard.iter().filter(|(claim, _)| claim.number == number);
        let mut facts: Vec<_> = of_claim.map(|(_, fact)| *fact).collect();
        let renewed = |fact: &Fact| matches!(fact, Fact::Renewed { .. });
        facts.dedup_by(|next, fact| renewed(next) && renewed(fact));
        facts
    }
}

/// A claim was requested, granted and released.
#[track_caller]
fn assert_held_once(facts: &[Fact]) {
    let told = matches!(
        facts,
        [Fact::Requested, Fact::Granted { .. }, Fact::Released { .. }]
    );
    assert!(told, "{facts:?}");
}

#[tokio::test]
async fn a_claim_is_told_from_its_request_to_its_end() {
    let heard = Heard::default();
    let client = heard.client().await;
    let mutex = client.mutex("k").unwrap();
    let first = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let late = mutex.lock_within(Duration::from_millis(20)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    let token = first.token();
    first.renew().await.unwrap();
    let _ = first.release().await.unwrap();
    let broken = mutex.lock().await.unwrap();
    client.break_key("k").await.unwrap();
    assert_eq!(broken.lost().await, Loss::Revoked);

    let facts = heard.of(1);
    let [
        Fact::Requested,
        Fact::Granted { token: told, .. },
        Fact::Renewed { .. },
        Fact::Released { .. },
    ] = facts[..]
    else {
        panic!("{facts:?}");
    };
    assert_eq!(told, token);
    let facts = heard.of(2);
    let [Fact::Requested, Fact::Ended { end, .. }] = facts[..] else {
        panic!("{facts:?}");
    };
    assert!(matches!(end, Some(End::Busy(_))), "{facts:?}");
    let facts = heard.of(3);
    let [Fact::Requested, Fact::Queued { position: 1 }, ended] = facts[..] else {
        panic!("{facts:?}");
    };
    let Fact::Ended { end, waited } = ended else {
        panic!("{facts:?}");
    };
    assert!(end == Some(End::TimedOut) && waited.as_millis() >= 20);
    let facts = heard.of(4);
    let [
        Fact::Requested,
        Fact::Granted { .. },
        Fact::Lost { loss, .. },
    ] = facts[..]
    else {
        panic!("{facts:?}");
    };
    assert_eq!(loss, Loss::Revoked);
    for (claim, _) in &*heard.0.lock().unwrap() {
        assert_eq!((claim.key.as_str(), claim.mode), ("k", Mode::EXCLUSIVE));
    }
}

/// Whoever hears that one lease was released takes and drops another: the client may be used
/// from there.
#[tokio::test]
async fn an_observer_may_use_the_client() {
    let kept: Arc<Mutex<Option<Lease>>> = Arc::default();
    let (drops, looks) = (kept.clone(), Arc::new(OnceLock::<Client>::new()));
    let client = looks.clone();
    let observer = move |_: &ObservedClaim, fact: Fact| {
        if let Fact::Released { .. } = fact {
            drop(drops.lock().unwrap().take());
            assert!(client.get().unwrap().mutex("other").is_ok());
        }
    };
    let builder = Client::builder().store("memory:").observer(observer);
    let client = builder.connect().await.unwrap();
    looks.set(client.clone()).unwrap();
    let (a, b) = (client.mutex("a").unwrap(), client.mutex("b").unwrap());
    *kept.lock().unwrap() = Some(a.lock().await.unwrap());
    let _ = b.lock().await.unwrap().release().await.unwrap();
    // It was dropped: its key is free, or will be at once.
    let _ = a.lock().await.unwrap().release().await.unwrap();
}

/// It hears of the loss in the step of who breaks the lock.
#[test]
fn an_observer_may_ask_the_store_that_tells_it() {
    let (tell, told) = channel();
    let breaks = async move {
        let store = MemoryStore::new();
        let other = Client::builder().with_store(Arc::new(store.client()));
        let other = other.connect().await.unwrap();
        let asks = other.clone();
        let observer = move |_: &ObservedClaim, fact: Fact| {
            if let Fact::Lost { .. } = fact {
                let seen = asks.inspect("k").now_or_never();
                tell.send(seen.unwrap().unwrap().holders.len()).unwrap();
            }
        };
        let builder = Client::builder().with_store(Arc::new(store));
        let client = builder.observer(observer).connect().await.unwrap();
        let lease = lock(&client, "k").await;
        // By then its inbox is open.
        sleep(Duration::from_secs(1)).await;
        other.break_key("k").await.unwrap();
        assert_eq!(lease.lost().await, Loss::Revoked);
    };
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let breaks = thread::spawn(move || runtime.block_on(breaks));
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(0));
    breaks.join().unwrap();
}

/// It costs the fact that it panicked at: leases are kept and later facts told.
#[tokio::test]
async fn an_observer_that_panics_harms_nobody() {
    let heard = Heard::default();
    let facts = heard.0.clone();
    let observer = move |claim: &ObservedClaim, fact: Fact| {
        facts.lock().unwrap().push((claim.clone(), fact));
        assert!(!matches!(fact, Fact::Requested), "on purpose");
    };
    let builder = Client::builder().store("memory:").observer(observer);
    let client = builder.connect().await.unwrap();
    let mutex = client.mutex("k").unwrap();
    for number in [1, 2] {
        let lease = mutex.lock().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Held);
        assert_held_once(&heard.of(number));
    }
}

/// Whoever hears after it is told that fact, too.
#[tokio::test]
async fn an_observer_that_panics_costs_the_others_nothing() {
    let heard = Heard::default();
    let panics = |_: &ObservedClaim, fact: Fact| {
        assert!(!matches!(fact, Fact::Granted { .. }), "on purpose");
    };
    let builder = Client::builder().store("memory:").observer(panics);
    let client = heard.client_of(builder).await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    assert_held_once(&heard.of(1));
}

#[tokio::test]
async fn spans_and_events_tell_the_same() {
    let log = Log::start();
    let client = leasehold::connect("memory:").await.unwrap();
    let mutex = client.mutex("k").unwrap();
    let lease = mutex.lock().await.unwrap();
    let token = lease.token();
    let _ = lease.release().await.unwrap();
    let broken = mutex.lock().await.unwrap();
    client.break_key("k").await.unwrap();
    broken.lost().await;

    let log = log.lines("leasehold.key=k");
    let ask = |line: &&String| !line.ends_with("asks leasehold.key=k");
    let [acquired, released, again, lost] = &*log.iter().filter(ask).collect::<Vec<_>>() else {
        panic!("{log:#?}");
    };
    // Success is no news: only a loss is shown unless somebody debugs.
    for quiet in [acquired, released, again] {
        assert!(quiet.contains(" DEBUG "), "{quiet}");
    }
    let span =
        "leasehold.acquire{otel.kind=\"client\" leasehold.key=k}: leasehold::observe: acquired";
    let fenced = acquired.contains(&format!("leasehold.token={token}"));
    assert!(acquired.contains(span) && fenced, "{acquired}");
    let span = format!("leasehold.hold{{leasehold.key=k leasehold.token={token}}}");
    let told = format!("{span}: leasehold::observe: released");
    assert!(released.contains(&told), "{released}");
    assert!(released.contains("leasehold.held_s="), "{released}");
    assert!(lost.contains("WARN leasehold.hold{"), "{lost}");
    says(lost, ["lost: the store no longer has the claim"]);
}

/// Also after a renewal that its caller has cancelled.
#[tokio::test(start_paused = true)]
async fn each_lease_has_one_end() {
    let (heard, store) = (Heard::default(), TestStore::new());
    let client = heard.client_of(store.builder()).await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    store.make_slow(Duration::from_secs(1));
    {
        let mut renewing = Box::pin(lease.renew());
        assert!(futures_util::poll!(&mut renewing).is_pending());
    }
    let _ = lease.release().await.unwrap();
    assert_held_once(&heard.of(1));
}

/// How acquisitions ended.
#[derive(Clone, Default)]
struct Endings(Arc<Mutex<Vec<AcquireOutcome>>>);

impl Observer for Endings {
    fn observe(&self, _: &ObservedClaim, _: Fact) {}

    fn acquisition(&self, acquisition: Acquisition<'_>) {
        let ended = acquisition.ended.map(|(outcome, _)| outcome);
        self.0.lock().unwrap().extend(ended);
    }
}

#[tokio::test]
async fn each_acquisition_has_one_end() {
    let endings = Endings::default();
    let builder = Client::builder().store("memory:").observer(endings.clone());
    let client = builder.connect().await.unwrap();
    let lock = client.mutex("k").unwrap();
    let lease = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    {
        let mut waiting = Box::pin(lock.lock());
        assert!(futures_util::poll!(&mut waiting).is_pending());
    }
    let late = lock.lock_within(Duration::from_millis(20)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    drop(lease);
    let expected = [
        AcquireOutcome::Granted,
        AcquireOutcome::Busy,
        AcquireOutcome::Withdrawn,
        AcquireOutcome::Failed(ErrorKind::Timeout),
    ];
    assert_eq!(*endings.0.lock().unwrap(), expected);
}
