//! Failing nodes, and fail-overs.

use super::*;

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
        let mut later = log.lock().unwrap().clone();
        later.retain(|(at, ..)| *at > moment);
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
    let (took_over, first) = (promoted - fallen, granted - fallen);
    eprintln!("another node after {took_over:?}, a grant after {first:?}");
    // What would wait for a lease to lapse waits longer.
    assert!(granted <= promoted + ms(5_000));
    until("a grant for each", async || {
        let mut served: Vec<_> = after(granted).iter().map(|(_, who, _)| *who).collect();
        served.sort_unstable();
        served.dedup();
        served.len() == CONTENDERS
    })
    .await;
    eprintln!("all served after {:?}", fallen.elapsed());
    over.store(true, Ordering::SeqCst);
    let unanswered = soon("the end", contenders.join_all()).await;
    let unanswered: u32 = unanswered.into_iter().sum();
    let log = log.lock().unwrap();
    eprintln!("{} grants, {unanswered} times unavailable", log.len());
    let rise = log.is_sorted_by(|(.., a), (.., b)| a < b);
    assert!(rise, "tokens rise");
}

tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    fn fifty_clients_go_on_when_their_primary_is_killed() { fifty_clients_go_on(RedisServer::kill) }
    fn fifty_clients_go_on_when_their_primary_stands_still() {
        fifty_clients_go_on(RedisServer::stop)
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
            assert_eq!(lease.release().await.unwrap(), Released::Held);
        });
        in_line(&holder, KEY, place + 1).await;
    }
    old.wait_for_replicas(1);
    old.kill();
    cluster.wait_for_another_owner(slot, old).await;
    until("an answer", async || held.renew().await.is_ok()).await;
    assert_eq!(held.state(), LeaseState::Held);
    in_line(&holder, KEY, 6).await;
    let begun = Instant::now();
    assert_eq!(held.release().await.unwrap(), Released::Held);
    soon("their turns", queue.join_all()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    // By pushes: by looking from time to time it would be seconds each.
    assert!(begun.elapsed() < ms(6_000), "{:?}", begun.elapsed());
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
