//! Failing nodes, and fail-overs.

use super::*;
use crate::redis_support::crowd::Crowd;

/// Fifty clients want one key when its node falls: a new grant soon after another node took over,
/// and everybody gets one. What a replica has lives on: another key stays held.
async fn fifty_clients_go_on_when(fell: fn(&RedisServer)) {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster, Crowd::KEY);
    let old = cluster.owner_of(slot);
    let holder = client(&cluster, LIMIT).await;
    let held = lock(&holder, "{crowd}kept").await;
    // What the new node does not know to be released lapses before it takes over.
    let crowd = Crowd::start(async || client(&cluster, ms(2_000)).await).await;
    old.wait_for_replicas(1);
    fell(old);
    let fallen = Instant::now();
    cluster.wait_for_another_owner(slot, old).await;
    // What would wait for a lease to lapse waits longer.
    crowd.goes_on(fallen, ms(5_000)).await;
    answered("a renewal", async || held.renew().await).await;
    assert_eq!(held.state(), LeaseState::Held);
    give_back(held).await;
}

tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    fn fifty_clients_go_on_when_their_primary_is_killed() {
        fifty_clients_go_on_when(RedisServer::kill)
    }
    fn fifty_clients_go_on_when_their_primary_stands_still() {
        fifty_clients_go_on_when(RedisServer::stop)
    }
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
    let turns = Arc::new(watch::Sender::new(Token::NONE));
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
                assert_eq!(lease.release().await.unwrap(), Released::Held);
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
    assert_eq!((held.state(), held.token()), (LeaseState::Held, token));
    assert_eq!(held.release().await.unwrap(), Released::Held);
}

// ---- homes ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_home_is_found_elsewhere_with_another_epoch() {
    let cluster = Cluster::builder().replicas(0).start();
    let listens = |node: &&RedisServer| {
        let channels: Vec<String> = node.query(&["PUBSUB", "CHANNELS", "leasehold:*"]);
        !channels.is_empty()
    };
    let lose = || {
        let home = cluster.nodes().iter().find(listens).unwrap();
        home.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    };
    each_connection_has_another_epoch(&store(&cluster).await, lose).await;
}

/// A node that comes back may have forgotten what it was told, wherever the inbox is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_that_is_lost_makes_all_claims_ask_again() {
    let cluster = Cluster::builder().replicas(0).start();
    let store = store(&cluster).await;
    let (_ear, mut pushes) = listen(&store).await;
    let key = key(KEY);
    store.claim(&key, &claim(&store, 1)).await.unwrap();
    let owner = cluster.owner_of(slot_of(&cluster, KEY));
    owner.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    reconnected(&mut pushes).await;
    store.claim(&key, &claim(&store, 1)).await.unwrap();
}

// ---- what stands in the URL ----
