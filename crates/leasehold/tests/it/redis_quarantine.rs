//! `restart=quarantine`: servers that lose data, and clients that are not notified.
#![cfg(feature = "redis")]

use crate::quarantine_support::{Contention, Witness, retry_after};
use crate::redis_support::case::{Case, suites};
use crate::redis_support::{self, *};
use leasehold::{LeaseState, Owner, Retry};
use leasehold_testkit::deployment::Sentinels;

const SOON: Duration = Duration::from_secs(120);

/// What the clients of these tests say of a restart.
const SHORT: &str = "restart=quarantine&max_ttl=1s";
const QUARANTINE: Duration = Duration::from_secs(2);

fn url(server: &RedisServer, parameters: &str) -> String {
    format!("{}?{parameters}", server.url())
}

async fn init(url: &str) -> Duration {
    let options = RedisOptions::from_url(url).unwrap();
    RedisStore::initialise(options).await.unwrap().left()
}

async fn client(url: &str) -> Client {
    client_with(url, Duration::from_millis(900)).await
}

async fn client_with(url: &str, ttl: Duration) -> Client {
    redis_support::client_with(url, Settings::default().with_ttl(ttl)).await
}

/// A server whose clients say this of a restart, and its URL for them.
async fn new_server(parameters: &str) -> (RedisServer, String) {
    let server = RedisServer::start();
    let url = url(&server, parameters);
    assert_eq!(init(&url).await, Duration::ZERO);
    (server, url)
}

// ---- the contract ----

type Shared = RedisServer;

fn start(program: Program) -> Shared {
    RedisServer::builder().program(program).start()
}

fn fresh(server: &'static Shared) -> Case {
    let case = Case::at(&server.url(), [server]);
    case.with("restart=quarantine").marked()
}

suites! {
    redis: Default { contract: [contract] fresh, facade: [quick] fresh }
    valkey: Valkey { contract: [contract] fresh }
    oldest: OldestRedis { contract: [contract] fresh }
}

// ---- what users see ----

#[tokio::test]
async fn a_server_that_may_have_forgotten_says_so_and_grants_when_it_is_over() {
    let (server, url) = new_server(SHORT).await;
    let (a, b) = (client(&url).await, client(&url).await);
    let lease = a.mutex("k").unwrap().lock().await.unwrap();
    let before = lease.token();
    server.kill();
    server.start_again();
    let restarted = Instant::now();

    let lock = b.mutex("k").unwrap();
    let refused = timeout(SOON, lock.try_lock()).await.unwrap().unwrap_err();
    assert!(retry_after(&refused) <= QUARANTINE, "{refused}");
    says(&refused, ["may have lost data"]);
    let refused = b.multi(["k", "l"]).unwrap().try_lock().await.unwrap_err();
    assert!(retry_after(&refused) <= QUARANTINE, "{refused}");
    assert!(!init(&url).await.is_zero(), "it is not new");

    let retrying = b.mutex("other").unwrap().retrying(Retry::default());
    let (c, many) = (client(&url).await, client(&url).await);
    let third = c.mutex("k").unwrap();
    let many = many.multi(["m", "n"]).unwrap();
    let granted = async {
        let (next, other, both) = tokio::join!(lock.lock(), retrying.lock(), many.lock());
        let after = restarted.elapsed();
        let _ = other.unwrap().release().await.unwrap();
        let _ = both.unwrap().release().await.unwrap();
        (next.unwrap(), after)
    };
    let (next, after) = timeout(SOON, granted).await.unwrap();
    eprintln!("granted {after:?} after the restart");
    assert!(after > QUARANTINE - Duration::from_millis(100), "{after:?}");
    // Asked for when it is over, by a timer: nothing happens at the server.
    assert!(after < QUARANTINE + Duration::from_secs(1), "{after:?}");
    assert!(next.token() > before);
    assert!(matches!(lease.state(), LeaseState::Lost(_)));
    // Whoever comes now finds it as usual.
    assert!(third.try_lock().await.unwrap().is_none());
    let _ = next.release().await.unwrap();
    let _ = third.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn what_has_survived_is_kept_and_handed_on_when_it_is_over() {
    let server = RedisServer::builder().persistent().start();
    // Long enough for a busy machine to renew it over a restart.
    let (ttl, longest) = (Duration::from_millis(2_700), Duration::from_secs(3));
    let url = url(&server, "restart=quarantine&max_ttl=3s");
    assert_eq!(init(&url).await, Duration::ZERO);
    let (a, b) = (client_with(&url, ttl).await, client_with(&url, ttl).await);
    let lease = a.mutex("k").unwrap().lock().await.unwrap();
    let owner = a.reentrant("r", &Owner::new()).unwrap();
    let outer = owner.lock().await.unwrap();
    server.restart(leasehold_testkit::server::Data::Keep);
    let restarted = Instant::now();
    // Only its own client knows that it has not released it since.
    let (heir, parts) = (b.mutex("k").unwrap(), lease.parts().unwrap());
    let refused = timeout(SOON, heir.try_recover(&parts)).await.unwrap();
    assert!(retry_after(&refused.unwrap_err()) <= 2 * longest);
    let waits = waiting(&b, "k");
    // Renewed several times meanwhile; the inner claim waits behind its own owner.
    let inner = timeout(SOON, owner.lock()).await.unwrap().unwrap();
    assert!(restarted.elapsed() > 2 * longest - Duration::from_millis(300));
    assert_eq!(lease.state(), LeaseState::Held);
    assert_eq!(inner.token(), outer.token());
    let _ = inner.release().await.unwrap();
    let _ = outer.release().await.unwrap();
    give_back(hand_over(lease, waits).await).await;
}

#[tokio::test]
async fn a_server_that_was_flushed_is_one_that_has_forgotten() {
    let (server, url) = new_server(SHORT).await;
    let client = client(&url).await;
    use_once(&client, "k").await;
    server.command(&["FLUSHALL"]);
    retry_after(&client.mutex("k").unwrap().try_lock().await.unwrap_err());
}

#[tokio::test]
async fn clients_that_disagree_are_refused() {
    let (server, ours) = new_server(SHORT).await;
    let _client = client(&ours).await;
    for other in [
        "restart=quarantine",
        "restart=quarantine&max_ttl=1s&quarantine=3s",
    ] {
        let connected = leasehold::connect(&url(&server, other)).await;
        fails(connected, ErrorKind::Refused, &["other settings"]);
    }
    // Moved, and closed for the longer of both.
    let left = init(&url(&server, "restart=quarantine&max_ttl=2s")).await;
    assert_eq!(left, Duration::from_secs(4));
    // A lease may not outlive the quarantine.
    let server = RedisServer::start();
    let client = client_with(&url(&server, SHORT), Duration::from_secs(5)).await;
    let tried = client.mutex("k").unwrap().try_lock().await;
    fails(tried, ErrorKind::Invalid, &["longer than"]);
}

#[tokio::test]
async fn only_a_server_whose_clients_say_so_is_marked() {
    let server = RedisServer::start();
    for url in [server.url(), "redis-cluster://127.0.0.1:1/".to_owned()] {
        let marked = Client::builder().store(url).initialise().await;
        fails(marked, ErrorKind::Invalid, &[]);
    }
}

/// Nobody would notice that it has restarted.
#[tokio::test]
async fn a_server_that_does_not_say_which_process_it_is_is_refused() {
    let rights = "on >secret ~leasehold:* &leasehold:* +@all -info";
    let server = RedisServer::builder().user("alice", rights).start();
    let url = format!("{}?{SHORT}", server.url_as("alice", "secret"));
    let connected = leasehold::connect(&url).await;
    fails(connected, ErrorKind::Unsupported, &["run id"]);
}

// ---- crashes ----

/// A server without persistence that is killed again and again.
async fn killed_again_and_again(parameters: &str, seed: u64, kills: u64) -> Arc<Witness> {
    let server = RedisServer::start();
    let url = url(&server, parameters);
    if parameters.contains("quarantine") {
        assert_eq!(init(&url).await, Duration::ZERO);
    }
    let contention = Contention::start(&url, 6, seed).await;
    let mut dice = Dice(seed);
    for _ in 0..kills {
        more_grants(&contention, 2, "it grants again").await;
        sleep(dice.millis(0, 400)).await;
        server.kill();
        if dice.roll(2) == 0 {
            sleep(dice.millis(0, 200)).await;
        }
        server.start_again();
    }
    contention.stop().await
}

/// Waits until so many are granted from now on.
async fn more_grants(contention: &Contention, count: usize, what: &str) {
    let wanted = contention.witness.grants() + count;
    let more = async {
        while contention.witness.grants() < wanted {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, more).await.expect(what);
}

/// One held at a time, and the server has refused meanwhile.
fn assert_quarantined(witness: &Witness) {
    let quarantined = witness.quarantined.load(Ordering::Acquire);
    eprintln!("{} grants, {quarantined} refusals", witness.grants());
    assert_eq!(witness.double_grants(), 0);
    witness.assert_tokens_rise();
    assert!(quarantined > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_never_let_two_clients_hold() {
    let schedules = (1..=4).map(|seed| killed_again_and_again(SHORT, seed, 3));
    for witness in futures_util::future::join_all(schedules).await {
        assert_quarantined(&witness);
    }
}

/// The schedules above find it where nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_quarantine_crashes_do() {
    let mut doubled = 0;
    // One round shows it, but for a machine that is so busy that little happens in it.
    for first in [1, 5, 9, 13, 17, 21] {
        let seeds = first..first + 4;
        let schedules = seeds.map(|seed| killed_again_and_again("restart=trust", seed, 3));
        for witness in futures_util::future::join_all(schedules).await {
            doubled += witness.double_grants();
            witness.assert_tokens_rise();
        }
        eprintln!("{doubled} times two held at once");
        if doubled > 0 {
            return;
        }
    }
    panic!("no two held at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_overs_never_let_two_clients_hold() {
    let server = RedisServer::builder()
        .config("min-replicas-to-write", "1")
        .config("min-replicas-max-lag", "10");
    let sentinels = Sentinels::builder().server(server).start();
    sentinels.wait_for_replicas().await;
    let url = format!("{}?{SHORT}", sentinels.url());
    assert_eq!(init(&url).await, Duration::ZERO);
    let contention = Contention::start(&url, 6, 77).await;
    more_grants(&contention, 3, "grants at first").await;
    let old = sentinels.primary();
    old.kill();
    sentinels.wait_for_another_primary(old).await;
    more_grants(&contention, 3, "grants after the death of the primary").await;
    old.start_again();
    sentinels.wait_for_replicas().await;
    sentinels.fail_over().await;
    more_grants(&contention, 3, "grants after a planned fail-over").await;
    let witness = contention.stop().await;
    assert_quarantined(&witness);
}
