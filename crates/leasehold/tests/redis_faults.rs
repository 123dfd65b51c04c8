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

/// A client whose claims all outlive the limit: what is left behind is seen.
async fn client(url: &str) -> Client {
    let long = LIMIT + ms(10_000);
    let settings = Settings {
        ttl: long,
        waiter_ttl: long,
        ..Settings::default()
    };
    client_with(url, settings).await
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
    // No heartbeat and no lapse would find it within the limit.
    let minutes = 9 * LIMIT;
    let settings = Settings {
        ttl: minutes,
        waiter_ttl: minutes,
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

// ---- 4, 5, 7: silence and slowness ----

/// How long after `end` something happened, or before it.
fn after(at: Instant, end: Instant) -> i64 {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap();
    (micros(at.saturating_duration_since(end)) - micros(end.saturating_duration_since(at))) / 1000
}

/// Waits until the lease is lost; says when, beside the end of its validity.
async fn lost_in_time(lease: &Lease) -> (Loss, Instant) {
    let end = Instant::now() + lease.remaining();
    let loss = soon("the loss", lease.lost()).await;
    let at = Instant::now();
    eprintln!("lost ({loss}) {} ms after validity's end", after(at, end));
    assert!(at <= end + BUSY, "no later than validity's end");
    assert!(!lease.is_valid());
    (loss, at)
}

#[tokio::test]
async fn a_client_in_a_black_hole_gives_up_before_others_get_the_key() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let short = ttl(ms(1_000));
    let ours = client_with(&proxy.url(), short.clone()).await;
    let other = client_with(&server.url(), short).await;

    let lease = lock(&ours).await;
    let next = waiting(&other);
    standing(&other, 1, 1).await;
    sleep(ms(1_500)).await;
    assert!(lease.is_valid(), "kept beyond its TTL until here");
    proxy.black_hole(Direction::ToServer);
    proxy.black_hole(Direction::ToClient);
    // What was on its way has come.
    sleep(ms(20)).await;
    let end = Instant::now() + lease.remaining();
    let others = async {
        let next = granted(next).await;
        assert!(!lease.is_valid(), "one at a time");
        (next, Instant::now())
    };
    let ((loss, lost), (next, granted)) = tokio::join!(lost_in_time(&lease), others);
    assert_eq!(loss, Loss::Unanswered);
    eprintln!(
        "the next {} ms after it, {} ms after the end",
        after(granted, lost),
        after(granted, end)
    );
    assert!(granted >= end);
    assert!(next.token() > lease.token());
    assert!(next.is_valid());
    next.release().await.unwrap();
    proxy.heal();
    drop(lease);
    standing(&other, 0, 0).await;
}

/// Nothing is answered, and no end of the connection is told: a server, or a balancer before it,
/// that has vanished. Then it is back at the same address.
async fn comes_back_from_silence(settings: Settings) {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let ours = client_with(&proxy.url(), settings.clone()).await;
    let other = client(&server.url()).await;
    let lease = lock(&ours).await;
    proxy.half_open(End::Client);
    let silent = Instant::now();
    let key = ours.mutex(KEY).unwrap();
    soon("the loss", lease.lost()).await;
    drop(lease);
    let mut tries = 1;
    // The time-outs of requests and of the ping that follows them add up.
    let lease = timeout(3 * LIMIT, async {
        loop {
            match key.lock().await {
                Ok(lease) => return lease,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                    tries += 1;
                }
            }
        }
    })
    .await
    .expect("a lease over a new connection");
    eprintln!("after silence: {tries} tries, {:?}", silent.elapsed());
    lease.release().await.unwrap();
    standing(&other, 0, 0).await;
}

#[tokio::test]
async fn a_client_comes_back_from_a_connection_that_fell_silent() {
    comes_back_from_silence(ttl(ms(1_500))).await;
}

#[tokio::test]
async fn an_impatient_client_comes_back_from_a_connection_that_fell_silent() {
    let settings = Settings {
        operation_timeout: ms(500),
        ..ttl(ms(1_500))
    };
    comes_back_from_silence(settings).await;
}

/// A lease that was over when its answer came is not handed out as if it held.
#[tokio::test]
async fn a_lease_that_comes_too_late_is_not_handed_out() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let ours = client_with(&proxy.url(), ttl(ms(500))).await;
    let other = client(&server.url()).await;
    proxy.delay(Direction::ToClient, ms(700));
    let mutex = ours.mutex(KEY).unwrap();
    let error = soon("an answer", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("too late"), "{error}");
    let tried = soon("an answer", mutex.try_lock()).await;
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.heal();
    standing(&other, 0, 0).await;
    assert!(lock(&ours).await.is_valid());
}

#[tokio::test]
async fn slow_answers_keep_a_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let ours = client_with(&proxy.url(), ttl(ms(2_000))).await;
    let other = client(&server.url()).await;

    let lease = lock(&ours).await;
    proxy.delay(Direction::ToServer, ms(300));
    proxy.delay(Direction::ToClient, ms(300));
    let mut least = Duration::MAX;
    let started = Instant::now();
    while started.elapsed() < ms(7_000) {
        sleep(ms(20)).await;
        least = least.min(lease.remaining());
        assert!(lease.is_valid(), "after {:?}", started.elapsed());
    }
    eprintln!("with answers after 600 ms, {least:?} of 2 s were left at the least");
    assert_eq!(
        other.inspect(KEY).await.unwrap().holders[0].token,
        lease.token()
    );
    assert_eq!(
        soon("an answer", lease.release()).await.unwrap(),
        Released::StillOurs
    );
    standing(&other, 0, 0).await;
}

#[tokio::test]
async fn a_server_that_stood_still_finds_its_holders_gone() {
    let server = RedisServer::start();
    let short = ttl(ms(1_000));
    let ours = client_with(&server.url(), short.clone()).await;
    let other = client_with(&server.url(), short).await;

    let lease = lock(&ours).await;
    let next = waiting(&other);
    standing(&other, 1, 1).await;
    server.stop();
    let (loss, _) = lost_in_time(&lease).await;
    assert_eq!(loss, Loss::Unanswered);
    sleep(ms(1_500)).await;
    assert!(!next.is_finished());
    assert!(!lease.is_valid());
    server.cont();
    let next = granted(next).await;
    assert!(!lease.is_valid());
    assert!(next.token() > lease.token());
    let before = next.token();
    drop(lease);
    assert_eq!(next.release().await.unwrap(), Released::StillOurs);

    let lease = lock(&ours).await;
    assert!(lease.token() > before);
    sleep(ms(1_500)).await;
    assert!(lease.is_valid(), "kept as before");
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    standing(&other, 0, 0).await;
}

// ---- 6: the server forgets ----

/// A holder and waiters of several clients, under a server that loses the record.
async fn forgets(lose: impl FnOnce(&RedisServer)) {
    let server = RedisServer::start();
    let settings = ttl(ms(6_000));
    let ours = client_with(&server.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;

    let lease = lock(&ours).await;
    let mut line = Line::new();
    for n in 0..6 {
        line.join(if n % 2 == 0 { &ours } else { &other });
        standing(&other, 1, n + 1).await;
    }
    lose(&server);
    let at = Instant::now();
    let (loss, served) = tokio::join!(soon("the loss", lease.lost()), line.all_served());
    eprintln!(
        "all over after {:?}, rejoined: {}",
        at.elapsed(),
        served.rejoined
    );
    assert_eq!(loss, Loss::Gone);
    assert!(!lease.is_valid());
    assert_eq!(served.order.len(), 6);
    assert!(
        served.rejoined >= 6,
        "each has joined again: {}",
        served.rejoined
    );
    served.assert_rising(lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyGone);
    standing(&other, 0, 0).await;

    let lease = lock(&ours).await;
    assert!(lease.token() > *served.tokens.last().unwrap());
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
}

#[tokio::test]
async fn a_flushed_server_tells_its_holders_and_serves_its_waiters() {
    forgets(|server| {
        server.command(&["FLUSHALL"]);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_restarts_without_data_tells_its_holders_and_serves_its_waiters() {
    forgets(|server| server.restart(Data::Lose)).await;
}

#[tokio::test]
async fn an_evicted_record_is_told_to_its_holder_and_its_waiters_are_served() {
    forgets(|server| {
        let keys: Vec<String> = server.query(&["KEYS", &format!("*lock:{KEY}")]);
        assert_eq!(keys.len(), 1);
        assert_eq!(server.query::<u64>(&["DEL", &keys[0]]), 1);
    })
    .await;
}

/// For comparison: with its data, a restart costs nobody anything.
#[tokio::test]
async fn a_server_that_restarts_with_its_data_goes_on_where_it_was() {
    let server = RedisServer::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    let lease = lock(&ours).await;
    let mut line = Line::new();
    for n in 0..6 {
        line.join(if n % 2 == 0 { &ours } else { &other });
        standing(&other, 1, n + 1).await;
    }
    server.restart(Data::Keep);
    soon("a renewal", async {
        while lease.renew().await.is_err() {
            sleep(TICK).await;
        }
    })
    .await;
    standing(&other, 1, 6).await;
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    let served = line.all_served().await;
    served.assert_rising(token);
    assert_eq!(served.rejoined, 0);
    assert!(
        served.order.is_sorted(),
        "in order of arrival: {:?}",
        served.order
    );
}

// ---- 8, 9: processes die ----

/// Not a test by itself: what the other processes do.
#[tokio::test]
async fn role() {
    let Ok(role) = env::var("LEASEHOLD_TEST_ROLE") else {
        return;
    };
    let url = env::var("LEASEHOLD_TEST_URL").unwrap();
    match role.as_str() {
        "hold" => {
            let client = client_with(&url, ttl(ms(1_000))).await;
            let lease = lock(&client).await;
            eprintln!("held {}", lease.token());
            lease.lost().await;
            panic!("nobody took it");
        }
        "wait" => {
            let waiters: usize = env::var("LEASEHOLD_TEST_WAITERS").unwrap().parse().unwrap();
            let client = client(&url).await;
            let mut all = Vec::new();
            // Every other place is somebody else's.
            for n in 0..waiters {
                standing(&client, 1, 2 * n).await;
                all.push(waiting(&client));
            }
            for waiting in all {
                drop(granted(waiting).await);
            }
        }
        other => panic!("no role {other}"),
    }
}

fn spawn(role: &str, server: &RedisServer, waiters: usize) -> Process {
    let mut program = Program::new(env::current_exe().unwrap());
    program
        .args(["role", "--exact", "--nocapture"])
        .env("LEASEHOLD_TEST_ROLE", role)
        .env("LEASEHOLD_TEST_URL", server.url())
        .env("LEASEHOLD_TEST_WAITERS", waiters.to_string());
    Process::spawn(program)
}

/// How many listen for grants.
fn inboxes(server: &RedisServer) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len()
}

/// So many waiters of one process are killed, each with a live one behind it: how long it takes
/// from the release until all who live were served.
async fn delay_by_the_dead(dead: usize) -> Duration {
    let server = RedisServer::start();
    let holder = client(&server.url()).await;
    let live = client(&server.url()).await;
    let first = lock(&holder).await;
    let process = spawn("wait", &server, dead);
    let mut line = Line::new();
    for n in 0..dead {
        standing(&holder, 1, 2 * n + 1).await;
        line.join(&live);
    }
    standing(&holder, 1, 2 * dead).await;
    // Holders open an inbox as well, after a while.
    until("three inboxes", async || inboxes(&server) == 3).await;
    process.signal(Signal::KILL);
    process.wait().await;

    let token = first.token();
    let released = Instant::now();
    assert_eq!(first.release().await.unwrap(), Released::StillOurs);
    let served = line.all_served().await;
    let delay = released.elapsed();
    assert_eq!(served.order.len(), dead);
    assert!(
        served.order.is_sorted(),
        "in order of arrival: {:?}",
        served.order
    );
    assert_eq!(served.rejoined, 0);
    served.assert_rising(token);
    standing(&holder, 0, 0).await;
    delay
}

#[tokio::test]
async fn a_dead_waiter_delays_the_others_by_a_second() {
    let delay = delay_by_the_dead(1).await;
    eprintln!("MEASURED a dead waiter, next in line: {delay:?}");
    assert!(delay <= ms(1_500) + BUSY);
}

#[tokio::test]
async fn ten_dead_waiters_of_one_process_delay_the_others_little_more() {
    let delay = delay_by_the_dead(10).await;
    eprintln!("MEASURED ten dead waiters among ten live ones: {delay:?}");
    assert!(delay <= ms(2_500) + BUSY);
}

#[tokio::test]
async fn the_next_goes_on_as_soon_as_a_dead_holders_lease_ends() {
    let server = RedisServer::start();
    let ours = client(&server.url()).await;
    let process = spawn("hold", &server, 0);
    process.stderr().wait_for("held").await;
    let next = waiting(&ours);
    standing(&ours, 1, 1).await;
    sleep(ms(1_500)).await;
    process.signal(Signal::KILL);
    process.wait().await;
    let seen = ours.inspect(KEY).await.unwrap();
    assert_eq!(
        (seen.holders.len(), seen.waiters.len()),
        (1, 1),
        "kept until here"
    );
    let end = Instant::now() + seen.holders[0].expires_in;
    let lease = granted(next).await;
    let delay = after(Instant::now(), end);
    eprintln!("MEASURED the next runs {delay} ms after a dead holder's end");
    assert!(delay <= 300 + i64::try_from(BUSY.as_millis()).unwrap());
    // It was looked at a little before the end was reckoned.
    assert!(delay > -200, "not before the end");
    assert!(lease.token() > seen.holders[0].token);
    assert_eq!(lease.rejoined(), 0);
}

// ---- 10: nothing is left behind ----

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

#[tokio::test]
async fn dropped_futures_leave_nothing_behind() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let other = client(&server.url()).await;
    let ours = client(&proxy.url()).await;
    until("an end of what was warm", async || inboxes(&server) == 0).await;
    let before = tasks();
    proxy.delay(Direction::ToServer, ms(10));
    proxy.delay(Direction::ToClient, ms(10));

    let done = Arc::new(AtomicU64::new(0));
    let (contended, contending) = (other.mutex(KEY).unwrap(), done.clone());
    let contender = tokio::spawn(async move {
        while contending.load(Ordering::SeqCst) < 200 {
            let lease = contended.lock().await.unwrap();
            sleep(ms(15)).await;
            lease.release().await.unwrap();
            sleep(ms(5)).await;
        }
    });
    let mut all = JoinSet::new();
    let mut random = 0x5EED_u64;
    for task in 0..8 {
        let points: Vec<_> = (0..25)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                Duration::from_micros((random >> 33) % 150_000)
            })
            .collect();
        let (key, done) = (ours.mutex(KEY).unwrap(), done.clone());
        all.spawn(async move {
            let mut got = 0;
            for point in points {
                let lease = if task % 2 == 0 {
                    timeout(point, key.lock()).await.map(Result::unwrap).ok()
                } else {
                    timeout(point, key.try_lock())
                        .await
                        .ok()
                        .and_then(Result::unwrap)
                };
                got += u64::from(lease.is_some());
                drop(lease);
                done.fetch_add(1, Ordering::SeqCst);
            }
            got
        });
    }
    let mut got = 0;
    while let Some(task) = timeout(3 * LIMIT, all.join_next()).await.expect("an end") {
        got += task.unwrap();
    }
    eprintln!("{got} of 200 got the key, the others were dropped");
    assert!((1..200).contains(&got), "{got}: dropped at all points");
    soon("the contender's end", contender).await.unwrap();

    // Long before any TTL.
    standing(&other, 0, 0).await;
    until("no inbox", async || inboxes(&server) == 0).await;
    until("no task but those of the connections", async || {
        tasks() <= before
    })
    .await;
    standing(&other, 0, 0).await;
}

/// Also one that has sent several commands at once.
#[tokio::test]
async fn a_dropped_client_closes_its_connection() {
    let server = RedisServer::start();
    let ours = client(&server.url()).await;
    let (a, b) = tokio::join!(ours.inspect(KEY), ours.inspect(KEY));
    assert!(a.is_ok() && b.is_ok());
    drop(ours);
    until("no task", async || tasks() == 0).await;
    let clients: String = server.query(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().count(), 1, "only who asks: {clients}");
}

// ---- 11, 12: nobody there ----

/// Runs to its end, which is told.
async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let done = soon(what, work).await;
    eprintln!("MEASURED {what}: {:?}", started.elapsed());
    assert!(started.elapsed() < ms(10_000), "{what} in bounded time");
    done
}

#[tokio::test]
async fn a_server_that_died_for_good_lets_nobody_hang() {
    let server = RedisServer::start();
    let settings = Settings {
        waiter_ttl: ms(1_000),
        operation_timeout: ms(500),
        ..Settings::default()
    };
    let ours = client_with(&server.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;
    let lease = lock(&other).await;
    let kept = other.mutex("kept").unwrap().lock().await.unwrap();
    let (key, limited) = (ours.mutex(KEY).unwrap(), ours.mutex(KEY).unwrap());
    let next = waiting(&ours);
    standing(&other, 1, 1).await;
    let within = tokio::spawn(async move { limited.lock_within(ms(2_000)).await });
    standing(&other, 1, 2).await;
    server.kill();

    let (next, within) = tokio::join!(
        timed("lock() of one who waits", next),
        timed("lock_within(2 s) of one who waits", within),
    );
    let error = next.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    eprintln!("lock: {error}");
    let error = within.unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "{error}"
    );
    let error = timed("lock()", key.lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = timed("lock_within(200 ms)", key.lock_within(ms(200)))
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "{error}"
    );
    let error = timed("try_lock()", key.try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = timed("inspect()", ours.inspect(KEY)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(lease.is_valid(), "by its clock");
    let error = timed("release()", lease.release()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    eprintln!("release: {error}");
    let done = timed("shutdown(1 s)", other.shutdown(ms(1_000))).await;
    assert_eq!(done.released, 0);
    assert!(done.unconfirmed >= 1, "{done:?}");
    assert!(!kept.is_valid());
    timed("shutdown(1 s) of who waited", ours.shutdown(ms(1_000))).await;
}

#[tokio::test]
async fn a_server_that_is_not_up_is_told_in_one_sentence() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url();
    let options = RedisOptions::from_url(&url).unwrap();
    let error = soon("an answer", RedisStore::connect(options))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = soon("an answer", Client::builder().store(&url).connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    eprintln!("{text} / {:?}", error.hint());
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains(&server.address().to_string()), "{text}");
    assert!(
        !text.contains("Error") && !text.contains('{') && text.len() < 120,
        "{text}"
    );
    assert!(error.hint().is_some_and(|hint| hint.contains("running")));

    // Once it is up, all is well.
    server.start_again();
    let client = client(&url).await;
    assert_eq!(
        lock(&client).await.release().await.unwrap(),
        Released::StillOurs
    );
}

// ---- what is refused ----

/// Who may not subscribe is served all the same: it asks for its place with pauses, and does not
/// try to listen again.
#[tokio::test]
async fn a_client_that_may_not_listen_asks_from_time_to_time() {
    let rules = "on >secret ~* +@all resetchannels";
    let server = RedisServer::builder().user("deaf", rules).start();
    let deaf = client_with(&server.url_as("deaf", "secret"), ttl(ms(3_000))).await;
    let other = client(&server.url()).await;
    let first = lock(&other).await;
    let next = waiting(&deaf);
    standing(&other, 1, 1).await;
    let before = server.stats();
    sleep(ms(2_000)).await;
    let since = server.stats().since(&before);
    let asked = since.command("evalsha").calls;
    eprintln!("in 2 s it asked {asked} times");
    // A sixteenth of the time for which it has waited lies between two.
    assert!((1..60).contains(&asked), "{asked} times");
    assert_eq!(since.command("subscribe").rejected, 0);
    first.release().await.unwrap();
    let lease = granted(next).await;
    lease.release().await.unwrap();
}
