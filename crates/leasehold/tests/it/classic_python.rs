//! Locks shared with redis-py, in both directions, with real processes.
#![cfg(feature = "redis")]

use leasehold::{Loss, Mutex, RenewalPolicy};
use leasehold_testkit::expect::times_out;
use leasehold_testkit::redis_py::RedisPy;

use crate::redis_support::*;

const KEY: &str = "invoice-42";

struct Scene {
    server: RedisServer,
    client: Client,
    python: RedisPy,
}

impl Scene {
    async fn new() -> Self {
        Self::of(Program::Default).await
    }

    async fn of(program: Program) -> Self {
        let server = RedisServer::builder().program(program).start();
        let client = client(&server).await;
        let python = RedisPy::start(server.port());
        Self {
            server,
            client,
            python,
        }
    }

    fn mutex(&self) -> Mutex {
        self.client.mutex(KEY).unwrap()
    }

    async fn try_lock(&self) -> Option<Lease> {
        self.mutex().try_lock().await.unwrap()
    }
}

async fn client(server: &RedisServer) -> Client {
    let url = format!("{}?layout=classic", server.url());
    leasehold::connect(url).await.unwrap()
}

async fn each_excludes_the_other(program: Program) {
    let mut scene = Scene::of(program).await;
    assert_eq!(scene.python.ask("lock invoice-42 30 0"), "True");
    assert!(scene.try_lock().await.is_none());
    let seen = scene.client.inspect(KEY).await.unwrap();
    assert!(seen.holders[0].owner.is_unknown());
    assert_eq!(scene.python.ask("owned invoice-42"), "True", "untouched");
    assert_eq!(scene.python.ask("release invoice-42"), "None");

    let lease = scene.try_lock().await.unwrap();
    assert_eq!(scene.python.ask("lock invoice-42 30 0"), "False");
    assert_eq!(scene.python.ask("lock invoice-42 30 0.1"), "False");
    assert_eq!(scene.python.ask("locked invoice-42"), "True");
    assert!(lease.is_valid());
    give_back(lease).await;
    assert_eq!(scene.python.ask("locked invoice-42"), "False");
    assert_eq!(scene.python.ask("lock invoice-42 30 0"), "True");
}

tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    fn each_excludes_the_other_on_redis() { each_excludes_the_other(Program::Default) }
    fn each_excludes_the_other_on_valkey() { each_excludes_the_other(Program::Valkey) }
    fn each_excludes_the_other_on_the_oldest_redis() {
        each_excludes_the_other(Program::OldestRedis)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_it_from_the_other() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.python.ask("lock invoice-42 30 0"), "True");
    let waiting = waiting(&scene.client, KEY);
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    assert_eq!(scene.python.ask("release invoice-42"), "None");
    let released = Instant::now();
    let lease = granted(waiting).await;
    let after = released.elapsed();
    eprintln!("a waiting task had it {after:?} after the release");

    scene.python.begin("lock invoice-42 30 20");
    sleep(Duration::from_millis(100)).await;
    let _ = lease.release().await.unwrap();
    assert_eq!(scene.python.answer(), "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_redis_py_that_has_lapsed_is_ours_and_stays_ours() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.python.ask("lock invoice-42 0.3 0"), "True");
    let lease = soon("the key", scene.mutex().lock()).await.unwrap();
    assert_eq!(scene.python.ask("owned invoice-42"), "False");
    for request in [
        "extend invoice-42 10",
        "reacquire invoice-42",
        "release invoice-42",
    ] {
        assert_eq!(scene.python.ask(request), "LockNotOwnedError", "{request}");
    }
    lease.renew().await.unwrap();
    give_back(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_redis_py_took_over_is_lost() {
    let mut scene = Scene::new().await;
    let brief = scene.mutex().with_ttl(Duration::from_millis(300));
    let manual = brief.clone().with_renewal(RenewalPolicy::Manual);
    let lease = soon("the key", manual.lock()).await.unwrap();
    // Its validity ends before redis-py can have it.
    assert_eq!(scene.python.ask("lock invoice-42 30 20"), "True");
    assert!(!lease.is_valid());
    fails(lease.renew().await, ErrorKind::Lost, &[]);
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyGone);
    assert_eq!(scene.python.ask("owned invoice-42"), "True", "untouched");
    assert_eq!(scene.python.ask("release invoice-42"), "None");

    // Somebody deletes a lock that is kept, and redis-py takes it: the next renewal says so.
    let kept = brief.with_ttl(Duration::from_secs(2));
    let lease = soon("the key", kept.lock()).await.unwrap();
    scene.server.command(&["DEL", KEY]);
    assert_eq!(scene.python.ask("lock invoice-42 30 0"), "True");
    assert_eq!(soon("the loss", lease.lost()).await, Loss::Gone);
    drop(lease);
    let extended = scene.python.ask("extend invoice-42 30");
    assert_eq!(extended, "True", "untouched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_a_timeout_is_shown_as_such_and_can_be_broken() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.python.ask("lock invoice-42 - 0"), "True");
    let lock = scene.mutex();
    times_out(async |limit| lock.lock_within(limit).await).await;
    let seen = scene.client.inspect(KEY).await.unwrap();
    assert_eq!(seen.holders[0].expires_in, Duration::MAX);
    let broken = scene.client.break_key(KEY).await.unwrap();
    assert_eq!(broken.holders, 1);
    assert!(broken.token.is_none());
    assert_eq!(scene.python.ask("release invoice-42"), "LockNotOwnedError");
    assert!(scene.try_lock().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_both_add_to_loses_nothing() {
    const TIMES: usize = 40;
    let scene = Scene::new().await;
    let mut pythons = [scene.python, RedisPy::start(scene.server.port())];
    for python in &mut pythons {
        python.begin(&format!("count {KEY} counter {TIMES}"));
    }
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = client(&scene.server).await;
        let redis = redis::Client::open(scene.server.url()).unwrap();
        let mut redis = redis.get_multiplexed_async_connection().await.unwrap();
        tasks.spawn(async move {
            let lock = client.mutex(KEY).unwrap();
            for _ in 0..TIMES {
                let lease = lock.lock().await.unwrap();
                let get = redis::cmd("GET").arg("counter").to_owned();
                let seen: Option<u64> = get.query_async(&mut redis).await.unwrap();
                sleep(Duration::from_micros(500)).await;
                let mut set = redis::cmd("SET");
                set.arg("counter").arg(seen.unwrap_or(0) + 1);
                let () = set.query_async(&mut redis).await.unwrap();
                assert_eq!(lease.release().await.unwrap(), Released::Held);
            }
        });
    }
    let counted = tokio::task::spawn_blocking(move || pythons.map(|mut python| python.answer()));
    let counted = timeout(LIMIT * 3, counted).await.unwrap().unwrap();
    assert_eq!(counted, ["counted"; 2]);
    timeout(LIMIT * 3, tasks.join_all()).await.unwrap();
    assert_eq!(scene.server.query::<usize>(&["GET", "counter"]), 5 * TIMES);
}
