//! Stress tests of runs: cancelled waiters, lost connections, long queues.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use leasehold::Mutex;

const SOON: Duration = Duration::from_secs(20);

/// For how long there is a crowd.
const WHILE: Duration = Duration::from_secs(3);

async fn client(server: &RedisServer) -> Client {
    // So long a wait that nothing is found by a renewal in time.
    let long = Duration::from_secs(300);
    let settings = Settings::default().with_operation_timeout(SOON);
    client_with(&server.url(), settings.with_ttl(long).with_waiter_ttl(long)).await
}

/// Who sees that one holds at a time, under a higher token than all before.
#[derive(Default)]
struct Witness {
    holding: AtomicBool,
    token: AtomicU64,
    grants: AtomicU64,
}

impl Witness {
    fn enters(&self, lease: &Lease) {
        assert!(!self.holding.swap(true, Ordering::SeqCst), "two hold");
        let before = self.token.swap(lease.token().get(), Ordering::SeqCst);
        assert!(before < lease.token().get(), "{before} {:?}", lease.token());
        self.grants.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits in one of the ways in which a caller can, and may give up at any moment.
async fn perhaps(lock: &Mutex, dice: &mut Dice) -> Option<Lease> {
    let limit = Duration::from_micros(dice.roll(6_000));
    match dice.roll(5) {
        0 | 1 => Some(timeout(SOON, lock.lock()).await.unwrap().unwrap()),
        2 => timeout(limit, lock.lock()).await.ok().map(Result::unwrap),
        3 => lock.lock_within(limit).await.ok(),
        _ => lock.try_lock().await.unwrap(),
    }
}

async fn a_crowd(server: &RedisServer) -> u64 {
    let clients = [client(server).await, client(server).await];
    let (begin, witness) = (Instant::now(), Arc::new(Witness::default()));
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let lock = clients[usize::from(task % 8 == 7)].mutex("k").unwrap();
        let (witness, mut dice) = (witness.clone(), Dice(task));
        tasks.spawn(async move {
            while begin.elapsed() < WHILE {
                let Some(lease) = perhaps(&lock, &mut dice).await else {
                    continue;
                };
                witness.enters(&lease);
                if dice.one_in(2) {
                    sleep(Duration::from_micros(dice.roll(500))).await;
                }
                witness.holding.store(false, Ordering::SeqCst);
                match dice.roll(3) {
                    0 => drop(lease),
                    1 => drop(tokio::spawn(lease.release())),
                    _ => drop(lease.release().await.unwrap()),
                }
            }
        });
    }
    tasks.join_all().await;
    witness.grants.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_cancelled_the_key_goes_on() {
    let grants = a_crowd(&RedisServer::start()).await;
    assert!(grants > 100, "{grants}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_connection_is_lost_one_holds_at_a_time() {
    let server = Arc::new(RedisServer::start());
    let cuts = tokio::spawn({
        let server = server.clone();
        async move {
            loop {
                for kind in ["pubsub", "normal"] {
                    sleep(Duration::from_millis(150)).await;
                    server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
                }
            }
        }
    });
    let grants = a_crowd(&server).await;
    cuts.abort();
    assert!(grants > 50, "{grants}");
}

/// A run has 1,024 claims, and one step adds 64 to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_longer_than_a_run_is_served() {
    let server = RedisServer::start();
    let (crowded, other) = (client(&server).await, client(&server).await);
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let mut tasks = JoinSet::new();
    let mut given_up = Vec::new();
    for number in 0..1_500 {
        let lock = crowded.mutex("k").unwrap();
        let task = tasks.spawn(async move { drop(lock.lock().await.unwrap()) });
        if number % 2 == 1 {
            given_up.push(task);
        }
    }
    in_line(&other, "k", 1_500).await;
    let _ = held.release().await.unwrap();
    for task in given_up {
        task.abort();
        yield_now().await;
    }
    let all = async {
        while let Some(task) = tasks.join_next().await {
            assert!(task.is_ok() || task.is_err_and(|error| error.is_cancelled()));
        }
    };
    timeout(3 * SOON, all).await.unwrap();
}

/// They have one inbox, and each knows its own claims only.
#[tokio::test]
async fn two_clients_on_one_store_pass_a_key_on() {
    let server = RedisServer::start();
    let store: Arc<dyn LockStore> = Arc::new(store(&server).await);
    let (one, two) = (client_of(store.clone()).await, client_of(store).await);
    let (held, waiter) = contended(&one, &two, "k").await;
    let token = held.token();
    // Long before the hold would lapse.
    let next = timeout(Duration::from_secs(20), hand_over(held, waiter)).await;
    assert!(next.expect("its turn").token() > token);
}

/// Threads that drive a runtime of their own only while they lock.
#[test]
fn a_runtime_that_nobody_drives_holds_up_nobody_else() {
    let server = RedisServer::start();
    let home = tokio::runtime::Runtime::new().unwrap();
    let client = home.block_on(client(&server));
    let (done, all_done) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..12)
        .map(|thread| {
            let (client, done) = (client.clone(), done.clone());
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let work = move || {
                let runtime = runtime();
                let lock = client.mutex(format!("t{thread}")).unwrap();
                for _ in 0..40 {
                    let lease = runtime.block_on(lock.lock()).unwrap();
                    let _ = runtime.block_on(lease.release()).unwrap();
                }
                done.send(()).unwrap();
                // It is there, and stands still.
                let _ = ends.recv();
            };
            (end, std::thread::spawn(work))
        })
        .collect();
    for _ in &threads {
        all_done.recv_timeout(SOON).unwrap();
    }
    home.block_on(async {
        for round in 0..20 {
            let lock = client.mutex(format!("r{round}")).unwrap();
            let lease = timeout(SOON, lock.lock()).await.unwrap().unwrap();
            let _ = lease.release().await.unwrap();
        }
    });
    for (end, thread) in threads {
        drop(end);
        thread.join().unwrap();
    }
}
