//! The whole client on the memory store: guards, the watchdog, what leaves in the
//! background, and pushes.
//!
//! Time stands still but where a case moves it. So whatever is lost (a wake-up, a push,
//! a claim that was dropped) leaves somebody waiting for ever, which the scheduler
//! reports as a deadlock; and two who hold at once are seen.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod watched;

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold::store::memory::MemoryStore;
use leasehold::{Client, Lease, Retry};
use shuttle::Runner;
use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use watched::Watched;

/// Longer than the watchdog stays when there is nothing to do.
const LONG: Duration = Duration::from_millis(1_100);

/// Tries random orders, and those with few switches: each finds what the other misses.
fn explore(case: impl AsyncFn(&mut World) + Copy + Send + Sync + 'static) {
    explore_more(1, case);
}

/// So many times as many orders.
fn explore_more(times: usize, case: impl AsyncFn(&mut World) + Copy + Send + Sync + 'static) {
    let runs = std::env::var("LEASEHOLD_INTERLEAVINGS").unwrap_or_else(|_| "2000".to_owned());
    let runs: usize = runs.parse().expect("a number of orders");
    assert!(runs > 0, "no orders");
    let runs = runs * times;
    let mut config = shuttle::Config::new();
    // The client's futures lie on it, one within the other.
    config.stack_size = 512 * 1024;
    let run = move || {
        block_on(async {
            let mut world = World::new();
            case(&mut world).await;
            world.end().await;
        });
    };
    Runner::new(RandomScheduler::new(runs), config.clone()).run(run);
    Runner::new(PctScheduler::new(3, runs), config).run(run);
}

/// A store, and who uses it.
struct World {
    store: MemoryStore,
    clients: Vec<Weak<Watched>>,
}

impl World {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            clients: Vec::new(),
        }
    }

    async fn client(&mut self) -> Client {
        self.client_of(true).await
    }

    /// Of a store that keeps waiters in line, or does not.
    async fn client_of(&mut self, queueing: bool) -> Client {
        let store = Arc::new(Watched::new(self.store.client(), queueing));
        self.clients.push(Arc::downgrade(&store));
        let client = Client::builder().with_store(store);
        client.connect().await.unwrap()
    }

    /// With its clients gone, the key is free without waiting, and their watchdogs end
    /// in time.
    async fn end(mut self) {
        let probe = self.client().await;
        drop(lock(&probe).await);
        drop(probe);
        while self.clients.iter().any(|store| store.strong_count() > 0) {
            yield_now().await;
            leasehold::sync::advance(LONG);
        }
    }
}

async fn lock(client: &Client) -> Lease {
    client.mutex("k").unwrap().lock().await.unwrap()
}

/// A task that takes a key, and lets go of it at once.
fn visits(client: &Client, key: &'static str) -> JoinHandle<()> {
    let mutex = client.mutex(key).unwrap();
    spawn(async move { drop(mutex.lock().await.unwrap()) })
}

/// Sees that nobody holds beside another, and that tokens rise.
#[derive(Default)]
struct Guarded {
    inside: AtomicUsize,
    last: AtomicU64,
}

impl Guarded {
    async fn visit(&self, lease: &Lease) {
        let token = lease.token().get();
        assert!(self.last.swap(token, Ordering::SeqCst) < token);
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
        yield_now().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tasks that take the key one at a time, and release it in the foreground or drop their guard.
fn guarded_visits(clients: [Client; 3], in_foreground: bool) -> [JoinHandle<()>; 3] {
    let guarded = Arc::new(Guarded::default());
    clients.map(|client| {
        let guarded = guarded.clone();
        spawn(async move {
            let lease = lock(&client).await;
            guarded.visit(&lease).await;
            if in_foreground {
                let _ = lease.release().await.unwrap();
            }
        })
    })
}

/// A claim that was granted while its inbox was closed for a second has lost it, and
/// comes back after a pause: so much time passes, and not enough for anything else.
const PAUSES: u32 = 500;

async fn finish(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    let mut left = PAUSES;
    for task in tasks {
        while left > 0 && !task.is_finished() {
            yield_now().await;
            leasehold::sync::advance(Duration::from_millis(1));
            left -= 1;
        }
        task.await.unwrap();
    }
}

/// As that, for tasks that need no time.
async fn join(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// Lets time pass a few times, whenever the scheduler likes. No lease ends by it.
fn pass_time() -> JoinHandle<()> {
    spawn(async {
        for _ in 0..4 {
            yield_now().await;
            leasehold::sync::advance(LONG);
        }
    })
}

/// A guard that is dropped, while others wait, in this client and another: the claim is
/// released by a watchdog that is starting, running, or about to end.
#[test]
fn dropped_guards_hand_on() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        let time = pass_time();
        let tasks = guarded_visits([a.clone(), a, b], false);
        time.await.unwrap();
        finish(tasks).await;
    });
}

/// The watchdog ends when it had nothing to do for a while: right then a claim begins,
/// and another waits.
#[test]
fn a_watchdog_ends_while_something_begins() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        drop(lock(&a).await);
        let held = lock(&b).await;
        // It has nothing left to do, and soon knows.
        yield_now().await;
        let time = pass_time();
        let visit = visits(&a, "k");
        let other = visits(&a, "other");
        yield_now().await;
        drop(held);
        time.await.unwrap();
        finish([visit, other]).await;
        // Nobody else releases what is left.
        drop(b.mutex("other").unwrap().lock().await.unwrap());
    });
}

/// The same, given back in the foreground.
#[test]
fn released_leases_hand_on() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        join(guarded_visits([a.clone(), a, b], true)).await;
    });
}

/// A task that waits is dropped anywhere: it leaves, and nobody waits behind it.
#[test]
fn dropped_waiters_are_passed() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        let lease = lock(&a).await;
        let (gives_up, stays) = (visits(&b, "k"), visits(&b, "k"));
        yield_now().await;
        gives_up.abort();
        drop(lease);
        stays.await.unwrap();
    });
}

/// A renewal that is asked for, and one that is due, while the guard is dropped.
#[test]
fn a_renewal_meets_a_drop() {
    explore(async |world| {
        let a = world.client().await;
        let lease = Arc::new(lock(&a).await);
        // A third of the TTL: the watchdog renews too.
        leasehold::sync::advance(Duration::from_secs(10));
        let renewing = {
            let lease = lease.clone();
            spawn(async move { lease.renew().await.unwrap() })
        };
        let dropping = spawn(async move { drop(lease) });
        let b = world.client().await;
        drop(lock(&b).await);
        join([renewing, dropping]).await;
    });
}

/// A client that is shut down while one of its tasks holds and another waits.
#[test]
fn a_closed_client_leaves_nothing() {
    explore(async |world| {
        let a = world.client().await;
        let lease = lock(&a).await;
        let waits = {
            let client = a.clone();
            spawn(async move { client.mutex("k").unwrap().lock().await.map(drop) })
        };
        let closes = {
            let client = a.clone();
            spawn(async move { client.shutdown(Duration::from_secs(60)).await })
        };
        let b = world.client().await;
        drop(lock(&b).await);
        let _ = closes.await.unwrap();
        assert!(!lease.is_valid());
        waits.await.unwrap().ok();
    });
}

/// Tasks of one client that ask in turns, where they stand in no line: here time goes on,
/// since pauses are how they wait.
#[test]
fn turns_come_to_everybody() {
    explore(async |world| {
        let a = world.client_of(false).await;
        let guarded = Arc::new(Guarded::default());
        let left = Arc::new(AtomicUsize::new(3));
        let tasks = [(); 3].map(|()| {
            let (client, guarded, left) = (a.clone(), guarded.clone(), left.clone());
            spawn(async move {
                let mutex = client.mutex("k").unwrap().retrying(Retry::default());
                let lease = mutex.lock().await.unwrap();
                guarded.visit(&lease).await;
                let _ = lease.release().await.unwrap();
                left.fetch_sub(1, Ordering::SeqCst);
            })
        });
        while left.load(Ordering::SeqCst) > 0 {
            yield_now().await;
            leasehold::sync::advance(Duration::from_millis(5));
        }
        join(tasks).await;
    });
}

/// Whoever waits for the loss of a lease hears of it, though it comes while the inbox is
/// being opened.
#[test]
fn a_loss_is_heard() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        let lease = lock(&a).await;
        // The inbox of a holder opens after a while.
        leasehold::sync::advance(Duration::from_millis(200));
        let hears = spawn(async move {
            lease.lost().await;
        });
        let breaks = spawn(async move { b.break_key("k").await.map(drop) });
        breaks.await.unwrap().unwrap();
        hears.await.unwrap();
    });
}

/// Pushes come on several threads: one that means nothing to anybody, and the grant of a
/// claim whose answer is still on its way.
#[test]
fn a_grant_is_not_lost_among_other_pushes() {
    // What would go wrong is one step wide.
    explore_more(10, async |world| {
        let (a, b) = (world.client().await, world.client().await);
        let store = world.clients[0].clone();
        let other = b.mutex("other").unwrap().lock().await.unwrap();
        let waits = visits(&a, "other");
        while !store.upgrade().unwrap().listens() {
            yield_now().await;
        }
        let held = lock(&b).await;
        let visit = visits(&a, "k");
        let noise = spawn(async move {
            for _ in 0..5 {
                if let Some(store) = store.upgrade() {
                    store.push_noise();
                }
                yield_now().await;
            }
        });
        yield_now().await;
        drop(held);
        join([visit, noise]).await;
        drop(other);
        waits.await.unwrap();
    });
}

/// A watchdog that sleeps, with its inbox closed, on a lease: it opens for who waits.
#[test]
fn an_inbox_opens_for_who_waits() {
    explore(async |world| {
        let (a, b) = (world.client().await, world.client().await);
        let _other = a.mutex("other").unwrap().lock().await.unwrap();
        let held = lock(&b).await;
        yield_now().await;
        let visit = visits(&a, "k");
        yield_now().await;
        drop(held);
        visit.await.unwrap();
    });
}
