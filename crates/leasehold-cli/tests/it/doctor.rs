//! `leasehold doctor` as a process, on servers with something the matter.

use std::net::TcpListener;

use crate::common::*;
use leasehold_testkit::deployment::{Cluster, Independent, Sentinels};
use leasehold_testkit::postgres::{PgBouncer, Postgres, psql, sql_at};
use leasehold_testkit::server::Program;
use leasehold_testkit::zookeeper::ZooKeeper;
use tokio::time::Instant;

/// Asks again where all that is wrong may be that this machine is busy.
async fn doctor(url: &str) -> Finished {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = run_at(url, "doctor --json").await;
        let is_slow = serde_json::from_str::<Value>(&seen.stdout).is_ok_and(|report| {
            let findings = report["findings"].as_array().into_iter().flatten();
            let slow =
                |finding: &Value| finding["check"] == "latency" && finding["severity"] == "warning";
            findings.into_iter().any(slow)
        });
        if !is_slow || Instant::now() > deadline {
            return seen;
        }
    }
}

/// The findings that are worse than fine: how bad, and what was looked at.
fn complaints(report: &Finished) -> Vec<String> {
    let report = report.json();
    let words = |finding: &Value| {
        let word = |name: &str| finding[name].as_str().unwrap().to_owned();
        format!("{} {}", word("severity"), word("check"))
    };
    let findings = report["findings"].as_array().unwrap().iter().map(words);
    findings.filter(|it| !it.starts_with("fine ")).collect()
}

/// Expects these complaints.
async fn complains(url: &str, expected: &[&str]) -> Finished {
    let seen = doctor(url).await;
    assert_eq!(complaints(&seen), expected, "{seen}");
    seen
}

/// Expects this status, too.
async fn finds(url: &str, code: i32, expected: &[&str]) -> Finished {
    let seen = complains(url, expected).await;
    seen.has_code(Some(code));
    seen
}

/// Expects that nothing of this is shown.
#[track_caller]
fn hides(report: &Finished, secret: &str) {
    assert!(!report.stdout.contains(secret), "{report}");
}

/// What it promises.
fn promise(report: &Finished) -> String {
    report.json()["promise"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn nothing_is_promised_where_locks_cannot_be_used() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    let rights = "on >secret ~leasehold:* &leasehold:* +@all -hset";
    let strict = RedisServer::builder().user("bob", rights).start();
    let node = RedisServer::builder().cluster().start();
    for url in [replica.url(), strict.url_as("bob", "secret"), node.url()] {
        let seen = doctor(&url).await;
        seen.has_code(Some(2));
        let promised = promise(&seen);
        assert_eq!(promised, "Nothing: locks cannot be used here.", "{seen}");
    }
}

/// There, who has a key of its own hears and speaks on everybody's channels.
#[tokio::test]
async fn users_of_an_old_server_who_may_speak_on_all_channels_are_named() {
    let old = RedisServer::builder()
        .program(Program::OldestRedis)
        .user("bob", "on >secret ~app:* +@all")
        .user("eve", "on >secret ~app:* resetchannels +@all")
        .persistent()
        .start();
    let seen = complains(&old.url(), &["note channels"]).await;
    seen.has_shown("all channels: bob\"");
    seen.has_shown("resetchannels, with &leasehold:*");
}

#[tokio::test]
async fn a_server_that_syncs_always_is_fine() {
    let server = RedisServer::builder().persistent().start();
    finds(&server.url(), 0, &[]).await.has_been_quiet(Some(0));
}

#[tokio::test]
async fn what_a_restart_forgets_is_a_warning() {
    let server = RedisServer::start();
    finds(&server.url(), 1, &["warning persistence"]).await;
    let mut command = leasehold(("doctor -S", &server.url()));
    command.env_remove("LEASEHOLD_STORE");
    let text = Process::run(command).await.stdout;
    let line = text.lines().find(|line| line.contains("persistence"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words, ["warning", "persistence", "none"]);
    let remedy = "remedy: set appendonly yes";
    says(&text, [remedy, "Promised here: Exclusion"]);
}

#[tokio::test]
async fn evicted_locks_a_missing_right_and_nobody_there_are_unsafe() {
    let persistent = RedisServer::builder().persistent();
    let evicting = persistent.clone().config("maxmemory", "100mb");
    let evicting = evicting.config("maxmemory-policy", "volatile-ttl").start();
    let promised = promise(&finds(&evicting.url(), 2, &["unsafe eviction"]).await);
    assert!(promised.starts_with("Exclusion"), "{promised}");
    says(&promised, ["maxmemory-policy volatile-ttl"]);

    let rights = "on >secret ~leasehold:* &leasehold:* +@all -hset";
    let strict = persistent.user("bob", rights).start();
    let seen = finds(&strict.url_as("bob", "secret"), 2, &["unsafe scripts"]).await;
    seen.has_shown("ACL SETUSER bob on");
    hides(&seen, "secret");

    let gone = RedisServer::start().url();
    for (url, cause) in [
        (gone, "connection refused"),
        (strict.url_as("bob", "another"), "WRONGPASS"),
    ] {
        finds(&url, 2, &["unsafe reach"]).await.has_shown(cause);
    }
}

#[tokio::test]
async fn what_can_be_done_without_is_a_warning() {
    let rights = "on >secret ~* resetchannels +@all -info -scan";
    let server = RedisServer::builder().persistent();
    let server = server.user("bob", rights).start();
    let expected = [
        "warning info",
        "warning pushes",
        "warning pushes",
        "note listing",
    ];
    finds(&server.url_as("bob", "secret"), 1, &expected).await;
}

#[tokio::test]
async fn who_acknowledges_is_found_out() {
    let primary = RedisServer::builder().persistent().start();
    let url = |timeout: &str| {
        let url = primary.url();
        format!("{url}?acknowledge=1&acknowledge_timeout={timeout}")
    };
    let seen = doctor(&url("100ms")).await;
    let found = complaints(&seen);
    assert!(found.contains(&"unsafe acknowledged".to_owned()), "{seen}");
    seen.has_code(Some(2));

    let replica = RedisServer::builder().replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    // One that has just come may take a second until it answers.
    let seen = doctor(&url("10s")).await;
    let found = complaints(&seen);
    assert!(found.contains(&"note acknowledged".to_owned()), "{seen}");
    drop(replica);
}

#[tokio::test]
async fn the_store_of_this_machine_is_examined_too() {
    let directory = tempfile::tempdir().unwrap();
    finds(&format!("local:{}", directory.path().display()), 0, &[]).await;
    assert_eq!(complaints(&doctor("memory:").await).len(), 1);
    doctor("gopher://x/").await.has_code(Some(64));
}

/// They are refused as by all that use the store, of which nothing is known then.
#[tokio::test]
async fn wrong_settings_are_no_finding() {
    let urls = "redis://h/ rediss://h/ rediss-cluster://h/ redlock://a,b,c/ zookeeper://h/p";
    for url in urls.split(' ') {
        for subcommand in ["ls", "doctor"] {
            let refused = run_at(url, format!("{subcommand} --tls-ca /no/such")).await;
            refused.has_printed(Some(64), "");
        }
    }
}

/// `chmod go-w /tmp` would take it away from everybody.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_remedy_is_worse_than_what_it_is_for() {
    let seen = doctor("local:/tmp").await;
    seen.has_code(Some(2));
    seen.has_shown("\"remedy\":\"name a directory of your own below it: local:/tmp/");
    hides(&seen, "chmod");
}

#[tokio::test]
async fn servers_with_a_vote_each_are_examined_together() {
    let servers = Independent::start(3);
    let seen = doctor(&servers.url()).await;
    // New servers wait for the end of a quarantine.
    seen.has_code(Some(2));
    let found = complaints(&seen);
    let votes = found.iter().filter(|found| found.ends_with(" vote"));
    assert_eq!(votes.count(), 4, "each, and all together: {found:?}");
    assert!(promise(&seen).starts_with("Nothing until 2 servers vote."));
    // What is true of all of them is not said of the last.
    let text = run_at(&servers.url(), "doctor").await;
    text.has_shown("\n\nall servers\n  unsafe   vote");

    // What it says helps: it has not started the quarantine.
    let run = async |arguments: &str| run_at(&servers.url(), arguments).await;
    run("init").await.has_code(Some(0));
    run("run -n k -- true").await.has_code(Some(0));
    finds(&servers.url(), 0, &["note persistence"; 3]).await;
    servers[1].kill();
    let seen = doctor(&servers.url()).await;
    let found = complaints(&seen);
    let gone = found.iter().filter(|found| *found == "warning reach");
    assert_eq!(gone.count(), 1);
    assert_eq!((found.len(), seen.code()), (3, Some(1)), "{found:?}");
}

/// The lock that is tried lasts no longer than a lock of the set may: it was refused there.
#[tokio::test]
async fn a_set_whose_locks_are_short_is_examined() {
    let servers = Independent::start(3);
    let url = format!("{}?max_ttl=999ms", servers.url());
    run_at(&url, "init").await.has_code(Some(0));
    finds(&url, 0, &["note persistence"; 3]).await;
}

/// It votes at once, so nobody has to mark its servers; and it promises less.
#[tokio::test]
async fn a_set_without_quarantine_is_examined() {
    let servers = Independent::start(3);
    let url = format!("{}?quarantine=0s", servers.url());
    let seen = finds(&url, 1, &["warning persistence"; 3]).await;
    says(promise(&seen), ["until a server restarts without its data"]);
}

#[tokio::test]
async fn a_right_that_a_server_with_a_vote_lacks_is_named_with_the_server() {
    let rights = "on >secret ~leasehold:* resetchannels &leasehold:* +@all";
    let each = RedisServer::builder().persistent().user("bob", rights);
    let servers = Independent::builder(3).server(each).start();
    servers[1].command(&["ACL", "SETUSER", "bob", "-hset"]);
    let url = servers.url().replace("127.0.0.1", "bob:secret@127.0.0.1");
    run_at(&url, "init").await;
    let seen = doctor(&url).await;
    let mut lacks = seen.json()["findings"].as_array().unwrap().clone();
    lacks.retain(|it| it["check"] == "scripts" && it["severity"] == "warning");
    assert_eq!(lacks.len(), 1, "{}", seen.stdout);
    let port = servers[1].port().to_string();
    says(&lacks[0], [&*port, "HSET", "ACL SETUSER", "+hset"]);
    hides(&seen, "secret");
}

#[tokio::test]
async fn each_primary_of_a_cluster_is_examined() {
    let cluster = Cluster::start();
    let seen = doctor(&cluster.url()).await;
    let found = complaints(&seen);
    for check in ["persistence", "replicas", "isolation"] {
        let count = found.iter().filter(|found| found.ends_with(check)).count();
        assert_eq!(count, 3, "{check}: {found:?}");
    }
    seen.has_code(Some(1));
    seen.has_shown("handed to a waiter");
}

#[tokio::test]
async fn the_primary_that_sentinels_name_is_examined() {
    let sentinels = Sentinels::start();
    let seen = doctor(&sentinels.url()).await;
    seen.has_code(Some(1));
    says(complaints(&seen).join(", "), [" isolation"]);
    let of_sentinels = |seen: &Finished| {
        let found = complaints(seen).into_iter();
        let about = found.filter_map(|it| Some(it.split_once(" sentinel")?.0.to_owned()));
        about.collect::<Vec<_>>()
    };
    assert_eq!(of_sentinels(&seen), Vec::<String>::new(), "{}", seen.stdout);
    sentinels.sentinels()[0].kill();
    let seen = doctor(&sentinels.url()).await;
    assert_eq!(of_sentinels(&seen), ["warning"], "{}", seen.stdout);
    sentinels.sentinels()[1].kill();
    let limit = Instant::now() + PATIENCE;
    loop {
        // Two that are silent, and one that finds no majority when it has noticed.
        let seen = doctor(&sentinels.url()).await;
        if of_sentinels(&seen) == ["warning"; 3] {
            break;
        }
        assert!(Instant::now() < limit, "{}", seen.stdout);
    }
}

#[tokio::test]
async fn whether_a_server_that_may_have_forgotten_grants_is_told() {
    let server = RedisServer::start();
    let url = format!("{}?restart=quarantine&max_ttl=2s", server.url());
    let kept = "note persistence";
    let closed = ["warning quarantine", kept];
    // To look does not mark it.
    for _ in 0..2 {
        complains(&url, &closed).await.has_shown("it has no mark");
    }
    run_at(&url, "init").await.has_code(Some(0));
    let seen = complains(&url, &[kept]).await;
    seen.has_shown("handed to a waiter");
    server.kill();
    server.start_again();
    run_at(&url, "run -n --ttl 1s k -- true").await;
    let seen = complains(&url, &closed).await;
    assert!(promise(&seen).starts_with("Nothing until it grants."));
    seen.has_shown("it grants again after");
    let other = format!("{}?restart=quarantine", server.url());
    let seen = doctor(&other).await;
    seen.has_code(Some(2));
    seen.has_shown("other settings");
}

#[tokio::test]
async fn what_puts_a_postgres_at_risk_is_named() {
    let server = Postgres::start();
    run_at(&server.url(), "init").await.has_code(Some(0));
    complains(&server.url(), &["note standbys"]).await;
    let local = "synchronous_standby_names = '*'\nsynchronous_commit = local";
    let unawaited = Postgres::start_with(local);
    run_at(&unawaited.url(), "init").await.has_code(Some(0));
    complains(&unawaited.url(), &["note standbys"]).await;
    // Where nobody listens, waiters poll.
    let deaf = format!("{}?listen=postgres://127.0.0.1:1/d", server.url());
    let seen = finds(&deaf, 1, &["note standbys", "warning pushes"]).await;
    seen.has_shown("127.0.0.1:1 cannot be reached");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let ways = format!("connect_timeout=500ms&listen=postgres://{silent}/d");
    let seen = doctor(&format!("{}?{ways}", server.url())).await;
    seen.has_shown(format!("{silent} took no connection in time"));

    let server = Postgres::start_with(
        "fsync = off\nsynchronous_commit = off\nlog_statement = all\nmax_connections = 20",
    );
    let bouncer = PgBouncer::start(&server);
    server.sql("create database risky encoding 'SQL_ASCII' template template0");
    let url = server.url_of("risky");
    run_at(&url, "init").await.has_code(Some(0));
    // An open transaction keeps old rows.
    let asleep = "begin; select txid_current(); select pg_sleep(600)";
    let sessions = [(); 16].map(|()| Process::spawn(psql(&url, asleep)));
    let until_asleep = |sessions: &str| {
        let count = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        let begun = Instant::now();
        while server.sql(count) != sessions {
            assert!(begun.elapsed() < PATIENCE, "not {sessions} sessions");
        }
    };
    until_asleep("16");
    let many = "insert into leasehold.keys (key, format, touched, tail) \
                select n, 1, 0, '' from generate_series(1, 10001) n";
    sql_at(&url, many);
    sql_at(&url, "delete from leasehold.keys");
    sql_at(&url, "vacuum leasehold.keys");
    let seen = doctor(&format!("{url}?listen={}", bouncer.url_of("risky"))).await;
    let all = [
        "warning encoding",
        "warning fsync",
        "note commit",
        "note standbys",
        "note log",
        "warning connections",
        "warning rows",
        "note pushes",
    ];
    assert_eq!(complaints(&seen), all, "{seen}");

    let end = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'";
    server.sql(end);
    until_asleep("0");
    drop(sessions);
    sql_at(&url, "vacuum leasehold.keys");
    // What the finding says to do about it.
    let hides = "alter database risky set log_parameter_max_length = 0";
    sql_at(&url, hides);
    let seen = doctor(&url).await;
    let mut fewer = all.to_vec();
    let over = ["log", "connections", "rows", "pushes"];
    fewer.retain(|words| !over.iter().any(|over| words.ends_with(over)));
    assert_eq!(complaints(&seen), fewer, "{seen}");
}

#[tokio::test]
async fn what_puts_a_zookeeper_at_risk_is_named() {
    let server = ZooKeeper::shared();
    let url = server.url_of(&server.chroot());
    let seen = doctor(&format!("{url}?session_timeout=300ms")).await;
    let all = ["note ensemble", "note session", "note access"];
    assert_eq!(complaints(&seen), all, "{seen}");
    seen.has_shown("after 400ms, not 300ms");

    let url = server.url_of(&server.chroot());
    let named = url.replace("zookeeper://", "zookeeper://app:secret@");
    complains(&named, &["note ensemble"]).await;
}

#[tokio::test]
async fn a_password_is_never_shown() {
    for url in [
        "redis://alice:cret@127.0.0.1:1/",
        "redis-cluster://alice:cret@127.0.0.1:1/",
        "redis-sentinel://alice:cret@127.0.0.1:1/main",
        "redlock://alice:cret@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/",
    ] {
        let seen = doctor(url).await;
        seen.has_code(Some(2));
        hides(&seen, "cret");
        seen.has_not_said("cret");
    }
}
