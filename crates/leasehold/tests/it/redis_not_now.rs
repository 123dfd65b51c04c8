//! A server that cannot do it now, and says so: whoever waits goes on, whoever does not is told.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use crate::redlock_support::Set;
use leasehold::observe::{Fact, ObservedClaim, Observer, StoreRequest};
use leasehold::{ClientBuilder, Error, LockOptions, Retry};
use leasehold_testkit::deployment::Cluster;
use tokio::sync::watch;

const SOON: Duration = Duration::from_secs(60);

/// How often requests for each key have failed, and how.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<watch::Sender<BTreeMap<String, Vec<ErrorKind>>>>);

impl Observer for Refusals {
    fn observe(&self, _: &ObservedClaim, _: Fact) {}

    fn request(&self, request: StoreRequest<'_>) {
        let (Some(kind), Some(error)) = (request.failed, request.error) else {
            return;
        };
        assert_eq!(kind, error.kind());
        let key = request.key.to_string();
        self.0
            .send_modify(|seen| seen.entry(key).or_default().push(kind));
    }
}

impl Refusals {
    fn of(&self, key: &str) -> Vec<ErrorKind> {
        self.0.borrow().get(key).cloned().unwrap_or_default()
    }

    /// Until so many requests for this key have failed.
    pub(crate) async fn until(&self, key: &str, count: usize) {
        let mut seen = self.0.subscribe();
        let enough = seen.wait_for(|seen| seen.get(key).is_some_and(|all| all.len() >= count));
        soon(&format!("{key} is refused"), enough).await.unwrap();
    }
}

/// A client, and how its requests have failed.
pub(crate) async fn client(url: &str) -> (Client, Refusals) {
    let refusals = Refusals::default();
    (builder(url, &refusals).connect().await.unwrap(), refusals)
}

fn builder(url: &str, refusals: &Refusals) -> ClientBuilder {
    let settings = Settings::default().with_ttl(Duration::from_secs(60));
    let settings = settings.with_waiter_ttl(Duration::from_secs(1));
    let builder = Client::builder().store(url).settings(settings);
    builder.observer(refusals.clone())
}

/// The answer to whoever does not wait.
#[track_caller]
fn told_at_once<T: std::fmt::Debug>(answer: Result<T, Error>, why: &str) {
    let error = fails(answer, ErrorKind::Unavailable, &[why]);
    let told = error.hint().is_some() && error.retry_after().is_some();
    assert!(told, "{error:?}");
}

/// Every way to wait, from before the server says no and from after that, outlives it.
async fn outlived(server: &RedisServer, url: &str, why: &str, ways: [&[&str]; 2]) {
    let [enter, leave] = ways;
    let native = !url.contains("classic");
    let (holder, _) = client(url).await;
    let (waiter, refusals) = client(url).await;
    let held = holder.mutex("held").unwrap().lock().await.unwrap();
    let election = holder.election("lead").unwrap();
    let leadership = election.campaign("").await.unwrap();
    let mut leaders = election.observe();
    assert!(leaders.next().await.unwrap().is_some());

    let mut waiting = JoinSet::new();
    let lock = waiter.mutex("held").unwrap();
    waiting.spawn(async move { lock.lock().await.map(drop) });
    let follower = waiter.election("lead").unwrap();
    waiting.spawn(async move { follower.campaign("").await.map(drop) });
    server.command(enter);
    // What waited before, and what begins now.
    let ways_to_wait = ["lock", "within", "retrying", "campaign"];
    for key in ways_to_wait {
        let lock = waiter.mutex(key).unwrap();
        let election = waiter.election(key).unwrap();
        waiting.spawn(async move {
            match key {
                "lock" => lock.lock().await.map(drop),
                "within" => lock.lock_within(SOON).await.map(drop),
                "retrying" => {
                    let lock = lock.retrying(Retry::Fixed(Duration::from_millis(10)));
                    lock.lock().await.map(drop)
                }
                _ => election.campaign("").await.map(drop),
            }
        });
    }
    if native {
        let both = waiter.multi(["one", "other"]).unwrap();
        waiting.spawn(async move { both.lock().await.map(drop) });
        refusals.until("one", 3).await;
    }
    // In the classic layout a key that others hold is only read.
    let in_line = ["held", "lead"].into_iter().filter(|_| native);
    for key in ways_to_wait.into_iter().chain(in_line) {
        refusals.until(key, 2).await;
        let mut seen = refusals.of(key).into_iter();
        assert!(seen.all(|it| it == ErrorKind::Unavailable), "{key}");
    }
    told_at_once(waiter.mutex("free").unwrap().try_lock().await, why);
    if native {
        told_at_once(waiter.multi(["x", "y"]).unwrap().try_lock().await, why);
    }
    let within = waiter.mutex("free").unwrap();
    told_at_once(within.lock_within(Duration::from_millis(50)).await, why);
    assert!(held.is_valid() && leadership.is_leader(), "{why}");

    server.command(leave);
    assert_eq!(held.release().await.unwrap(), Released::Held);
    assert_eq!(leadership.resign().await.unwrap(), Released::Held);
    while let Some(granted) = timeout(SOON, waiting.join_next()).await.expect(why) {
        granted.unwrap().expect(why);
    }
    // Told once at most why nothing was heard.
    if let Err(error) = timeout(SOON, leaders.next()).await.expect(why) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        timeout(SOON, leaders.next()).await.expect(why).unwrap();
    }
}

const NO_REPLICAS: [&[&str]; 2] = [
    &["CONFIG", "SET", "min-replicas-to-write", "1"],
    &["CONFIG", "SET", "min-replicas-to-write", "0"],
];

#[tokio::test]
async fn too_few_replicas_are_waited_for() {
    let server = RedisServer::start();
    let why = "too few replicas";
    for url in [server.url(), format!("{}?layout=classic", server.url())] {
        outlived(&server, &url, why, NO_REPLICAS).await;
    }
    // It says so within another error.
    let oldest = RedisServer::builder().program(Program::OldestRedis).start();
    outlived(&oldest, &oldest.url(), why, NO_REPLICAS).await;
}

/// Of each program, which say it in different ways.
#[tokio::test]
async fn a_majority_that_takes_no_writes_is_waited_for() {
    let set = Set::start(3, "").await;
    let (waiter, refusals) = client(&set.url()).await;
    let order = |command| set.servers.iter().for_each(|it| drop(it.command(command)));
    order(NO_REPLICAS[0]);
    let lock = waiter.mutex("lock").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    let tried = waiter.mutex("try").unwrap();
    told_at_once(tried.try_lock().await, "too few replicas");
    refusals.until("lock", 2).await;
    order(NO_REPLICAS[1]);
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    // Nothing is left of the try.
    let lease = timeout(SOON, tried.lock()).await.unwrap().unwrap();
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_replica_is_waited_for_until_it_is_the_primary() {
    let server = RedisServer::start();
    let ways: [&[&str]; 2] = [
        &["REPLICAOF", "127.0.0.1", "1"],
        &["REPLICAOF", "NO", "ONE"],
    ];
    let why = "read-only replica";
    outlived(&server, &server.url(), why, ways).await;
    // Nor does a client begin there.
    server.command(ways[0]);
    let error = fails(connect(&server.url()).await, ErrorKind::Unavailable, &[why]);
    assert!(error.retry_after().is_some(), "{error:?}");
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_waited_for() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    let directory: Vec<String> = server.query(&["CONFIG", "GET", "dir"]);
    std::fs::remove_dir_all(&directory[1]).unwrap();
    server.command(&["BGSAVE"]);
    let failed = "rdb_last_bgsave_status:err";
    until_answered(&server, &["INFO", "persistence"], failed).await;
    let ways: [&[&str]; 2] = [
        &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"],
        &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"],
    ];
    outlived(&server, &server.url(), "cannot write its data", ways).await;
}

/// For longer than its place is kept.
#[tokio::test]
async fn a_claim_that_has_lost_its_place_meanwhile_joins_again() {
    let server = RedisServer::start();
    let (holder, _) = client(&server.url()).await;
    let (waiter, refusals) = client(&server.url()).await;
    let (held, waits) = contended(&holder, &waiter, "k").await;
    server.command(NO_REPLICAS[0]);
    in_line(&holder, "k", 0).await;
    refusals.until("k", refusals.of("k").len() + 1).await;
    server.command(NO_REPLICAS[1]);
    in_line(&holder, "k", 1).await;
    assert_eq!(hand_over(held, waits).await.rejoined(), 1);
}

/// The claim of a process that has crashed is still there when it is over.
#[tokio::test]
async fn a_recovery_is_tried_until_it_is_answered() {
    let server = RedisServer::start();
    let (holder, _) = client(&server.url()).await;
    let (waiter, refusals) = client(&server.url()).await;
    let crashed = holder.mutex("k").unwrap().lock().await.unwrap();
    let parts = crashed.parts().unwrap();
    let lock = waiter.mutex("k").unwrap();
    server.command(NO_REPLICAS[0]);
    told_at_once(lock.try_recover(&parts).await, "too few replicas");
    let within = LockOptions::new().within(Duration::from_millis(50));
    told_at_once(lock.recover(&parts, within).await, "too few replicas");
    let so_far = refusals.of("k").len();
    let recovering = tokio::spawn(async move { lock.recover(&parts, LockOptions::new()).await });
    refusals.until("k", so_far + 2).await;
    server.command(NO_REPLICAS[1]);
    let recovered = timeout(SOON, recovering).await.unwrap().unwrap().unwrap();
    assert!(!recovered.is_new);
}

/// Not by a new client, for which it may be the wrong file.
#[tokio::test]
async fn a_password_that_changes_is_waited_for_by_who_knew_the_one_before() {
    let server = RedisServer::builder().password("one").start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "one").unwrap();
    let url = format!("redis://{}/", server.address());
    let (refusals, others) = (Refusals::default(), Refusals::default());
    let open = async |refusals| builder(&url, refusals).password_file(&file).connect().await;
    let holder = open(&others).await.unwrap();
    let waiter = open(&refusals).await.unwrap();
    let (held, waits) = contended(&holder, &waiter, "k").await;
    server.command(&["CONFIG", "SET", "requirepass", "two"]);
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    refusals.until("k", 3).await;
    fails(open(&others).await, ErrorKind::Refused, &[]);
    std::fs::write(&file, "two").unwrap();
    answered("a renewal", async || held.renew().await).await;
    assert!(hand_over(held, waits).await.is_valid());
}

/// By a client of a cluster also at a node to which it has had no connection yet.
#[tokio::test]
async fn a_password_that_changes_is_waited_for_at_each_node() {
    let server = RedisServer::builder().password("one");
    let cluster = Cluster::builder().server(server).start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "one").unwrap();
    let seed = cluster.nodes()[0].address();
    let url = format!("redis-cluster://{seed}/");
    let refusals = Refusals::default();
    let client = builder(&url, &refusals).password_file(&file);
    let client = client.connect().await.unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "requirepass", "two"]);
    }
    let is_elsewhere = |name: &String| {
        let slot = cluster.slot_of(&format!("leasehold:lock:{name}"));
        cluster.owner_of(slot).address() != seed
    };
    let mut names = (0..).map(|number| format!("k{number}"));
    let name = names.find(is_elsewhere).unwrap();
    let waits = waiting(&client, &name);
    refusals.until(&name, 1).await;
    std::fs::write(&file, "two").unwrap();
    let lease = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    assert!(lease.is_valid());
}

/// The other side: nobody waits for what stays.
#[tokio::test]
async fn what_stays_ends_the_waiting_at_once() {
    let rights = "on >secret ~* &* +@all";
    let server = RedisServer::builder().user("bob", rights).start();
    let (holder, _) = client(&server.url()).await;
    let (waiter, refusals) = client(&server.url_as("bob", "secret")).await;
    let (held, waits) = contended(&holder, &waiter, "k").await;
    let mut leaders = waiter.election("lead").unwrap().observe();
    assert!(leaders.next().await.unwrap().is_none());
    server.command(&["ACL", "SETUSER", "bob", "-@all", "+ping"]);
    let ended = timeout(SOON, waits).await.unwrap().unwrap();
    fails(ended, ErrorKind::Refused, &["may not do this"]);
    // The claim and, since then, its release.
    assert_eq!(refusals.of("k")[0], ErrorKind::Refused);
    let leads = holder.election("lead").unwrap().campaign("").await.unwrap();
    for _ in 0..2 {
        let refused = timeout(SOON, leaders.next()).await;
        let refused = refused.expect("it is said each time");
        fails(refused, ErrorKind::Refused, &[]);
    }
    drop((held, leads));
}
