//! What a Redis Cluster does to those who hold and wait: slots move, nodes die, homes are lost.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails, and measured figures are printed"
)]

mod redis_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::redis::{RedisClusterOptions, RedisStore};
use leasehold::store::{AllAnswer, LockStore, Push};
use leasehold::{Client, ErrorKind, Released, Settings, Standpoint, Token};
use leasehold_testkit::deployment::{Cluster, Takeover};
use leasehold_testkit::server::RedisServer;
use redis_support::{claim, key, next, release, sink};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take on a busy machine before a test fails.
const LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(2);
const KEY: &str = "the-key";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{what} within {LIMIT:?}"))
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !so().await {
            sleep(TICK).await;
        }
    })
    .await;
}

fn options(cluster: &Cluster) -> RedisClusterOptions {
    RedisClusterOptions::from_url(&cluster.url()).unwrap()
}

async fn store(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::connect_cluster(options(cluster)).await;
    store.unwrap()
}

async fn client(cluster: &Cluster, ttl: Duration) -> Client {
    let settings = Settings {
        ttl,
        waiter_ttl: ttl,
        ..Settings::default()
    };
    let client = Client::builder().store(cluster.url()).settings(settings);
    client.connect().await.unwrap()
}

/// The slot of a lock.
fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    cluster.slot_of(&format!("leasehold:lock:{name}"))
}

fn another_primary(cluster: &Cluster, slot: u16) -> &RedisServer {
    let owner = cluster.owner_of(slot).port();
    let mut primaries = cluster.primaries().into_iter();
    primaries.find(|it| it.port() != owner).unwrap()
}

async fn waiters(client: &Client, name: &str, count: usize) {
    until(&format!("{count} waiters"), async || {
        client.inspect(name).await.unwrap().waiters.len() == count
    })
    .await;
}

// ---- slots on the move ----

/// The node that a slot leaves refuses what a script does to a key that is not
/// there, also when the script itself has just deleted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_forms_and_ends_on_a_node_that_its_slot_leaves() {
    let cluster = Cluster::builder().replicas(0).start();
    let client = client(&cluster, LIMIT).await;
    let slot = slot_of(&cluster, KEY);
    let held = client.mutex(KEY).unwrap().lock().await.unwrap();
    let moving = cluster
        .begin_move(slot, another_primary(&cluster, slot))
        .await;
    let lock = client.mutex(KEY).unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    waiters(&client, KEY, 1).await;
    let first = held.token();
    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
    let lease = soon("the key", waiting).await.unwrap().unwrap();
    assert!(lease.token() > first);
    // What ended here goes on there, and is not forgotten on the way.
    assert!(moving.migrate_key(&format!("leasehold:lock:{KEY}")));
    lease.renew().await.unwrap();
    moving.finish().await;
    lease.renew().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
}

const QUEUED: usize = 4;

/// Four clients pass a lock round while its slot goes from node to node; another
/// lock of the slot is held all the while, and lives on its renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_a_hundred_times_under_those_who_hold_and_wait() {
    let cluster = Cluster::builder().replicas(0).start();
    let (queue, kept) = ("{slot}queue", "{slot}kept");
    let slot = slot_of(&cluster, queue);
    let keeper = client(&cluster, ms(1_500)).await;
    let held = keeper.mutex(kept).unwrap().lock().await.unwrap();
    let token = held.token();

    let over = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicUsize::new(0));
    let log: Arc<Mutex<Vec<(usize, Token)>>> = Arc::default();
    let turns = Arc::new(watch::Sender::new(0_usize));
    let mut players = JoinSet::new();
    for player in 0..QUEUED {
        let client = client(&cluster, ms(10_000)).await;
        let (over, inside, log, turns) = (over.clone(), inside.clone(), log.clone(), turns.clone());
        let here = client.clone();
        players.spawn(async move {
            let lock = client.mutex(queue).unwrap();
            while !over.load(Ordering::SeqCst) {
                let lease = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "granted twice");
                log.lock().unwrap().push((player, lease.token()));
                turns.send_modify(|turns| *turns += 1);
                // Once all others are in line, the order is known.
                while !over.load(Ordering::SeqCst)
                    && client.inspect(queue).await.unwrap().waiters.len() < QUEUED - 1
                {
                    sleep(TICK).await;
                }
                assert!(lease.is_valid());
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
            }
        });
        // In line before the next.
        until("its place", async || {
            let seen = here.inspect(queue).await.unwrap();
            seen.holders.len() + seen.waiters.len() > player
        })
        .await;
    }

    let begun = Instant::now();
    let mut handed_on = turns.subscribe();
    for round in 0..100 {
        let moving = cluster
            .begin_move(slot, another_primary(&cluster, slot))
            .await;
        soon("a hand-off", handed_on.changed()).await.unwrap();
        let first = [queue, kept][round % 2];
        assert!(moving.migrate_key(&format!("leasehold:lock:{first}")));
        soon("a hand-off", handed_on.changed()).await.unwrap();
        moving.finish().await;
        soon("a hand-off", handed_on.changed()).await.unwrap();
    }
    let took = begun.elapsed();
    over.store(true, Ordering::SeqCst);
    soon("the end", async {
        while let Some(player) = players.join_next().await {
            player.unwrap();
        }
    })
    .await;

    let log = log.lock().unwrap().clone();
    eprintln!("100 moves, {} hand-offs, {took:?}", log.len());
    assert!(log.len() > 300);
    for (turn, pair) in log.windows(2).enumerate() {
        let [(before, lower), (player, higher)] = pair else {
            unreachable!("pairs");
        };
        assert!(lower < higher, "turn {turn}: tokens rise");
        if turn + QUEUED < log.len() {
            assert_eq!((before + 1) % QUEUED, *player, "turn {turn}: in order");
        }
    }
    assert_eq!(held.standpoint(), Standpoint::Held);
    assert_eq!(held.token(), token);
    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
}

/// Keys of one slot are claimed in one step; not while some of them are on one
/// node and some on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_are_one_lock_wherever_they_are() {
    let cluster = Cluster::builder().replicas(0).start();
    let store = store(&cluster).await;
    let client = client(&cluster, LIMIT).await;
    let names = ["{slot}1", "{slot}2"];
    let parts = names.map(|name| {
        let claim = leasehold::core::Claim {
            wait: false,
            ..claim(&store, 1)
        };
        (key(name), claim)
    });
    let at_once = async || {
        let answer = store.claim_all(&parts).await.unwrap();
        for name in names {
            store.release(&key(name), &release(1)).await.unwrap();
        }
        matches!(answer, Some(AllAnswer::All(_)))
    };
    assert!(at_once().await);

    let apart = client.multi([names[0], names[1], "elsewhere", "and here"]);
    let apart = apart.unwrap();
    let slot = slot_of(&cluster, names[0]);
    let moving = cluster
        .begin_move(slot, another_primary(&cluster, slot))
        .await;
    assert!(moving.migrate_key(&format!("leasehold:lock:{}", names[0])));
    let other = leasehold::core::Claim {
        wait: false,
        ..claim(&store, 2)
    };
    let torn = names.map(|name| (key(name), other.clone()));
    assert_eq!(store.claim_all(&torn).await.unwrap(), None);
    let lease = soon("all keys", apart.lock()).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
    moving.finish().await;
    let whole = store.claim_all(&torn).await.unwrap();
    assert!(matches!(whole, Some(AllAnswer::All(_))), "{whole:?}");
}

// ---- nodes that die ----

const CONTENDERS: usize = 50;

/// Fifty clients want one key when its node falls: a new grant within two seconds
/// after another node took over, and everybody gets one.
async fn fifty_clients_go_on(fell: fn(&RedisServer)) {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster, KEY);
    let old = cluster.owner_of(slot);
    let over = Arc::new(AtomicBool::new(false));
    let log: Arc<Mutex<Vec<(Instant, usize, Token)>>> = Arc::default();
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        // What the new node does not know to be released lapses before it takes over.
        let client = client(&cluster, ms(2_000)).await;
        let (over, log) = (over.clone(), log.clone());
        contenders.spawn(async move {
            let lock = client.mutex(KEY).unwrap();
            let mut unanswered = 0;
            while !over.load(Ordering::SeqCst) {
                match lock.lock().await {
                    Ok(lease) => {
                        let token = lease.token();
                        log.lock().unwrap().push((Instant::now(), contender, token));
                        // Either it was ours, or nobody can tell.
                        let _ = lease.release().await;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        unanswered += 1;
                    }
                }
            }
            unanswered
        });
    }
    let after = |moment: Instant| {
        let log = log.lock().unwrap();
        let later: Vec<_> = log
            .iter()
            .filter(|(at, ..)| *at > moment)
            .copied()
            .collect();
        later
    };
    let start = Instant::now();
    until("contention", async || after(start).len() > 4 * CONTENDERS).await;

    fell(old);
    let fallen = Instant::now();
    // Answers that were on their way have arrived by then.
    let quiet = fallen + ms(500);
    cluster.wait_for_another_owner(slot, old).await;
    let promoted = Instant::now();
    until("a grant", async || !after(quiet).is_empty()).await;
    let (granted, ..) = after(quiet)[0];
    eprintln!(
        "another node after {:?}, a grant after {:?}",
        promoted - fallen,
        granted - fallen
    );
    assert!(granted <= promoted + ms(2_000));
    until("a grant for each", async || {
        let mut served: Vec<_> = after(granted).iter().map(|(_, who, _)| *who).collect();
        served.sort_unstable();
        served.dedup();
        served.len() == CONTENDERS
    })
    .await;
    eprintln!("all served after {:?}", fallen.elapsed());
    over.store(true, Ordering::SeqCst);
    let mut unanswered = 0;
    soon("the end", async {
        while let Some(contender) = contenders.join_next().await {
            unanswered += contender.unwrap();
        }
    })
    .await;
    let log = log.lock().unwrap();
    eprintln!("{} grants, {unanswered} times unavailable", log.len());
    assert!(
        log.windows(2).all(|pair| pair[0].2 < pair[1].2),
        "tokens rise"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_go_on_when_their_primary_is_killed() {
    fifty_clients_go_on(RedisServer::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_go_on_when_their_primary_stands_still() {
    fifty_clients_go_on(RedisServer::stop).await;
}

/// A take-over in agreement loses nothing: one holds on, the others pass a lock round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_take_over_loses_nothing() {
    let cluster = Cluster::start();
    let (queue, kept) = ("{slot}queue", "{slot}kept");
    let slot = slot_of(&cluster, queue);
    let holder = client(&cluster, ms(20_000)).await;
    let held = holder.mutex(kept).unwrap().lock().await.unwrap();
    let token = held.token();
    let over = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicUsize::new(0));
    let turns = Arc::new(watch::Sender::new(Token(0)));
    let mut players = JoinSet::new();
    for _ in 0..QUEUED {
        let client = client(&cluster, ms(20_000)).await;
        let (over, inside, turns) = (over.clone(), inside.clone(), turns.clone());
        players.spawn(async move {
            let lock = client.mutex(queue).unwrap();
            while !over.load(Ordering::SeqCst) {
                let lease = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "granted twice");
                let last = turns.send_replace(lease.token());
                assert!(last < lease.token(), "tokens rise");
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
            }
        });
    }
    let mut handed_on = turns.subscribe();
    // There and back. (A node that takes over twice within seconds is not believed:
    // Redis 7.0 counts the votes of the first time.)
    for _ in 0..2 {
        soon("a hand-off", handed_on.changed()).await.unwrap();
        let primary = cluster.owner_of(slot);
        primary.wait_for_replicas(1);
        let replicas = cluster.replicas_of(primary);
        cluster.fail_over(replicas[0], Takeover::Agreed).await;
        let begun = Instant::now();
        handed_on.mark_unchanged();
        soon("a hand-off", handed_on.changed()).await.unwrap();
        assert!(begun.elapsed() < ms(2_000), "{:?}", begun.elapsed());
    }
    over.store(true, Ordering::SeqCst);
    soon("the end", players.join_all()).await;
    assert_eq!((held.standpoint(), held.token()), (Standpoint::Held, token));
    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
}

/// What the replica has, lives on: the lease is checked at once, and handed on to
/// those who wait, in order, also to those who had listened on the node that died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_and_its_queue_outlive_their_node() {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster, KEY);
    let old = cluster.owner_of(slot);
    let holder = client(&cluster, ms(20_000)).await;
    let held = holder.mutex(KEY).unwrap().lock().await.unwrap();
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut queue = JoinSet::new();
    let mut clients = Vec::new();
    for place in 0..6 {
        let client = client(&cluster, ms(20_000)).await;
        let (lock, order) = (client.mutex(KEY).unwrap(), order.clone());
        clients.push(client);
        queue.spawn(async move {
            let lease = lock.lock().await.unwrap();
            order.lock().unwrap().push(place);
            assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
        });
        waiters(&holder, KEY, place + 1).await;
    }
    old.wait_for_replicas(1);
    old.kill();
    cluster.wait_for_another_owner(slot, old).await;
    until("an answer", async || held.renew().await.is_ok()).await;
    assert_eq!(held.standpoint(), Standpoint::Held);
    waiters(&holder, KEY, 6).await;
    let begun = Instant::now();
    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
    soon("their turns", queue.join_all()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    // By pushes: by looking from time to time it would be seconds each.
    assert!(begun.elapsed() < ms(6_000), "{:?}", begun.elapsed());
}

// ---- homes ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_home_is_found_elsewhere_with_another_epoch() {
    let cluster = Cluster::builder().replicas(0).start();
    let store = store(&cluster).await;
    let (heard, mut pushes) = sink();
    let ear = store.listen(heard).await.unwrap();
    let key = key(KEY);
    let mut epochs = vec![store.claim(&key, &claim(&store, 1)).await.unwrap().epoch];
    for _ in 0..3 {
        let listens = |node: &&RedisServer| {
            let channels: Vec<String> = node.query(&["PUBSUB", "CHANNELS", "leasehold:*"]);
            !channels.is_empty()
        };
        let home = cluster.nodes().iter().find(listens).unwrap();
        home.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(next(&mut pushes).await, Push::Reset);
        let answer = store.claim(&key, &claim(&store, 1)).await.unwrap();
        epochs.push(answer.epoch);
    }
    assert!(epochs.is_sorted_by(|a, b| 0 < *a && a < b), "{epochs:?}");
    store.claim(&key, &claim(&store, 2)).await.unwrap();
    store.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { epoch, .. } if epoch == epochs[3]));
    drop(ear);
    let answer = store.claim(&key, &claim(&store, 2)).await.unwrap();
    assert_eq!(answer.epoch, 0, "nobody listens");
}

/// A node that comes back may have forgotten what it was told, wherever the inbox is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_that_is_lost_makes_all_claims_ask_again() {
    let cluster = Cluster::builder().replicas(0).start();
    let store = store(&cluster).await;
    let (heard, mut pushes) = sink();
    let _ear = store.listen(heard).await.unwrap();
    let key = key(KEY);
    store.claim(&key, &claim(&store, 1)).await.unwrap();
    let owner = cluster.owner_of(slot_of(&cluster, KEY));
    owner.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(next(&mut pushes).await, Push::Reset);
    store.claim(&key, &claim(&store, 1)).await.unwrap();
}

// ---- what stands in the URL ----

const RULE: &str = "resetchannels ~leasehold:* &leasehold:* -@all +evalsha +script|load +time +mget +exists \
    +type +set +setrange +del +hset +hget +hmget +hgetall +hdel +pexpire +publish +subscribe \
    +unsubscribe +scan +info +ping +cluster|slots +asking";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_are_enough() {
    let node = RedisServer::builder()
        .user("alice", &format!("on >secret {RULE}"))
        .user(
            "bob",
            &format!("on >secret {}", RULE.replace("+cluster|slots", "")),
        )
        .user("default", "off");
    let cluster = Cluster::builder().replicas(0).server(node).start();
    let connect = async |user| {
        let mut options = options(&cluster);
        options.node = options.node.credentials(Some(user), "secret");
        RedisStore::connect_cluster(options).await
    };
    let alice = connect("alice").await.unwrap();
    let (heard, mut pushes) = sink();
    let _ear = alice.listen(heard).await.unwrap();
    let key = key(KEY);
    let slot = slot_of(&cluster, KEY);
    alice.claim(&key, &claim(&alice, 1)).await.unwrap();
    let moving = cluster
        .begin_move(slot, another_primary(&cluster, slot))
        .await;
    assert!(moving.migrate_key(&format!("leasehold:lock:{KEY}")));
    // By way of ASKING.
    alice.claim(&key, &claim(&alice, 2)).await.unwrap();
    moving.finish().await;
    alice.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
    assert_eq!(alice.list("*").await.unwrap().len(), 1);

    let refused = connect("bob").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(format!("{refused:?}").contains("+cluster|slots"));
    assert!(!format!("{refused:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_scheme_says_which_is_right() {
    let cluster = Cluster::builder().replicas(0).start();
    let node = &cluster[0];
    let client = Client::builder().store(node.url()).connect().await.unwrap();
    let elsewhere = (0..100).map(|n| format!("k{n}"));
    let mut elsewhere =
        elsewhere.filter(|name| cluster.owner_of(slot_of(&cluster, name)).port() != node.port());
    let lock = client.mutex(elsewhere.next().unwrap()).unwrap();
    let refused = lock.lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.hint().unwrap().contains("redis-cluster://"));

    let alone = RedisServer::start();
    let url = alone.url().replace("redis://", "redis-cluster://");
    let refused = Client::builder().store(url).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.hint().unwrap().contains("redis://"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_answers_is_enough() {
    let cluster = Cluster::builder().replicas(0).start();
    let dead = RedisServer::start();
    dead.kill();
    let silent = RedisServer::start();
    silent.stop();
    let seed = |server: &RedisServer| ("127.0.0.1", server.port());
    let seeds = [seed(&dead), seed(&silent), seed(&cluster[1])];
    let begun = Instant::now();
    let store = RedisStore::connect_cluster(RedisClusterOptions::new(seeds)).await;
    let store = store.unwrap();
    for name in ["a", "b{c}d", "}{", "{}", "é{", "a b"] {
        store.claim(&key(name), &claim(&store, 1)).await.unwrap();
    }
    assert!(begun.elapsed() < ms(4_000), "{:?}", begun.elapsed());
    assert_eq!(store.list("*").await.unwrap().len(), 6);

    let nowhere = RedisClusterOptions::new([seed(&dead)]);
    let refused = RedisStore::connect_cluster(nowhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        refused.to_string().contains(&dead.port().to_string()),
        "{refused}"
    );
}
