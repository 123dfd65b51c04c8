//! Discovery of the primary, with real servers and fake Sentinels: stale, out of date, silent, or
//! without the name.
#![cfg(feature = "redis")]

use leasehold_testkit::expect::says;
use leasehold_testkit::process::overload;
use std::time::Duration;

use crate::redis_support::fake_sentinel::FakeSentinel;
use crate::redis_support::*;
use leasehold::ErrorKind;
use leasehold::core::ClaimReply;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold::store::{LockStore, Push, Verbs as _};

fn options_of(sentinels: &[&FakeSentinel]) -> RedisOptions {
    let nodes: Vec<_> = sentinels
        .iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
        .collect();
    let url = format!("redis-sentinel://{}/mymaster", nodes.join(","));
    RedisOptions::from_url(&url).unwrap()
}

fn replica_of(primary: &RedisServer) -> RedisServer {
    let replica = RedisServer::start();
    follow(&replica, primary);
    replica
}

fn follow(replica: &RedisServer, primary: &RedisServer) {
    let port = primary.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    primary.wait_for_replicas(1);
}

fn promote(replica: &RedisServer) {
    replica.command(&["REPLICAOF", "NO", "ONE"]);
}

fn token(reply: ClaimReply) -> u64 {
    match reply {
        ClaimReply::Standing(standing) => standing.token.expect("a grant").get(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_replica_that_a_sentinel_names_is_refused_and_another_is_asked() {
    let primary = RedisServer::start();
    let replica = replica_of(&primary);
    // Both say the same epoch: only the server itself can tell.
    let stale = FakeSentinel::start(Some((replica.port(), 1))).await;
    let good = FakeSentinel::start(Some((primary.port(), 1))).await;
    let store = RedisStore::connect(options_of(&[&stale, &good]))
        .await
        .unwrap();
    token(
        store
            .claim(&key("k"), &claim(&store, 1))
            .await
            .unwrap()
            .reply,
    );

    let options = options_of(&[&stale]).connect_timeout(Duration::from_millis(300) * overload());
    let error = RedisStore::connect(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let named = format!(
        "the primary \"mymaster\": 127.0.0.1:{} names 127.0.0.1:{}: that server is a replica",
        stale.port,
        replica.port()
    );
    assert!(error.to_string().contains(&named), "{error}");
}

#[tokio::test]
async fn an_unknown_name_is_invalid_and_the_known_ones_are_named() {
    let one = FakeSentinel::start(Some((1, 1))).await;
    let two = FakeSentinel::start(None).await;
    let url = format!(
        "redis-sentinel://127.0.0.1:{},127.0.0.1:{}/yours",
        one.port, two.port
    );
    let options = RedisOptions::from_url(&url).unwrap();
    let error = RedisStore::connect(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("\"yours\""), "{error}");
    let error = leasehold::connect(&url).await.unwrap_err();
    assert_eq!(error.hint(), Some("the Sentinels know: mymaster"));
}

#[tokio::test]
async fn silent_sentinels_are_passed_over() {
    let server = RedisServer::start();
    // Accepts, and answers nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = FakeSentinel::start(Some((server.port(), 1))).await;
    let silent_port = silent.local_addr().unwrap().port();
    let url = format!(
        "redis-sentinel://127.0.0.1:1,127.0.0.1:{silent_port},127.0.0.1:{}/mymaster",
        good.port
    );
    let store = RedisStore::connect(RedisOptions::from_url(&url).unwrap())
        .await
        .unwrap();
    token(
        store
            .claim(&key("k"), &claim(&store, 1))
            .await
            .unwrap()
            .reply,
    );
}

/// The primary is stopped, not dead: its connections stay open and silent. When
/// it goes on, it takes itself for the primary still.
#[tokio::test]
async fn a_stopped_primary_is_left_as_soon_as_another_is_named() {
    let old = RedisServer::start();
    let new = replica_of(&old);
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    let store = RedisStore::connect(options_of(&[&sentinel])).await.unwrap();
    let (heard, mut pushes) = sink();
    let _ear = store.listen(heard).await.unwrap();
    let key = key("k");
    let before = token(store.claim(&key, &claim(&store, 1)).await.unwrap().reply);
    old.wait_for_replicas(1);
    // The one who looks out is there.
    sentinel.asked(2).await;

    old.stop();
    let claim = claim(&store, 2);
    let waiting = store.claim(&key, &claim);
    let switched = async {
        promote(&new);
        sentinel.say(Some((new.port(), 2)), true);
    };
    let started = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(waiting, switched);
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "outcome unknown");
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "not its time-out"
    );
    reconnected(&mut pushes).await;

    old.cont();
    // What was sent to it is carried out there, and nobody hears of it.
    store.release(&key, &release(1)).await.unwrap();
    let after = token(store.claim(&key, &claim).await.unwrap().reply);
    assert!(after > before);
    let shown: usize = new.query(&["EXISTS", "leasehold:lock:k"]);
    assert_eq!(shown, 1);
}

/// Answered by the server itself: nothing has run there.
#[tokio::test]
async fn a_demoted_primary_sends_us_on_to_the_new_one() {
    let old = RedisServer::start();
    let new = replica_of(&old);
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    let store = RedisStore::connect(options_of(&[&sentinel])).await.unwrap();
    let key = key("k");
    token(store.claim(&key, &claim(&store, 1)).await.unwrap().reply);
    old.wait_for_replicas(1);
    sentinel.asked(2).await;

    promote(&new);
    follow(&old, &new);
    // The Sentinel is slow to hear of it: the claim waits for it.
    let claim = claim(&store, 2);
    let asking = store.claim(&key, &claim);
    let later = async {
        sentinel.asked(2).await;
        sentinel.say(Some((new.port(), 2)), false);
    };
    let (answer, ()) = tokio::join!(asking, later);
    let ClaimReply::Standing(standing) = answer.unwrap().reply else {
        panic!("the first claim came along")
    };
    assert_eq!((standing.token, standing.position), (None, 1));
}

/// A Sentinel that was cut off goes on naming the old primary, which goes on
/// taking itself for one.
#[tokio::test]
async fn who_has_heard_of_a_fail_over_does_not_go_back() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let cut_off = FakeSentinel::start(Some((old.port(), 1))).await;
    let good = FakeSentinel::start(Some((new.port(), 2))).await;
    let store = RedisStore::connect(options_of(&[&good, &cut_off]))
        .await
        .unwrap();
    let (heard, mut pushes) = sink();
    let _ear = store.listen(heard).await.unwrap();
    let key = key("k");
    token(store.claim(&key, &claim(&store, 1)).await.unwrap().reply);

    let options = options_of(&[&cut_off]).connect_timeout(Duration::from_secs(2));
    drop(good);
    new.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    cut_off.asked(2).await;
    let unanswered = store.renew(&key, &renew(1)).await.unwrap_err();
    assert_eq!(unanswered.kind(), ErrorKind::Unavailable);
    says(&unanswered, ["not know of the last fail-over"]);
    assert_eq!(next(&mut pushes).await, Push::Disconnected);
    assert!(pushes.try_recv().is_err(), "it is still looking");
    // One who knows nothing better has no choice.
    RedisStore::connect(options).await.unwrap();
}
