//! What may go wrong between a client, the network and one Redis server, and what users may rely
//! on all the same. A proxy breaks connections at chosen points; processes are killed for real, by
//! running this binary again in a role of its own.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails, and measured figures are printed"
)]

use std::env;
use std::process::Command as Program;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold::{Client, ErrorKind, Lease, Loss, Released, Settings, Standpoint, Token};
use leasehold_testkit::process::{Process, Signal};
use leasehold_testkit::proxy::{Command, Direction, End, Proxy};
use leasehold_testkit::server::{Data, RedisServer};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take on a busy machine before a test fails.
const LIMIT: Duration = Duration::from_secs(20);
/// What a busy machine may add to a bound that is promised.
const BUSY: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(2);
/// The key that all tests are about; `warm` uses another.
const KEY: &str = "the-key";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// ---- what the tests share ----

async fn client_with(url: &str, settings: Settings) -> Client {
    let options = RedisOptions::from_url(url).unwrap();
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    let client = Client::builder().with_store(store).settings(settings);
    let client = client.connect().await.unwrap();
    warm(&client).await;
    client
}

async fn client(url: &str) -> Client {
    client_with(url, Settings::default()).await
}

fn ttl(ttl: Duration) -> Settings {
    Settings {
        ttl,
        ..Settings::default()
    }
}

/// The server learns the scripts, so that a rule about the n-th call means what it says.
async fn warm(client: &Client) {
    let lease = soon("a first lease", client.mutex("warm").unwrap().lock())
        .await
        .unwrap();
    lease.renew().await.unwrap();
    client.inspect("warm").await.unwrap();
    lease.release().await.unwrap();
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LIMIT, work)
        .await
        .unwrap_or_else(|_| panic!("{what} within {LIMIT:?}"))
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !so().await {
            sleep(TICK).await;
        }
    })
    .await;
}

/// Waits until so many hold and wait for the key.
async fn standing(client: &Client, holders: usize, waiters: usize) {
    until(
        &format!("{holders} holders and {waiters} waiters"),
        async || {
            let seen = client.inspect(KEY).await.unwrap();
            (seen.holders.len(), seen.waiters.len()) == (holders, waiters)
        },
    )
    .await;
}

async fn lock(client: &Client) -> Lease {
    soon("the key", client.mutex(KEY).unwrap().lock())
        .await
        .unwrap()
}

fn waiting(client: &Client) -> JoinHandle<Result<Lease, leasehold::Error>> {
    let key = client.mutex(KEY).unwrap();
    tokio::spawn(async move { key.lock().await })
}

async fn granted(waiting: JoinHandle<Result<Lease, leasehold::Error>>) -> Lease {
    soon("the key", waiting).await.unwrap().unwrap()
}

// The scripts are told apart by how much they are given.

fn is_claim(command: &Command) -> bool {
    command.is("EVALSHA") && command.arguments().len() == 10 && command.has(KEY)
}

fn is_renewal(command: &Command) -> bool {
    command.is("EVALSHA") && command.arguments().len() == 8 && command.has(KEY)
}

fn is_release(command: &Command) -> bool {
    command.is("EVALSHA") && command.arguments().len() == 7 && command.has(KEY)
}

/// The ids in all requests of a kind from now on.
fn ids(proxy: &Proxy, kind: fn(&Command) -> bool) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let ids = seen.clone();
    // It never happens: the rule only listens.
    proxy.request(
        move |command| {
            if kind(command) {
                ids.lock().unwrap().push(command.arguments()[4].clone());
            }
            false
        },
        1,
    );
    seen
}

/// Asserts that a request was repeated, with the same id.
fn asked_again(ids: &Mutex<Vec<Vec<u8>>>) {
    let mut ids = ids.lock().unwrap().clone();
    assert!(ids.len() > 1, "it was asked for again");
    ids.dedup();
    assert_eq!(ids.len(), 1, "with the same id");
}

/// Those who were served, in order.
#[derive(Default)]
struct Served {
    order: Vec<usize>,
    tokens: Vec<Token>,
    rejoined: u32,
}

impl Served {
    fn assert_rising(&self, above: Token) {
        let all: Vec<_> = [above].iter().chain(&self.tokens).copied().collect();
        assert!(all.is_sorted_by(|a, b| a < b), "tokens rise: {all:?}");
    }
}

/// A queue of tasks that lock once, and say so while they hold.
struct Line {
    tasks: JoinSet<()>,
    served: mpsc::UnboundedSender<(usize, Token, u32)>,
    order: mpsc::UnboundedReceiver<(usize, Token, u32)>,
    inside: Arc<AtomicU64>,
}

impl Line {
    fn new() -> Self {
        let (served, order) = mpsc::unbounded_channel();
        Self {
            tasks: JoinSet::new(),
            served,
            order,
            inside: Arc::default(),
        }
    }

    fn join(&mut self, client: &Client) {
        let (n, key) = (self.tasks.len(), client.mutex(KEY).unwrap());
        let (served, inside) = (self.served.clone(), self.inside.clone());
        self.tasks.spawn(async move {
            let lease = key.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
            served.send((n, lease.token(), lease.rejoined())).unwrap();
            tokio::task::yield_now().await;
            assert!(lease.is_valid());
            inside.fetch_sub(1, Ordering::SeqCst);
            // Without an answer the background goes on.
            lease.release().await.ok();
        });
    }

    async fn all_served(mut self) -> Served {
        let mut all = Served::default();
        while let Some(task) = soon("everyone's turn", self.tasks.join_next()).await {
            task.unwrap();
        }
        drop(self.served);
        while let Some((n, token, rejoined)) = self.order.recv().await {
            all.order.push(n);
            all.tokens.push(token);
            all.rejoined += rejoined;
        }
        all
    }
}

// ---- 1: the answer is swallowed ----

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_the_same_claim() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (ours, other) = (client(&proxy.url()).await, client(&server.url()).await);

    let ids = ids(&proxy, is_claim);
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let lease = lock(&ours).await;
    assert!(swallowed.has_happened());
    asked_again(&ids);
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    assert_eq!(seen.holders[0].token, lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    let lease = lock(&other).await;

    // The same, where the answer that was lost is a place in the queue.
    ids.lock().unwrap().clear();
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let next = waiting(&ours);
    swallowed.wait().await;
    until("the claim again", async || ids.lock().unwrap().len() > 1).await;
    standing(&other, 1, 1).await;
    asked_again(&ids);
    let before = lease.token();
    lease.release().await.unwrap();
    let next = granted(next).await;
    assert!(next.token() > before);
    assert_eq!(next.rejoined(), 0);
    standing(&other, 1, 0).await;
    assert_eq!(next.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
}

#[tokio::test]
async fn a_try_whose_answer_was_lost_leaves_nothing_behind() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (ours, other) = (client(&proxy.url()).await, client(&server.url()).await);
    let key = ours.mutex(KEY).unwrap();

    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    let lease = soon("an answer", key.try_lock()).await.unwrap();
    assert!(swallowed.has_happened());
    match lease {
        Some(lease) => assert_eq!(lease.release().await.unwrap(), Released::StillOurs),
        None => eprintln!("try_lock ended busy"),
    }
    // Long before its TTL.
    standing(&other, 0, 0).await;

    let lease = lock(&other).await;
    let swallowed = proxy.swallow_reply_of(is_claim, 1);
    assert!(soon("an answer", key.try_lock()).await.unwrap().is_none());
    assert!(swallowed.has_happened());
    standing(&other, 1, 0).await;
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
    assert!(
        other
            .mutex(KEY)
            .unwrap()
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_costs_neither_place_nor_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let settings = Settings {
        waiter_ttl: ms(3_000),
        ..Settings::default()
    };
    let ours = client_with(&proxy.url(), settings).await;
    let other = client(&server.url()).await;

    let first = lock(&other).await;
    let next = waiting(&ours);
    standing(&other, 1, 1).await;
    proxy.swallow_reply_of(is_renewal, 1).wait().await;
    // It asks again at once; a whole waiter TTL later it still stands there.
    proxy.request(is_renewal, 1).wait().await;
    sleep(ms(3_500)).await;
    standing(&other, 1, 1).await;
    first.release().await.unwrap();
    let lease = granted(next).await;
    assert_eq!(lease.rejoined(), 0);
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
}

#[tokio::test]
async fn a_lease_whose_renewal_was_not_answered_stays_held() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let ours = client_with(&proxy.url(), ttl(ms(3_000))).await;
    let other = client(&server.url()).await;

    let lease = lock(&ours).await;
    for _ in 0..2 {
        proxy.swallow_reply_of(is_renewal, 1).wait().await;
        proxy.request(is_renewal, 1).wait().await;
    }
    sleep(ms(3_500)).await;
    assert_eq!(lease.standpoint(), Standpoint::Held);
    assert!(lease.is_valid());
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!(seen.holders[0].token, lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
}

#[tokio::test]
async fn a_release_that_got_lost_hands_on_all_the_same() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (ours, other) = (client(&proxy.url()).await, client(&server.url()).await);

    // Executed or not, the client cannot know.
    for executed in [true, false] {
        let lease = lock(&ours).await;
        let next = waiting(&other);
        standing(&other, 1, 1).await;
        let lost = if executed {
            proxy.swallow_reply_of(is_release, 1)
        } else {
            proxy.swallow_request(is_release, 1)
        };
        let released = soon("an answer", lease.release()).await;
        assert!(lost.has_happened());
        eprintln!("release, executed: {executed}, answers {released:?}");
        if let Err(error) = released {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        // Long before the TTL of 30 s; and what is repeated does not hit the next holder.
        let next = granted(next).await;
        sleep(ms(300)).await;
        soon("a renewal", next.renew()).await.unwrap();
        standing(&other, 1, 0).await;
        assert_eq!(next.release().await.unwrap(), Released::StillOurs);
        standing(&other, 0, 0).await;
    }
}

// ---- 2, 3: connections and pushes are lost ----

#[tokio::test]
async fn a_queue_outlives_its_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (ours, other) = (client(&proxy.url()).await, client(&server.url()).await);

    for released_while_cut in [false, true] {
        let first = lock(&other).await;
        let token = first.token();
        let mut line = Line::new();
        for n in 0..20 {
            line.join(&ours);
            standing(&other, 1, n + 1).await;
        }
        let connections = proxy.counts().connections;
        if released_while_cut {
            proxy.refuse();
        }
        proxy.cut();
        if released_while_cut {
            first.release().await.unwrap();
            proxy.accept();
        } else {
            proxy
                .wait_for(|counts| counts.connections > connections)
                .await;
            first.release().await.unwrap();
        }
        let served = line.all_served().await;
        served.assert_rising(token);
        assert_eq!(served.order.len(), 20, "nobody twice");
        eprintln!(
            "released while cut: {released_while_cut}, rejoined: {}",
            served.rejoined
        );
        if served.rejoined == 0 {
            assert!(
                served.order.is_sorted(),
                "in order of arrival: {:?}",
                served.order
            );
        } else {
            // The grant found nobody: after a second the others may go on.
            assert!(released_while_cut, "nobody loses his place");
        }
        standing(&other, 0, 0).await;
    }
}

#[tokio::test]
async fn a_grant_whose_push_was_lost_is_found_after_the_reset() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    // No heartbeat and no lapse would bring it forward within the limit.
    let minute = Duration::from_secs(60);
    let settings = Settings {
        ttl: minute,
        waiter_ttl: minute,
        ..Settings::default()
    };
    let ours = client_with(&proxy.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;

    let first = lock(&other).await;
    let next = waiting(&ours);
    standing(&other, 1, 1).await;
    sleep(ms(200)).await;
    proxy.hold(Direction::ToClient);
    let old = first.token();
    first.release().await.unwrap();
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0), "granted");
    assert!(seen.holders[0].token > old);
    sleep(ms(200)).await;
    assert!(!next.is_finished(), "nobody has told it");
    proxy.cut();
    proxy.resume(Direction::ToClient);
    let cut = Instant::now();
    let lease = granted(next).await;
    eprintln!("found {:?} after the cut", cut.elapsed());
    assert_eq!(lease.token(), seen.holders[0].token);
    assert_eq!(lease.rejoined(), 0);
    assert!(lease.is_valid());
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
}
