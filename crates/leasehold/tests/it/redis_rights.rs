//! Missing permissions: degraded mode, and refusals.
#![cfg(feature = "redis")]

use crate::log::Log;
use crate::redis_support::*;
use leasehold::store::redis::{ClassicStore, RedisClusterOptions, RedlockOptions, RedlockStore};
use leasehold_testkit::deployment::{Cluster, Independent, Sentinels};
use leasehold_testkit::server::RedisServerBuilder;

const ALL: &str = "on >secret ~* &* +@all";

/// A server of `program`, on which `alice` may do everything but this.
fn without(program: Program, rule: &str) -> RedisServer {
    forbidding(RedisServer::builder().program(program), rule).start()
}

fn forbidding(server: RedisServerBuilder, rule: &str) -> RedisServerBuilder {
    let server = server.user("alice", &format!("{ALL} {rule}"));
    server.user("carol", ALL)
}

fn url(server: &RedisServer) -> String {
    server.url_as("alice", "secret")
}

async fn client(store: impl LockStore) -> Client {
    client_of(Arc::new(store)).await
}

/// Three tasks that wait for a lock are served in order, the holder's release
/// succeeds, and the same of the waiters' own.
async fn serves_in_order(client: &Client) {
    let lock = client.mutex("line").unwrap();
    let held = lock.lock().await.unwrap();
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for number in 0..3 {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let lease = lock.lock().await.unwrap();
            order.lock().unwrap().push(number);
            assert_eq!(lease.release().await.unwrap(), Released::Held, "{number}");
        }));
        in_line(client, "line", number + 1).await;
    }
    let started = Instant::now();
    assert_eq!(held.release().await.unwrap(), Released::Held);
    for task in tasks {
        task.await.unwrap();
    }
    // Their renewals, by which they would find it too, are seconds away.
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[tokio::test]
async fn without_channels_those_who_wait_ask() {
    for program in Program::ALL {
        for rule in ["-subscribe", "-publish", "resetchannels"] {
            let server = without(program.clone(), rule);
            let store = connect(&url(&server)).await.unwrap();
            assert!(!store.capabilities().push, "{program:?} {rule}");
            serves_in_order(&client(store).await).await;
        }
    }
}

#[tokio::test]
async fn without_resp3_those_who_wait_ask() {
    for program in Program::ALL {
        let server = RedisServer::builder().program(program).password("hunter2");
        let server = server.config("rename-command", "HELLO \"\"").start();
        let store = connect(&server.url()).await.unwrap();
        assert!(!store.capabilities().push);
        serves_in_order(&client(store).await).await;
        let wrong = connect(&server.url().replace("hunter2", "wr0ng")).await;
        fails(wrong, ErrorKind::Refused, &[]);
    }
}

/// Nobody cuts the claims of a client that cannot hear, which would look dead.
#[tokio::test]
async fn those_who_hear_and_those_who_do_not_wait_for_each_other() {
    let server = without(Program::Default, "resetchannels");
    let deaf = connect(&url(&server)).await.unwrap();
    let hears = connect(&server.url_as("carol", "secret")).await.unwrap();
    assert!(!deaf.capabilities().push && hears.capabilities().push);
    let (_ear, mut pushes) = listen(&hears).await;
    let name = key("k");
    assert!(hears.claim(&name, &claim(&hears, 1)).await.unwrap().holds());
    for (number, store) in [(2, &deaf), (3, &hears), (4, &deaf)] {
        store.claim(&name, &claim(store, number)).await.unwrap();
    }
    let freed = ReleaseReply::Released { held: true };
    for number in [1, 2, 3] {
        let store = if number == 2 { &deaf } else { &hears };
        let released = store.release(&name, &release(number)).await.unwrap();
        assert_eq!(released.reply, freed, "{number}");
        let look = hears.inspect(&name).await.unwrap();
        assert_eq!(look.holders.len(), 1, "{number}");
        // One that was taken for dead has a second left.
        let waiting = look.waiters.iter().map(|waiter| &waiter.claim);
        for claim in waiting.chain([&look.holders[0].claim]) {
            let left = claim.deadline.since(released.at);
            assert!(left > Duration::from_secs(2), "{number}: {left:?}");
        }
    }
    // Those that can be told are: that they are next, and what others did.
    let mut next_in_line = 0;
    while let Ok(push) = pushes.try_recv() {
        next_in_line += usize::from(matches!(push, Push::Next { .. }));
    }
    assert_eq!(next_in_line, 1, "by the release of the first");
}

#[tokio::test]
async fn one_who_hears_is_served_after_one_who_cannot_tell() {
    let server = without(Program::Default, "resetchannels");
    let short = Duration::from_millis(1_500);
    let client = async |user: &str| {
        let settings = Settings::default().with_waiter_ttl(short);
        client_with(&server.url_as(user, "secret"), settings).await
    };
    let (deaf, hears) = (client("alice").await, client("carol").await);
    let (held, waiter) = contended(&deaf, &hears, "k").await;
    let started = Instant::now();
    let _lease = hand_over(held, waiter).await;
    // A third of its waiter TTL, and room for a busy machine.
    assert!(started.elapsed() < short, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_in_full() {
    for program in Program::ALL {
        let server = without(program, "-script");
        let store = connect(&url(&server)).await.unwrap();
        let key = key("k");
        for number in [1, 2] {
            let claimed = store.claim(&key, &claim(&store, number)).await.unwrap();
            assert_eq!(claimed.holds(), number == 1);
            server.command(&["SCRIPT", "FLUSH"]);
        }
        store.release(&key, &release(1)).await.unwrap();
        assert!(store.renew(&key, &renew(2)).await.unwrap().holds());
    }
}

#[tokio::test]
async fn without_any_scripts_it_is_refused_at_once() {
    for program in Program::ALL {
        for rule in ["-eval", "-evalsha", "-@scripting"] {
            let server = without(program.clone(), rule);
            let native = connect(&format!("{}?prefix=app:", url(&server))).await;
            let classic = format!("{}?layout=classic&prefix=app:", url(&server));
            let classic = ClassicStore::connect(RedisOptions::from_url(&classic).unwrap()).await;
            let parts = ["Refused", "forbids scripts", "EVAL and EVALSHA", "~app:*"];
            for error in [native.unwrap_err(), classic.unwrap_err()] {
                says(format!("{program:?} {rule}: {error:?}"), parts);
            }
        }
    }
}

/// A script that may not do all that it must would stop halfway.
#[tokio::test]
async fn what_scripts_may_not_run_is_named_at_once() {
    for program in Program::ALL {
        for (rule, named) in [
            ("-time", "TIME"),
            ("-hset", "HSET"),
            ("-pexpire -del", "DEL, PEXPIRE"),
            ("-set -setrange", "SET, SETRANGE"),
            ("resetkeys ~other:*", "MGET, EXISTS, TYPE, SET"),
        ] {
            let server = without(program.clone(), rule);
            let error = fails(connect(&url(&server)).await, ErrorKind::Refused, &[]);
            says(format!("{program:?} {rule}: {error}"), [named]);
            let keys: u64 = server.query(&["DBSIZE"]);
            assert_eq!(keys, 0, "asking changes nothing");
        }
        let server = without(program.clone(), "");
        let server = (server, RedisServer::builder().program(program));
        connect(&url(&server.0)).await.unwrap();
        assert_eq!(server.0.query::<u64>(&["DBSIZE"]), 0);
        let renamed = server.1.config("rename-command", "TIME \"\"").start();
        says(connect(&renamed.url()).await.unwrap_err(), ["TIME"]);
    }
}

#[tokio::test]
async fn without_info_what_rests_on_it_is_refused() {
    for program in Program::ALL {
        let server = without(program.clone(), "-info");
        let store = connect(&url(&server)).await.unwrap();
        assert!(store.capabilities().push, "{program:?}");
        serves_in_order(&client(store).await).await;

        let acknowledged = connect(&format!("{}?acknowledge=1", url(&server))).await;
        fails(acknowledged, ErrorKind::Unsupported, &["run id"]);
    }
    let primary = RedisServer::start();
    let replica = forbidding(RedisServer::builder(), "-info");
    let replica = replica.replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    let store = connect(&url(&replica)).await.unwrap();
    let error = store.claim(&key("k"), &claim(&store, 1)).await.unwrap_err();
    says(error, ["read-only replica"]);
}

#[tokio::test]
async fn without_wait_nothing_is_acknowledged() {
    for program in Program::ALL {
        let server = without(program, "-wait");
        let connected = connect(&format!("{}?acknowledge=1", url(&server))).await;
        let error = fails(connected, ErrorKind::Refused, &["needs WAIT"]);
        assert_eq!(error.hint(), Some("add +wait to the user's ACL rule"));
        connect(&url(&server)).await.unwrap();
    }
}

/// Refused at connect, with the right that it needs; and a log that cannot be written later stops
/// no step.
#[tokio::test]
async fn an_audit_log_needs_a_right_of_its_own() {
    for program in Program::ALL {
        let server = without(program, "-xadd");
        let audited = |name: &str| format!("{}?audit=1000", server.url_as(name, "secret"));
        let error = format!("{:?}", connect(&audited("alice")).await.unwrap_err());
        says(&error, ["Refused", "XADD", "+xadd"]);
        connect(&url(&server)).await.unwrap();
        let store = connect(&audited("carol")).await.unwrap();
        let _: String = server.query(&["SET", "leasehold:audit", "something else"]);
        let (key, claim) = (key("k"), claim(&store, 1));
        assert!(store.claim(&key, &claim).await.unwrap().holds());
        let mut log = store.audit_log(Some(&key), StoreTime(0)).unwrap();
        let error = log.next_page().await.unwrap_err().to_string();
        says(&error, ["leasehold:audit is not an audit log"]);
    }
}

#[tokio::test]
async fn what_is_seldom_needed_is_missed_seldom() {
    for program in Program::ALL {
        let server = without(program, "-ping -client -select -scan -hello -acl -config");
        let store = connect(&url(&server)).await.unwrap();
        assert!(store.capabilities().push);
        let key = key("k");
        store.claim(&key, &claim(&store, 1)).await.unwrap();
        let listed = store.list("*").await;
        fails(listed, ErrorKind::Refused, &["may not do this"]);
        store.release(&key, &release(1)).await.unwrap();
        let third = connect(&format!("{}?db=3", url(&server))).await;
        fails(third, ErrorKind::Refused, &["select"]);
    }
}

#[tokio::test]
async fn what_is_missing_is_said_once() {
    let log = Log::start();
    let server = without(Program::Default, "-subscribe -info");
    let store = connect(&url(&server)).await.unwrap();
    let said = log.lines("WARN");
    for (line, parts) in said.iter().zip([
        ["INFO is forbidden", "+info"],
        ["SUBSCRIBE is forbidden", "+subscribe"],
    ]) {
        says(line, parts);
    }
    assert_eq!(said.len(), 2, "{said:#?}");
    // After a reconnect it is found out again, and not said again.
    server.command(&["ACL", "LOG", "RESET"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let key = key("k");
    until("it comes back", async || store.inspect(&key).await.is_ok()).await;
    let tried: Vec<redis::Value> = server.query(&["ACL", "LOG"]);
    assert!(!tried.is_empty());
    assert_eq!(log.lines("WARN"), said);
    assert!(!said.join("").contains("secret"));
}

#[tokio::test]
async fn a_right_that_is_lost_later_costs_pushes_only() {
    let server = without(Program::Default, "");
    let connected = async || client(connect(&url(&server)).await.unwrap()).await;
    let (a, b) = (connected().await, connected().await);
    let (held, waiter) = contended(&a, &b, "k").await;
    // The server ends the connections of those who listen.
    server.command(&["ACL", "SETUSER", "alice", "resetchannels"]);
    let started = Instant::now();
    let _lease = hand_over(held, waiter).await;
    assert!(started.elapsed() < Duration::from_secs(3));
    // Who watches looks again, long before the watch has to be renewed.
    let mut leaders = b.election("lead").unwrap().observe();
    assert!(leaders.next().await.unwrap().is_none());
    let started = Instant::now();
    let _leads = a.election("lead").unwrap().campaign("").await.unwrap();
    assert!(leaders.next().await.unwrap().is_some());
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn behind_sentinels() {
    let server = forbidding(RedisServer::builder(), "resetchannels -info");
    let sentinels = Sentinels::builder().server(server).start();
    let url = sentinels.url().replace("://", "://alice:secret@");
    let store = connect(&url).await.unwrap();
    assert!(!store.capabilities().push);
    serves_in_order(&client(store).await).await;
}

#[tokio::test]
async fn in_a_cluster() {
    let log = Log::start();
    let server = forbidding(RedisServer::builder(), "resetchannels -info");
    let cluster = Cluster::builder().server(server).start();
    let url = cluster.url().replace("://", "://alice:secret@");
    let options = RedisClusterOptions::from_url(&url).unwrap();
    let store = RedisStore::connect_cluster(options).await.unwrap();
    assert!(!store.capabilities().push);
    let client = client(store).await;
    serves_in_order(&client).await;
    for number in 0..20 {
        use_once(&client, &format!("k{number}")).await;
    }
    let said = log.lines("WARN");
    assert_eq!(said.len(), 3, "of all nodes together: {said:#?}");
}

/// As behind a proxy over several servers: no call may have two keys.
#[tokio::test]
async fn where_nobody_says_that_keys_lie_apart() {
    let server = forbidding(RedisServer::builder(), "-info");
    let cluster = Cluster::builder().server(server).start();
    let url = cluster.url().replace("-cluster://", "://alice:secret@");
    let store = connect(url.split(',').next().unwrap()).await.unwrap();
    let keys: Vec<_> = (0..40).map(|number| key(&format!("k{number}"))).collect();
    let claims = keys.iter().map(|key| {
        let claim = claim(&store, 1);
        let store = &store;
        async move { store.claim(key, &claim).await.is_ok() }
    });
    let claimed = futures_util::future::join_all(claims);
    let granted = timeout(Duration::from_secs(20), claimed).await;
    let granted = granted.expect("each is answered, if only with a refusal");
    for (key, granted) in keys.iter().zip(&granted) {
        // It serves a third of all slots, and refuses the others, whoever asks.
        let renewed = store.renew(key, &renew(1)).await;
        assert_eq!(renewed.is_ok(), *granted, "{key}: {renewed:?}");
    }
    assert!(granted.contains(&true) && granted.contains(&false));
}

#[tokio::test]
async fn with_a_vote() {
    let start = |rule: &str| {
        let server = forbidding(RedisServer::builder(), rule);
        Independent::builder(3).server(server).start()
    };
    let open = async |servers: &Independent| {
        let url = servers.url().replace("127.0.0.1", "alice:secret@127.0.0.1");
        let options = RedlockOptions::from_url(&format!("{url}?quarantine=0s"));
        RedlockStore::connect(options.unwrap()).await
    };
    let servers = start("-hset -del");
    let error = fails(open(&servers).await, ErrorKind::Refused, &[]);
    for server in servers.servers() {
        let said = "scripts of this user may not run DEL, HSET";
        says(&error, [format!("127.0.0.1:{}: {said}", server.port())]);
    }
    says(error.hint().unwrap(), ["+del", "+hset"]);
    // One of them may lack it.
    for server in [&servers[0], &servers[2]] {
        server.command(&["ACL", "SETUSER", "alice", "+hset", "+del"]);
    }
    let two = client(open(&servers).await.unwrap()).await;
    use_once(&two, "k").await;

    let servers = start("resetchannels");
    let store = open(&servers).await.unwrap();
    assert!(!store.capabilities().push);
    let client = client(store).await;
    let held = client.mutex("k").unwrap().lock().await.unwrap();
    let waiter = waiting(&client, "k");
    yield_now().await;
    let _lease = hand_over(held, waiter).await;

    let error = open(&start("-info")).await.unwrap_err();
    says(format!("{error:?}"), ["run id"]);
}
