//! Discovery of the primary, with real servers and fake Sentinels: stale, out of date, silent, or
//! without the name.
#![cfg(feature = "redis")]

use crate::redis_support::fake_sentinel::FakeSentinel;
use crate::redis_support::*;
use crate::redlock_support::members;

fn options_of(sentinels: &[&FakeSentinel]) -> RedisOptions {
    let nodes = members(sentinels.iter().map(|sentinel| sentinel.port));
    RedisOptions::from_url(&format!("redis-sentinel://{nodes}/mymaster")).unwrap()
}

async fn store_of(sentinels: &[&FakeSentinel]) -> RedisStore {
    RedisStore::connect(options_of(sentinels)).await.unwrap()
}

fn replica_of(primary: &RedisServer) -> RedisServer {
    let replica = RedisServer::start();
    follow(&replica, primary);
    replica
}

fn follow(replica: &RedisServer, primary: &RedisServer) {
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    primary.wait_for_replicas(1);
}

fn promote(replica: &RedisServer) {
    replica.command(&["REPLICAOF", "NO", "ONE"]);
}

/// Claims `k`; it is granted, under this token.
async fn granted(store: &RedisStore, number: u128) -> u64 {
    let answer = store.claim(&key("k"), &claim(store, number)).await;
    match answer.unwrap().reply {
        ClaimReply::Standing(standing) => standing.token.expect("a grant").get(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_replica_that_a_sentinel_names_is_refused_and_another_is_asked() {
    // Each says in its own way what a user may not do, and what no replica does.
    for program in Program::ALL {
        let start = || RedisServer::builder().program(program.clone()).start();
        let (primary, replica) = (start(), start());
        follow(&replica, &primary);
        // Both say the same epoch: only the server itself can tell.
        let stale = FakeSentinel::start(Some((replica.port(), 1))).await;
        let good = FakeSentinel::start(Some((primary.port(), 1))).await;
        granted(&store_of(&[&stale, &good]).await, 1).await;

        let limit = Duration::from_millis(300) * overload();
        let options = options_of(&[&stale]).connect_timeout(limit);
        let refused = RedisStore::connect(options).await;
        let named = format!(
            "the primary \"mymaster\": 127.0.0.1:{} names 127.0.0.1:{}: that server is a replica",
            stale.port,
            replica.port()
        );
        fails(refused, ErrorKind::Unavailable, &[&named]);
    }
}

/// At the address of a former primary there is another server by now.
#[tokio::test]
async fn a_server_that_refuses_us_does_not_keep_us_from_asking_another_sentinel() {
    let other = RedisServer::builder().password("hunter2").start();
    let primary = RedisServer::start();
    let stale = FakeSentinel::start(Some((other.port(), 1))).await;
    let good = FakeSentinel::start(Some((primary.port(), 2))).await;
    granted(&store_of(&[&stale, &good]).await, 1).await;
    let refused = RedisStore::connect(options_of(&[&stale])).await;
    fails(refused, ErrorKind::Refused, &["password"]);
}

#[tokio::test]
async fn an_unknown_name_is_invalid_and_the_known_ones_are_named() {
    let one = FakeSentinel::start(Some((1, 1))).await;
    let two = FakeSentinel::start(None).await;
    let nodes = members([one.port, two.port]);
    let url = format!("redis-sentinel://{nodes}/yours");
    fails(connect(&url).await, ErrorKind::Invalid, &["\"yours\""]);
    let error = leasehold::connect(&url).await.unwrap_err();
    assert_eq!(error.hint(), Some("the Sentinels know: mymaster"));
}

#[tokio::test]
async fn silent_sentinels_are_passed_over() {
    let server = RedisServer::start();
    // Accepts, and answers nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = FakeSentinel::start(Some((server.port(), 1))).await;
    let nodes = members([1, silent.local_addr().unwrap().port(), good.port]);
    let url = format!("redis-sentinel://{nodes}/mymaster");
    granted(&connect(&url).await.unwrap(), 1).await;
}

/// The primary is stopped, not dead: its connections stay open and silent. When
/// it goes on, it takes itself for the primary still.
#[tokio::test]
async fn a_stopped_primary_is_left_as_soon_as_another_is_named() {
    let old = RedisServer::start();
    let new = replica_of(&old);
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    let store = store_of(&[&sentinel]).await;
    let (_ear, mut pushes) = listen(&store).await;
    let key = key("k");
    let before = granted(&store, 1).await;
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
    let started = Instant::now();
    let (answer, ()) = tokio::join!(waiting, switched);
    let took = started.elapsed();
    fails(answer, ErrorKind::Unavailable, &[]);
    assert!(took < Duration::from_secs(4), "not its time-out");
    reconnected(&mut pushes).await;

    old.cont();
    // What was sent to it is carried out there, and nobody hears of it.
    store.release(&key, &release(1)).await.unwrap();
    assert!(granted(&store, 2).await > before);
    let shown: usize = new.query(&["EXISTS", "leasehold:lock:k"]);
    assert_eq!(shown, 1);
}

/// Claims go to the new primary in the end.
async fn reaches(store: &RedisStore, new: &RedisServer) {
    until("a claim reaches the new primary", async || {
        let _ = store.claim(&key("k"), &claim(store, 1)).await;
        new.query::<usize>(&["EXISTS", "leasehold:lock:k"]) == 1
    })
    .await;
}

/// Whoever may not listen asks.
#[tokio::test]
async fn a_sentinel_that_forbids_to_subscribe_names_a_new_primary_all_the_same() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    sentinel.refuse((new.port(), 2));
    reaches(&store_of(&[&sentinel]).await, &new).await;
}

/// A Sentinel is asked for the epoch and for the address, and may hear of a fail-over in between. A
/// client that took the old primary for that of the new epoch stayed there.
#[tokio::test]
async fn a_fail_over_between_two_questions_is_not_missed() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    sentinel.say_next((new.port(), 2));
    reaches(&store_of(&[&sentinel]).await, &new).await;
}

/// Answered by the server itself: nothing has run there.
#[tokio::test]
async fn a_demoted_primary_sends_us_on_to_the_new_one() {
    let old = RedisServer::start();
    let new = replica_of(&old);
    let sentinel = FakeSentinel::start(Some((old.port(), 1))).await;
    let store = store_of(&[&sentinel]).await;
    let key = key("k");
    granted(&store, 1).await;
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
    let store = store_of(&[&good, &cut_off]).await;
    let (_ear, mut pushes) = listen(&store).await;
    granted(&store, 1).await;

    let options = options_of(&[&cut_off]).connect_timeout(Duration::from_secs(2));
    drop(good);
    new.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    cut_off.asked(2).await;
    let unanswered = store.renew(&key("k"), &renew(1)).await;
    let why = "not know of the last fail-over";
    fails(unanswered, ErrorKind::Unavailable, &[why]);
    assert_eq!(next(&mut pushes).await, Push::Disconnected);
    assert!(pushes.try_recv().is_err(), "it is still looking");
    // One who knows nothing better has no choice.
    RedisStore::connect(options).await.unwrap();
}
