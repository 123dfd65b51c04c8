//! Real fail-overs with Sentinels: primaries that are killed, paused, replaced by plan, and come
//! back.
#![cfg(feature = "redis")]

use crate::redis_not_now::client as not_now_client;
use crate::redis_support::crowd::Crowd;
use crate::redis_support::*;
use leasehold_testkit::deployment::Sentinels;

const SOON: Duration = Duration::from_secs(60);

async fn client(sentinels: &Sentinels) -> Client {
    leasehold::connect(&sentinels.url()).await.unwrap()
}

fn scripts_run(server: &RedisServer) -> u64 {
    server.stats().command("evalsha").calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_outlive_the_death_of_the_primary() {
    let sentinels = Sentinels::start();
    let crowd = Crowd::start(async || client(&sentinels).await).await;
    let old = sentinels.primary();
    old.kill();
    let killed = Instant::now();
    sentinels.wait_for_another_primary(old).await;
    crowd.goes_on(killed, Duration::from_secs(2)).await;
}

/// The one that takes over has no replica, and takes no writes until the former one is back.
#[tokio::test]
async fn a_primary_without_replicas_is_waited_for() {
    let server = RedisServer::builder()
        .config("min-replicas-to-write", "1")
        .config("min-replicas-max-lag", "10");
    let sentinels = Sentinels::builder().server(server).replicas(1).start();
    sentinels.wait_for_replicas().await;
    let (holder, _) = not_now_client(&sentinels.url()).await;
    let (waiter, refusals) = not_now_client(&sentinels.url()).await;
    let held = holder.mutex("held").unwrap().lock().await.unwrap();
    let leadership = holder.election("lead").unwrap().campaign("").await.unwrap();
    let mut leaders = waiter.election("lead").unwrap().observe();
    assert!(leaders.next().await.unwrap().is_some());
    sentinels.wait_for_replicas().await;
    let old = sentinels.primary();
    old.kill();
    sentinels.wait_for_another_primary(old).await;

    let mut waiting = JoinSet::new();
    let keys = ["held", "lead", "free", "within"];
    for key in keys {
        let (lock, election) = (waiter.mutex(key).unwrap(), waiter.election(key).unwrap());
        waiting.spawn(async move {
            match key {
                "lead" => election.campaign("").await.map(drop),
                "within" => lock.lock_within(SOON).await.map(drop),
                _ => lock.lock().await.map(drop),
            }
        });
    }
    for key in keys {
        refusals.until(key, 2).await;
    }
    let tried = waiter.mutex("try").unwrap().try_lock().await;
    fails(tried, ErrorKind::Unavailable, &["too few replicas"]);

    old.start_again();
    assert_eq!(held.release().await.unwrap(), Released::Held);
    assert_eq!(leadership.resign().await.unwrap(), Released::Held);
    while let Some(granted) = timeout(SOON, waiting.join_next()).await.unwrap() {
        granted.unwrap().unwrap();
    }
    let heard = async { while leaders.next().await.is_err() {} };
    timeout(SOON, heard).await.unwrap();
}

/// It is silent, is replaced, and goes on as if it were the primary still.
#[tokio::test]
async fn a_stopped_primary_is_not_believed_when_it_goes_on() {
    let sentinels = Sentinels::start();
    let (a, b) = (client(&sentinels).await, client(&sentinels).await);
    let lease = a.mutex("k").unwrap().lock().await.unwrap();
    sentinels.wait_for_replicas().await;
    let old = sentinels.primary();
    old.stop();
    let new = sentinels.wait_for_another_primary(old).await;
    until("the lease is asked for", async || scripts_run(new) >= 1).await;
    let other = soon("another key", lock(&b, "other")).await;
    old.cont();
    assert!(try_lock(&b, "k").await.is_none() && lease.is_valid());
    give_back(other).await;
    // The Sentinels make it a replica; whoever comes finds the new one.
    let late = client(&sentinels).await;
    assert!(try_lock(&late, "k").await.is_none());
    let before = lease.token();
    give_back(lease).await;
    let next = try_lock(&late, "k").await.unwrap();
    assert!(next.token() > before);
    // And one that was demoted, and comes back as the primary.
    sentinels.wait_for_replicas().await;
    sentinels.prefer(old).await;
    assert_eq!(sentinels.fail_over().await.port(), old.port());
    give_back(next).await;
}

#[tokio::test]
async fn an_acknowledged_lease_outlives_the_death_of_the_primary() {
    let sentinels = Sentinels::start();
    let policy = "acknowledge=2&acknowledge_timeout=500ms";
    let a = leasehold::connect(format!("{}?{policy}", sentinels.url()));
    let a = a.await.unwrap();
    let b = client(&sentinels).await;
    let lease = a.mutex("k").unwrap().lock().await.unwrap();
    assert!(lease.acknowledged().unwrap().is_enough());
    let old = sentinels.primary();
    old.kill();
    let new = sentinels.wait_for_another_primary(old).await;
    let wanted = b.mutex("k").unwrap();
    let tried = answered("an answer", async || wanted.try_lock().await).await;
    assert!(tried.is_none(), "no second lease");
    assert!(lease.is_valid());
    // With one replica left two cannot acknowledge: no grant, and it is said why.
    until_answered(new, &["INFO", "replication"], "connected_slaves:1").await;
    let error = a.mutex("other").unwrap().lock().await.unwrap_err();
    says(error, [" of 2 replicas"]);
}

/// The rules of `docs/stores/`.
#[tokio::test]
async fn with_the_least_rights_a_planned_fail_over_loses_no_replicated_lease() {
    let sentinels = Sentinels::start();
    let rule = "on >secret resetchannels &+switch-master -@all +subscribe \
        +sentinel|get-master-addr-by-name +sentinel|master +sentinel|masters";
    let set = |server: &RedisServer, rule: &str| {
        let words: Vec<_> = rule.split_whitespace().collect();
        server.command(&[&["ACL", "SETUSER", "least"], &words[..]].concat());
    };
    for sentinel in sentinels.sentinels() {
        set(sentinel, rule);
        set(sentinel, "resetpass on >other");
        sentinel.command(&["ACL", "SETUSER", "default", ">watch"]);
    }
    for server in sentinels.servers() {
        set(server, &format!("on >secret {LEAST_RIGHTS} +wait"));
    }
    let url = sentinels.url().replace("://", "://least:secret@");
    // The password of the servers is not that of the Sentinels.
    let lacking = leasehold::connect(&url).await;
    hints(
        &fails(lacking, ErrorKind::Refused, &["NOAUTH"]),
        "sentinel_pass",
    );
    let open = async |url: &str| leasehold::connect(url).await.unwrap();
    // Nor is their user that of who has a password alone.
    use_once(&open(&format!("{url}?sentinel_pass=watch")).await, "k").await;
    let url = format!("{url}?sentinel_user=least&sentinel_pass=other");
    use_once(&open(&format!("{url}&acknowledge=1")).await, "k").await;
    let (a, b) = (open(&url).await, open(&url).await);
    let (lease, waiting) = contended(&a, &b, "k").await;
    sentinels.wait_for_replicas().await;
    let new = sentinels.fail_over().await;
    // At once, and not when its renewal is due: after ten seconds.
    let switched = Instant::now();
    let both = "the lease and the claim are asked for";
    until(both, async || scripts_run(new) >= 2).await;
    let took = switched.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(lease.state(), LeaseState::Held);
    let before = lease.token();
    let next = hand_over(lease, waiting).await;
    assert!(next.token() > before);
    assert_eq!(next.rejoined(), 0, "it kept its place");
    let wrong = url.replace("sentinel_pass=other", "sentinel_pass=wrong");
    let error = leasehold::connect(wrong).await.unwrap_err();
    assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
}

/// The client has no inbox yet: nobody tells it that the connection was lost.
#[tokio::test]
async fn a_lease_of_a_moment_is_checked_after_a_reconnect() {
    let server = RedisServer::start();
    let settings = Settings::default().with_ttl(Duration::from_secs(60));
    let url = format!("{}?response_timeout={}ms", server.url(), 200 * overload());
    for down in [false, true] {
        let client = client_with(&url, settings.clone()).await;
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        if down {
            // For longer than opening the inbox is waited for.
            server.kill();
            for _ in 0..5 {
                client.inspect("k").await.unwrap_err();
            }
            server.start_again();
        } else {
            server.command(&["FLUSHALL"]);
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        // Its next renewal would be due after 20 s.
        let loss = timeout(Duration::from_secs(15), lease.lost()).await;
        assert_eq!(loss.expect("it is asked for at once"), Loss::Gone, "{down}");
    }
}
