//! Cancelled and closed clients leave nothing in Redis.

use super::*;
use leasehold_testkit::expect::times_out;

fn tasks() -> usize {
    let runtime = tokio::runtime::Handle::current();
    runtime.metrics().num_alive_tasks()
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
            let _ = lease.release().await.unwrap();
            sleep(ms(5)).await;
        }
    });
    let mut all = JoinSet::new();
    for task in 0..8 {
        let (key, done, mut dice) = (ours.mutex(KEY).unwrap(), done.clone(), Dice(task));
        all.spawn(async move {
            let mut got = 0_u64;
            for _ in 0..25 {
                let point = dice.below(ms(150));
                let lease = if task % 2 == 0 {
                    timeout(point, key.lock()).await.map(Result::unwrap).ok()
                } else {
                    let tried = timeout(point, key.try_lock()).await;
                    tried.ok().and_then(Result::unwrap)
                };
                got += u64::from(lease.is_some());
                drop(lease);
                done.fetch_add(1, Ordering::SeqCst);
            }
            got
        });
    }
    let all = timeout(3 * LIMIT, all.join_all()).await.expect("an end");
    let got: u64 = all.into_iter().sum();
    eprintln!("{got} of 200 got the key, the others were dropped");
    assert!((1..200).contains(&got), "{got}: dropped at all points");
    soon("the contender's end", contender).await.unwrap();

    // Long before any TTL.
    standing(&other, 0, 0).await;
    until("no inbox", async || inboxes(&server) == 0).await;
    let none = "no task but those of the connections";
    until(none, async || tasks() <= before).await;
    standing(&other, 0, 0).await;
}

/// A lease, a leader and a waiting future that are dropped at the end of a program, whose runtime ends
/// with it: a shutdown is what gives them the time to leave.
#[tokio::test]
async fn a_program_that_shuts_its_client_down_leaves_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let program = move || {
        runtime().block_on(async {
            let ours = client(&url).await;
            let lease = lock(&ours).await;
            let contended = ours.mutex(KEY).unwrap();
            times_out(async |limit| contended.lock_within(limit).await).await;
            let leadership = ours.election("leader").unwrap().campaign("").await.unwrap();
            let mutex = ours.mutex("leader").unwrap();
            let mut candidate = Box::pin(mutex.lock());
            assert!(futures_util::poll!(candidate.as_mut()).is_pending());
            drop((candidate, leadership, lease));
            assert_eq!(ours.shutdown(LIMIT).await.unconfirmed, 0);
        });
    };
    tokio::task::spawn_blocking(program).await.unwrap();
    let other = client(&server.url()).await;
    standing(&other, 0, 0).await;
    let seen = other.inspect("leader").await.unwrap();
    let is_free = seen.holders.is_empty() && seen.waiters.is_empty();
    assert!(is_free, "{seen:?}");
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
