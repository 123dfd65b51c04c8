//! Slots that move between nodes.

use super::*;

/// The node that a slot leaves refuses what a script does to a key that is not
/// there, also when the script itself has just deleted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_forms_and_ends_on_a_node_that_its_slot_leaves() {
    let cluster = Cluster::builder().replicas(0).start();
    let client = client(&cluster, LIMIT).await;
    let slot = slot_of(&cluster, KEY);
    let held = client.mutex(KEY).unwrap().lock().await.unwrap();
    let moving = begin_move(&cluster, slot).await;
    let waiting = waiting(&client, KEY);
    in_line(&client, KEY, 1).await;
    let first = held.token();
    let lease = hand_over(held, waiting).await;
    assert!(lease.token() > first);
    // What ended here goes on there, and is not forgotten on the way.
    migrate(&moving, KEY);
    lease.renew().await.unwrap();
    moving.finish().await;
    lease.renew().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}

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
                assert_eq!(lease.release().await.unwrap(), Released::Held);
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
        let moving = begin_move(&cluster, slot).await;
        soon("a hand-off", handed_on.changed()).await.unwrap();
        migrate(&moving, [queue, kept][round % 2]);
        soon("a hand-off", handed_on.changed()).await.unwrap();
        moving.finish().await;
        soon("a hand-off", handed_on.changed()).await.unwrap();
    }
    let took = begun.elapsed();
    over.store(true, Ordering::SeqCst);
    soon("the end", players.join_all()).await;

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
    assert_eq!(held.state(), LeaseState::Held);
    assert_eq!(held.token(), token);
    assert_eq!(held.release().await.unwrap(), Released::Held);
}

/// The log of a slot is a key of its own, and may lie on another node than a record: leases were lost
/// then, and no lock was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_logged_are_used_while_their_slot_moves() {
    let cluster = Cluster::builder().replicas(0).start();
    let settings = Settings::default().with_ttl(LIMIT).with_waiter_ttl(LIMIT);
    let client = client_with(&format!("{}?audit=1000", cluster.url()), settings).await;
    let (kept, free) = ("{slot}kept", "{slot}free");
    let held = client.mutex(kept).unwrap().lock().await.unwrap();
    let moving = begin_move(&cluster, slot_of(&cluster, kept)).await;
    for _ in 0..2 {
        held.renew().await.unwrap();
        let lock = client.mutex(free).unwrap();
        let lease = soon("a lock", lock.lock()).await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Held);
        // The log stays behind.
        moving.migrate_key(&format!("leasehold:lock:{kept}"));
    }
    moving.finish().await;
    assert_eq!(held.release().await.unwrap(), Released::Held);
}

/// Keys of one slot are claimed in one step; not while some of them are on one
/// node and some on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_are_one_lock_wherever_they_are() {
    let cluster = Cluster::builder().replicas(0).start();
    let store = store(&cluster).await;
    let client = client(&cluster, LIMIT).await;
    let names = ["{slot}1", "{slot}2"];
    let parts = names.map(|name| (key(name), trying(&store, 1)));
    let at_once = async || {
        let answer = store.claim_all(&parts).await.unwrap();
        for name in names {
            store.release(&key(name), &release(1)).await.unwrap();
        }
        matches!(answer, Some(AllAnswer::All(_)))
    };
    assert!(at_once().await);

    let apart = [names[0], names[1], "elsewhere", "and here"];
    let apart = client.multi(apart).unwrap();
    let moving = begin_move(&cluster, slot_of(&cluster, names[0])).await;
    migrate(&moving, names[0]);
    let torn = names.map(|name| (key(name), trying(&store, 2)));
    assert_eq!(store.claim_all(&torn).await.unwrap(), None);
    let lease = soon("all keys", apart.lock()).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    moving.finish().await;
    let whole = store.claim_all(&torn).await.unwrap();
    assert!(matches!(whole, Some(AllAnswer::All(_))), "{whole:?}");
}

// ---- nodes that die ----
