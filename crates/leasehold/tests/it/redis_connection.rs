//! The connection: lost, silent, reconnected.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use leasehold::core::{ClaimReply, UNHEARD_CUT};

#[tokio::test]
async fn a_lost_connection_comes_back_with_another_epoch() {
    let server = RedisServer::start();
    let lose = || drop(server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]));
    each_connection_has_another_epoch(&store(&server).await, lose).await;
}

#[tokio::test]
async fn a_closed_inbox_hears_nothing_and_leaves_nothing() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server).await);
    let channel = format!("leasehold:inbox:{}", store.inbox().as_str());
    let subscribers = || -> usize {
        let (_, count): (String, usize) = server.query(&["PUBSUB", "NUMSUB", &channel]);
        count
    };
    let (ear, _) = listen(&store).await;
    assert_eq!(subscribers(), 1);
    let twice = store.listen(sink().0).await.map(drop);
    fails(twice, ErrorKind::Invalid, &[]);
    drop(ear);
    // Open at once again: the closing that is under way must not close it.
    let (ear, mut pushes) = listen(&store).await;
    let keys: Vec<_> = (0..20).map(|n| key(&format!("k{n}"))).collect();
    let key = key("k");
    queue_up(&store, &key, [1, 2]).await;
    store.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
    drop(ear);
    store.release(&key, &release(2)).await.unwrap();
    yield_until("nobody listens", || subscribers() == 0).await;

    // Also those who came in one batch leave nothing.
    let claim = claim(&store, 3);
    futures_util::future::join_all(keys.iter().map(|key| store.claim(key, &claim))).await;

    let clients = || {
        let clients: String = server.query(&["CLIENT", "LIST", "TYPE", "normal"]);
        clients.lines().count()
    };
    let before = clients();
    drop(store);
    yield_until("the connection is closed", || clients() < before).await;
}

/// What closes needs turns of the runtime, and no more.
async fn yield_until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if so() {
            return;
        }
        yield_now().await;
    }
    panic!("not yet: {what}");
}

#[tokio::test]
async fn a_silent_server_is_unavailable_then_serves_again() {
    let server = RedisServer::start();
    let options = options(&server).response_timeout(Duration::from_millis(200) * overload());
    let store = RedisStore::connect(options).await.unwrap();
    let (key, other) = (key("k"), key("other"));
    assert!(store.claim(&key, &claim(&store, 1)).await.unwrap().holds());
    let (renew, release) = (renew(1), release(1));
    // A server that does not know a script yet would have to be asked twice.
    store.renew(&other, &renew).await.unwrap();
    store.release(&other, &release).await.unwrap();
    server.stop();
    let (one, two) = tokio::join!(store.renew(&key, &renew), store.release(&key, &release));
    fails(one, ErrorKind::Unavailable, &["unknown"]);
    fails(two, ErrorKind::Unavailable, &["unknown"]);
    server.cont();
    // Both were carried out: unknown means just that.
    let again = claim(&store, 1);
    let answer = answered("an answer", async || store.claim(&key, &again).await);
    // Long before the claim would lapse.
    let answer = timeout(Duration::from_secs(20), answer)
        .await
        .expect("in time");
    assert_eq!(answer.reply, ClaimReply::Gone);
}

/// Also those whose turn to be sent has not come, since enough is in flight at a silent server.
#[tokio::test]
async fn all_who_wait_find_out_that_the_connection_is_lost() {
    let server = RedisServer::start();
    let options = options(&server).response_timeout(Duration::from_secs(300));
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    store.claim(&key("k"), &claim(&store, 1)).await.unwrap();
    server.stop();
    let mut tasks = Vec::new();
    for number in 0..10 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let key = key(&format!("{number}"));
            store.claim(&key, &claim(&store, number)).await
        }));
        // Each is sent by itself, as far as that goes.
        for _ in 0..20 {
            yield_now().await;
        }
    }
    server.kill();
    for task in tasks {
        let lost = soon("an answer", task).await.unwrap();
        fails(lost, ErrorKind::Unavailable, &[]);
    }
}

#[test]
fn a_store_outlives_the_runtime_that_opened_it() {
    let server = RedisServer::start();
    // What has to be acknowledged has connections of its own.
    for (name, policy) in [("k", ""), ("l", "?acknowledge=1&acknowledge_timeout=100ms")] {
        let url = format!("{}{policy}", server.url());
        let store = runtime().block_on(connect(&url)).unwrap();
        let key = key(name);
        runtime().block_on(async {
            let lost = store.claim(&key, &claim(&store, 1)).await;
            fails(lost, ErrorKind::Unavailable, &[]);
            assert!(store.claim(&key, &claim(&store, 1)).await.unwrap().holds());
        });
    }
}

#[test]
fn a_store_outlives_the_runtime_that_was_connecting() {
    let server = RedisServer::start();
    let store = runtime().block_on(store(&server));
    let (key, claim) = (key("k"), claim(&store, 1));
    server.kill();
    let lost = runtime().block_on(store.claim(&key, &claim));
    fails(lost, ErrorKind::Unavailable, &[]);
    server.start_again();
    let again = runtime().block_on(store.claim(&key, &claim)).unwrap();
    assert!(again.holds());
}

/// One that has just come, is dead, and has not said that it listens: the next is told when to
/// look.
#[tokio::test]
async fn a_waiter_that_has_just_come_is_waited_for() {
    let server = RedisServer::start();
    let (holder, alive) = (store(&server).await, store(&server).await);
    let dead = store(&server).await;
    let _inbox = listen(&holder).await;
    let (_ear, mut pushes) = listen(&alive).await;
    let key = key("k");
    for (store, number) in [(&holder, 1), (&dead, 2), (&alive, 3)] {
        store.claim(&key, &claim(store, number)).await.unwrap();
    }
    drop(dead);
    holder.release(&key, &release(1)).await.unwrap();
    let Push::Next { left, .. } = next(&mut pushes).await else {
        panic!("not told that it is next")
    };
    assert_eq!(left, UNHEARD_CUT);
}
