//! Acknowledged grants, with real replicas that stop, are cut off and are promoted.
#![cfg(feature = "redis")]

use crate::redis_support::{self, *};

fn with_replicas(count: usize) -> (RedisServer, Vec<RedisServer>) {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port());
    let replicas = (0..count).map(|_| replica.clone().start()).collect();
    in_step(&primary, count);
    (primary, replicas)
}

/// Twice: one that has just come to a Valkey answers its first `WAIT` after a second.
fn in_step(primary: &RedisServer, replicas: usize) {
    primary.wait_for_replicas(replicas);
    primary.wait_for_replicas(replicas);
}

async fn client_with(server: &RedisServer, query: &str) -> Client {
    client_as(server, query, Settings::default()).await
}

async fn client_as(server: &RedisServer, query: &str, settings: Settings) -> Client {
    redis_support::client_with(&format!("{}?{query}", server.url()), settings).await
}

fn promote(replica: &RedisServer) {
    replica.command(&["REPLICAOF", "NO", "ONE"]);
}

/// As if the network between them had failed: it waits for a primary that is nowhere.
fn cut_off(replica: &RedisServer) {
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
}

#[tokio::test]
async fn a_grant_says_who_has_it() {
    let (primary, replicas) = with_replicas(2);
    for (policy, wanted) in [("1", 1), ("2", 2), ("majority", 2)] {
        let client = client_with(&primary, &format!("acknowledge={policy}")).await;
        let lease = client.mutex(policy).unwrap().lock().await.unwrap();
        let acknowledged = lease.acknowledged().unwrap();
        assert_eq!(acknowledged.wanted, wanted);
        assert!(acknowledged.is_enough(), "{acknowledged}");
        let record = format!("leasehold:lock:{policy}");
        let has_it = |it: &&RedisServer| it.query::<bool>(&["EXISTS", &record]);
        let there = replicas.iter().filter(has_it).count();
        assert!(there >= wanted as usize, "{there} replicas have it");
    }
    let client = client_with(&primary, "acknowledge=none").await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(lease.acknowledged(), None);
}

/// Claims travel on connections of their own, which releases could overtake; and the key
/// remembers a few of those who have left only.
#[tokio::test]
async fn a_claim_that_was_given_up_on_its_way_holds_nothing_however_many_leave() {
    let (primary, _replicas) = with_replicas(1);
    let proxy = Proxy::to(&primary);
    let url = proxy.through(&format!("{}?acknowledge=1", primary.url()));
    let strict = Arc::new(connect(&url).await.unwrap());
    let plain = store(&primary).await;
    let key = key("k");
    // From here on the server knows the scripts.
    strict.claim(&key, &claim(&strict, 1)).await.unwrap();
    strict.release(&key, &release(1)).await.unwrap();
    let before = plain.inspect(&key).await.unwrap().last_token;

    let held = proxy.hold_request(|it| it.is("EVALSHA") && it.has("lock:k"), 1);
    let asking = tokio::spawn({
        let (store, key, claim) = (strict.clone(), key.clone(), claim(&strict, 2));
        async move { store.claim(&key, &claim).await }
    });
    held.wait().await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    let leaving = tokio::spawn({
        let (store, key) = (strict.clone(), key.clone());
        async move { store.release(&key, &release(2)).await }
    });
    for number in 100..300 {
        plain.release(&key, &release(number)).await.unwrap();
    }
    held.release();
    leaving.await.unwrap().unwrap();
    let last = async || plain.inspect(&key).await.unwrap().last_token;
    until("the claim arrives", async || last().await != before).await;
    let seen = plain.inspect(&key).await.unwrap();
    assert!(seen.holders.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn without_a_replica_there_is_no_grant_and_nothing_is_left() {
    let (primary, replicas) = with_replicas(2);
    let strict = client_with(&primary, "acknowledge=2").await;
    let plain = client_with(&primary, "").await;
    replicas[0].stop();
    let started = Instant::now();
    let unheard = strict.mutex("k").unwrap().lock().await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    let why = "not acknowledged within 1s: 1 of 2 replicas answered";
    fails(unheard, ErrorKind::Unavailable, &[why]);
    // Given back in the background: long before its TTL.
    let given_back = async |key: &str| soon("the key", use_once(&plain, key)).await;
    given_back("k").await;
    let several = strict.multi(["a", "b"]).unwrap();
    says(several.lock().await.unwrap_err(), ["1 of 2 replicas"]);
    given_back("a").await;
    given_back("b").await;
    replicas[0].cont();
    in_step(&primary, 2);
    let lease = strict.mutex("k").unwrap().lock().await.unwrap();
    assert!(lease.acknowledged().unwrap().is_enough());
}

#[tokio::test]
async fn who_waits_for_replicas_holds_up_nobody_else() {
    let (primary, replicas) = with_replicas(1);
    let client = client_with(&primary, "acknowledge=1&acknowledge_timeout=10s").await;
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    replicas[0].stop();
    let wanted = client.mutex("wanted").unwrap();
    let waiting = wanted.lock();
    let others = async {
        client.inspect("held").await.unwrap();
        client.list("*").await.unwrap();
        let _ = held.release().await.unwrap();
    };
    tokio::select! {
        _ = waiting => panic!("nobody has acknowledged it"),
        () = others => {}
    }
}

/// Nor does who tells the server a script that it has forgotten.
#[tokio::test]
async fn who_waits_for_replicas_holds_up_no_other_script() {
    let (primary, replicas) = with_replicas(1);
    let url = format!("{}?acknowledge=1&acknowledge_timeout=10s", primary.url());
    let strict = Arc::new(connect(&url).await.unwrap());
    primary.command(&["SCRIPT", "FLUSH"]);
    in_step(&primary, 1);
    replicas[0].stop();
    let told = || primary.stats().command("eval").calls;
    let before = told();
    let claiming = tokio::spawn({
        let (store, claim) = (strict.clone(), claim(&strict, 1));
        async move { store.claim(&key("k"), &claim).await }
    });
    until("it tells the server its script", async || told() > before).await;
    strict.inspect(&key("k")).await.unwrap();
    assert!(!claiming.is_finished(), "nobody has acknowledged it");
}

/// The release that grants is another client's, who waits for nobody.
#[tokio::test]
async fn a_pushed_grant_is_acknowledged_before_it_is_used() {
    let (primary, replicas) = with_replicas(1);
    let plain = client_with(&primary, "").await;
    for stops in [false, true] {
        for renewals in ["yes", "no"] {
            let query =
                format!("acknowledge=1&acknowledge_timeout=300ms&acknowledge_renewals={renewals}");
            let strict = client_with(&primary, &query).await;
            let (held, waiting) = contended(&plain, &strict, "k").await;
            if stops {
                replicas[0].stop();
            }
            let _ = held.release().await.unwrap();
            let granted = soon("an answer", waiting).await.unwrap();
            if stops {
                fails(granted, ErrorKind::Unavailable, &["0 of 1 replica"]);
                soon("the key", use_once(&plain, "k")).await;
                replicas[0].cont();
                in_step(&primary, 1);
            } else {
                assert!(granted.unwrap().acknowledged().unwrap().is_enough());
            }
        }
    }
}

#[tokio::test]
async fn renewals_obey_by_choice() {
    let (primary, replicas) = with_replicas(1);
    let ttl = Settings::default().with_ttl(Duration::from_secs(6));
    let query = "acknowledge=1";
    let strict = client_as(&primary, query, ttl.clone()).await;
    let lax = client_as(&primary, &format!("{query}&acknowledge_renewals=no"), ttl).await;
    let strictly = strict.mutex("strict").unwrap().lock().await.unwrap();
    let laxly = lax.mutex("lax").unwrap().lock().await.unwrap();
    replicas[0].stop();
    assert_eq!(soon("the loss", strictly.lost()).await, Loss::Unanswered);
    assert_eq!(laxly.state(), LeaseState::Held);
    assert!(laxly.is_valid());
    fails(strictly.renew().await, ErrorKind::Lost, &[]);
}

/// Whoever asks the promoted replica finds the lease there.
#[tokio::test]
async fn an_acknowledged_grant_outlives_its_primary() {
    let (primary, replicas) = with_replicas(1);
    let client = client_with(&primary, "acknowledge=1").await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    primary.kill();
    promote(&replicas[0]);
    let other = client_with(&replicas[0], "").await;
    assert!(try_lock(&other, "k").await.is_none());
    assert!(lease.is_valid());
}

/// Without acknowledgement two clients believe that they hold; their tokens say
/// who is the later one all the same.
#[tokio::test]
async fn an_unacknowledged_grant_can_be_given_twice_and_tokens_tell() {
    let (primary, replicas) = with_replicas(1);
    cut_off(&replicas[0]);
    let client = client_with(&primary, "").await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    primary.kill();
    promote(&replicas[0]);
    let other = client_with(&replicas[0], "").await;
    let second = other.mutex("k").unwrap().try_lock().await.unwrap().unwrap();
    assert!(lease.is_valid() && second.is_valid(), "the double grant");
    assert!(second.token() > lease.token());
}

/// What closes it only in part: one of two has acknowledged, the other is promoted.
#[tokio::test]
async fn one_of_two_replicas_is_not_enough_if_the_other_is_promoted() {
    let (primary, replicas) = with_replicas(2);
    cut_off(&replicas[1]);
    let client = client_with(&primary, "acknowledge=1").await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert!(lease.acknowledged().unwrap().is_enough());
    primary.kill();
    promote(&replicas[1]);
    let other = client_with(&replicas[1], "").await;
    let second = other.mutex("k").unwrap().try_lock().await.unwrap().unwrap();
    assert!(lease.is_valid() && second.token() > lease.token());
}

#[tokio::test]
async fn many_are_acknowledged_together() {
    let (primary, _replicas) = with_replicas(1);
    let client = client_with(&primary, "acknowledge=1").await;
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let lock = client.mutex(format!("k{}", number % 50)).unwrap();
        tasks.spawn(async move {
            let lease = lock.lock().await.unwrap();
            assert!(lease.acknowledged().unwrap().is_enough());
            let _ = lease.release().await.unwrap();
        });
    }
    soon("all grants", tasks.join_all()).await;
    // After a moment one connection is left of those that wait, besides the shared one.
    let clients = |kind| primary.query::<String>(&["CLIENT", "LIST", "TYPE", kind]);
    let connections = || {
        let ours = |line: &&str| line.contains("addr=127");
        clients("normal").lines().filter(ours).count() + clients("pubsub").lines().count()
    };
    until("two connections", async || connections() <= 2).await;
}

/// From 7.2 on `WAIT` waits for what its own connection has written: an answer
/// that changes nothing must write all the same.
#[tokio::test]
async fn every_repetition_writes() {
    for program in [Program::Default, Program::Valkey] {
        let server = RedisServer::builder().program(program);
        let primary = server.clone().start();
        let _replica = server.replica_of(primary.port()).start();
        in_step(&primary, 1);
        repetitions_write(&primary).await;
    }
}

async fn repetitions_write(primary: &RedisServer) {
    let store = store(primary).await;
    let parts = [(key("other"), trying(&store, 3))];
    let (key, shorter) = (key("k"), Renew::new(id(1), Duration::from_secs(1)));
    let offset = || {
        let info: String = primary.query(&["INFO", "replication"]);
        let mut lines = info.lines();
        let offset = lines.find_map(|line| line.trim().strip_prefix("master_repl_offset:"));
        offset.map_or(0, |offset| offset.parse::<u64>().unwrap())
    };
    queue_up(&store, &key, [1, 2]).await;
    store.claim_all(&parts).await.unwrap();
    // Pings of the primary to its replicas come every ten seconds.
    for (what, asks) in [
        ("claim again", 0),
        ("claim again while waiting", 1),
        ("renew, shorter", 2),
        ("claim all again", 3),
    ] {
        let before = offset();
        match asks {
            0 => drop(store.claim(&key, &claim(&store, 1)).await.unwrap()),
            1 => drop(store.claim(&key, &claim(&store, 2)).await.unwrap()),
            2 => drop(store.renew(&key, &shorter).await.unwrap()),
            _ => drop(store.claim_all(&parts).await.unwrap()),
        }
        let grown = offset() - before;
        assert!(grown > 50, "{what}: {grown} bytes");
    }
}

#[tokio::test]
async fn what_cannot_be_acknowledged_is_refused_at_once() {
    let memory_only = RedisServer::start();
    let on_disk = async |said: &[&str]| {
        let url = format!("{}?acknowledge=disk", memory_only.url());
        fails(leasehold::connect(url).await, ErrorKind::Refused, said)
    };
    if memory_only.try_command(&["WAITAOF", "0", "0", "0"]).is_ok() {
        on_disk(&["appendonly no"]).await;
        memory_only.command(&["CONFIG", "SET", "appendonly", "yes"]);
        memory_only.command(&["CONFIG", "SET", "appendfsync", "no"]);
        on_disk(&["appendfsync no"]).await;
    } else {
        says(on_disk(&[]).await.hint().unwrap(), ["7.2"]);
    }
}

#[tokio::test]
async fn a_grant_is_on_disk_if_the_policy_says_so() {
    // Redis 7.0 cannot: see `what_cannot_be_acknowledged_is_refused_at_once`.
    let server = RedisServer::builder().program(Program::Valkey).persistent();
    let primary = server.clone().start();
    let replica = server.replica_of(primary.port()).start();
    in_step(&primary, 1);
    let disk = client_with(&primary, "acknowledge=disk").await;
    let both = client_with(&primary, "acknowledge=disk:1&acknowledge_timeout=2s").await;
    let lease = disk.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(lease.acknowledged().unwrap().disk, Some(true));
    let lock = both.mutex("both").unwrap();
    let lease = lock.lock().await.unwrap();
    assert!(lease.acknowledged().unwrap().is_enough());
    let _ = lease.release().await.unwrap();
    replica.stop();
    let error = lock.lock().await.unwrap_err();
    says(&error, ["on those of 0 of 1 replica"]);
}
