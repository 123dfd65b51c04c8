//! What only a server does: it goes silent, refuses, asks for passwords.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{run_at as run, spawn_at as spawn, *};
use leasehold_testkit::deployment::Independent;
use leasehold_testkit::postgres::{Postgres, sql_at};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::Instant;

#[tokio::test]
async fn a_silent_server_means_told_before_and_killed_at_the_end_of_the_lease() {
    let server = RedisServer::start();
    let script = "trap 'echo told' TERM; echo up; while :; do sleep 0.02; done";
    let arguments = ("run --ttl 20s --grace 10s k -- sh -c", script);
    let holder = printing(&server.url(), arguments, "up").await;
    server.stop();
    let stopped = Instant::now();
    let said = holder.says("cannot renew k").await;
    says(&said, ["no answer", "stopping the command"]);
    let told = stopped.elapsed();
    holder.prints("told").await;
    let ended = holder.finish().await;
    let killed = stopped.elapsed();
    server.cont();
    ended.has_ended_saying(Some(79), "killing the command");
    // The last renewal was answered at most a third of the TTL before the server went silent.
    assert!(told > Duration::from_secs(3), "{told:?}");
    // Before the end of the lease, also on a busy machine.
    assert!(told < Duration::from_secs(17), "{told:?}");
    let grace = killed - told;
    assert!(grace > Duration::from_secs(1), "{told:?}, {killed:?}");
}

/// As its exit status says.
#[tokio::test]
async fn a_lease_whose_command_stops_before_its_end_is_said_to_be_lost() {
    let server = RedisServer::start();
    // A shell says there what became of its `sleep`.
    let script = "exec 2> /dev/null; trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let arguments = ("run --json --ttl 2s --grace 1s -k a -k b -- sh -c", script);
    let holder = printing(&server.url(), arguments, "up").await;
    server.stop();
    holder.says("\"expiring\"").await;
    server.cont();
    let events = events(&holder.ends(79).await.stderr);
    let all = |name: &'static str| events.iter().filter(move |it| it["event"] == name);
    let (told, lost): (Vec<_>, Vec<_>) = (all("expiring").collect(), all("lost").collect());
    assert_eq!((told.len(), lost.len()), (1, 1), "{events:?}");
    assert_eq!(lost[0]["reason"], "unanswered");
    // Though both keys may have been renewed since.
    for field in ["key", "cause"] {
        assert_eq!(lost[0][field], told[0][field], "{events:?}");
    }
}

/// A time limit counts for the store too, whether it is opened or was: not the time-outs of
/// connections and operations, which are longer.
#[tokio::test]
async fn a_time_limit_is_kept_on_a_server_that_does_not_answer() {
    let server = RedisServer::start();
    let holder = holder_at(&server.url(), "k").await;
    let waits = saying(&server.url(), "run -w 3s k -- true", "waiting for k").await;
    server.stop();
    let begun = Instant::now();
    let briefly = run(&server.url(), "run -w 10ms k -- true").await;
    // Five seconds is what it takes to give up a connection.
    let brief = begun.elapsed();
    assert!(brief < Duration::from_secs(4), "{brief:?}");
    let waited = waits.finish().await;
    briefly.has_ended_saying(Some(69), "time limit of 10 ms");
    waited.has_ended_saying(Some(69), "the time limit of the call");
    server.cont();
    holder.ends_by(Signal::TERM).await;
}

#[tokio::test]
async fn a_candidate_stands_again_after_a_silence() {
    let server = RedisServer::start();
    let script = "echo $LEASEHOLD_TERM; exec sleep 60";
    let candidate = spawn(&server.url(), ("elect --ttl 1s k -- sh -c", script));
    let first = candidate.prints("").await;
    server.stop();
    let stopped = candidate.stderr();
    stopped.wait_for("cannot renew k").await;
    stopped.wait_for("candidate for k again in 1.0 s").await;
    // While there is still no answer.
    stopped.wait_for("; trying again").await;
    server.cont();
    assert!(candidate.prints("").await.parse::<u64>().unwrap() > first.parse().unwrap());
    let ended = candidate.ends_by(Signal::TERM).await;
    ended.has_signal(Signal::TERM);
}

#[tokio::test]
async fn what_was_lost_unnoticed_is_found_at_the_release() {
    let store = Store::redis();
    let script = "echo up; until test -e go; do sleep 0.02; done";
    let holder = store.up(("run k -- sh -c", script)).await;
    store.server().command(&["FLUSHALL"]);
    std::fs::write(store.path("go"), "").unwrap();
    holder.ends(79).await.has_said_first("leasehold: lost k: ");
}

#[tokio::test]
async fn a_server_that_is_gone_at_the_end_changes_no_status() {
    let store = Store::redis();
    let script = "echo up; until test -e go; do sleep 0.02; done; exit 5";
    let holder = store.up(("run k -- sh -c", script)).await;
    store.server().kill();
    std::fs::write(store.path("go"), "").unwrap();
    holder.ends_saying(5, "leasehold: warning: ").await;
}

#[tokio::test]
async fn refusals_have_one_sentence_and_leave_nothing_behind() {
    let server = RedisServer::builder().password("hunter2").start();
    let wrong = format!("redis://:hunter3@{}/", server.address());
    let replica = RedisServer::builder().replica_of(server.port()).start();
    server.wait_for_replicas(1);
    let full = RedisServer::builder().config("maxmemory", "1");
    let full = full.config("maxmemory-policy", "noeviction").start();
    let other = RedisServer::start();
    for (url, what) in [
        (&wrong, "password"),
        (&replica.url(), "replica"),
        (&full.url(), "memory"),
    ] {
        let ended = ends_printing(url, "run -n k -- echo ran", 69, "").await;
        ended.has_said(what);
        assert!(ended.stderr.lines().count() <= 2, "{ended}");
        ended.has_not_said("hunter");
    }
    // A key of another type in the way.
    let held = holder_at(&other.url(), "k").await;
    let keys = other.query::<Vec<String>>(&["KEYS", "*lock:*"]);
    let key = keys.first().unwrap().clone();
    held.ends_by(Signal::TERM).await;
    other.command(&["DEL", &key]);
    other.command(&["LPUSH", &key, "theirs"]);
    for arguments in ["run k -- true", "show k", "break -y k", "hold k"] {
        let ended = ends(&other.url(), arguments, 65).await;
        assert!(ended.stderr.lines().count() <= 2, "{ended}");
    }
    assert_eq!(other.query::<String>(&["TYPE", &key]), "list");
}

#[tokio::test]
async fn a_signal_ends_the_knocking_at_a_silent_server() {
    let server = RedisServer::start();
    server.stop();
    let process = spawn(&server.url(), "run k -- true");
    // Nothing is said while it knocks: wait until it listens to signals.
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigCgt:\t"));
        u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 2 != 0
    };
    assert!(eventually(async || caught()).await, "it listens");
    let ended = process.ends_by(Signal::INT).await;
    server.cont();
    assert_eq!(ended.signal(), Some(Signal::INT), "{}", ended.stderr);
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_warned_of() {
    let evicting = RedisServer::builder().config("maxmemory", "100mb");
    let evicting = evicting.config("maxmemory-policy", "allkeys-lru").start();
    ends_saying(&evicting.url(), "run k -- true", 0, "noeviction").await;
    let unbounded = RedisServer::start();
    assert_eq!(run(&unbounded.url(), "run k -- true").await.stderr, "");
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_by_its_version() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    // No such server can be installed any more: this one says just enough.
    let old = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let info = "# Server\r\nredis_version:6.0.16\r\n";
                let answer = match line.to_ascii_uppercase().as_str() {
                    "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
                    "CLIENT" => "+OK\r\n".to_owned(),
                    "INFO" => format!("${}\r\n{info}\r\n", info.len()),
                    "SCRIPT" | "EVAL" | "EVALSHA" | "PUBLISH" | "SUBSCRIBE" | "UNSUBSCRIBE" => {
                        "-ERR unknown command\r\n".to_owned()
                    }
                    _ => continue,
                };
                if write.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    let ended = run(&url, "run k -- echo ran").await;
    old.abort();
    ended.has_printed(Some(69), "");
    says(&ended.stderr, ["6.0.16", "6.2"]);
}

#[tokio::test]
async fn new_servers_are_marked_once() {
    let servers = Independent::start(3);
    let url = format!("{}?max_ttl=40s", servers.url());
    ends_saying(&url, "run -n k -- true", 69, "leasehold init").await;
    for server in servers.servers() {
        server.command(&["FLUSHALL"]);
    }
    let marked = ends(&url, "init", 0).await;
    let said = |stderr: &str, words: &str| {
        assert_eq!(stderr.matches(words).count(), 3, "{stderr}");
    };
    said(&marked.stderr, " is marked as new, and votes\n");
    let again = ends(&url, "init", 0).await;
    said(&again.stderr, " was marked before, and votes\n");
    run(&url, "run k -- true").await.has_code(Some(0));
    // Another set: its members wait for the end of a quarantine.
    let moved = ends(&format!("{url}&set=other"), "init --json", 0).await;
    let outcome = "\"outcome\":\"moved\",\"quarantine_ms\":80000";
    said(&moved.stdout, outcome);
    // Nothing was marked: that is no success.
    let late = ends(&format!("{url}&set=other"), "init", 69).await;
    let why = " was not marked: it is not new, and votes in ";
    said(&late.stderr, why);
}

#[tokio::test]
async fn an_acknowledged_lock_says_who_has_it() {
    let server = RedisServer::start();
    let replica = RedisServer::builder().replica_of(server.port()).start();
    server.wait_for_replicas(1);
    let url = format!("{}?acknowledge=1", server.url());
    let ended = ends(&url, "run --json k -- true", 0).await;
    let wanted = json!({"replicas": 1, "wanted": 1});
    assert_eq!(acquired(&ended)["acknowledged"], wanted);
    for wait in ["-n", "-w 3s"] {
        replica.stop();
        let ended = run(&url, format!("run {wait} --json k -- true")).await;
        ended.has_code(Some(69));
        // Also where the end of the wait has cut the last try short.
        let mut events = events(&ended.stderr).into_iter();
        let error = events.find(|event| event["event"] == "error").unwrap();
        says(&error, ["0 of 1 replica"]);
        // The server has the claim, and nobody is left who would release it.
        replica.cont();
        run(&url, "run -n k -- true").await.has_code(Some(0));
    }
}

#[tokio::test]
async fn one_server_is_marked_and_stays_closed_after_it_has_forgotten() {
    let server = RedisServer::start();
    let url = format!("{}?restart=quarantine&max_ttl=40s", server.url());
    ends_saying(&server.url(), "init", 64, "restart=quarantine").await;
    let marked = ends(&url, "init", 0).await;
    assert!(marked.stderr.ends_with(" grants\n"), "{}", marked.stderr);
    run(&url, "run k -- true").await.has_code(Some(0));
    server.command(&["FLUSHALL"]);
    ends_saying(&url, "run -n k -- true", 69, "grants nothing for").await;
    let late = ends(&url, "init --json", 69).await;
    late.has_shown("\"quarantine_ms\":7");
    let usual = format!("{}?restart=quarantine", server.url());
    ends_saying(&usual, "run k -- true", 69, "other settings").await;
}

#[tokio::test]
async fn ls_names_what_it_passes_over() {
    let server = RedisServer::start();
    let url = server.url();
    let _holder = holder_at(&url, "held").await;
    server.command(&["RPUSH", "leasehold:lock:other\u{202e}s", "x"]);
    for json in ["ls", "ls --json"] {
        let listed = ends(&url, json, 0).await;
        listed.has_shown("held");
        let warning = "leasehold: warning: skipped other\\u{202e}s: the key contains a list that \
                       is not leasehold's; nothing was changed\n";
        assert_eq!(listed.stderr, warning);
    }
}

/// More rows than are printed at once: they come sorted in parts, under one heading.
#[tokio::test]
async fn ls_prints_thousands_of_keys() {
    let server = RedisServer::start();
    let url = server.url();
    let _holder = holder_at(&url, "held").await;
    let copy = "local record = redis.call('GET', KEYS[1]) \
                for i = 1, 2500 do redis.call('SET', 'leasehold:lock:copy/' .. i, record) end";
    server.command(&["EVAL", copy, "1", "leasehold:lock:held"]);
    let table = run(&url, "ls").await.stdout;
    assert_eq!(table.lines().count(), 2502, "a heading and the rows");
    let headings = table.lines().filter(|line| line.starts_with("KEY "));
    assert_eq!(headings.count(), 1);
    let locks = json_lines(&run(&url, "ls --json copy/*").await.stdout);
    let keys: BTreeSet<_> = locks.iter().map(|it| it["key"].to_string()).collect();
    assert_eq!((locks.len(), keys.len()), (2500, 2500));
}

/// Beside what the bare server does, of which it leaves nothing there.
#[tokio::test]
async fn bench_names_the_server_and_compares_locks_with_it() {
    let bench = async |url: &str, shown: &str, bare: &[&str]| {
        let ended = ends(url, "bench --time 1ms --rounds 1", 0).await;
        assert!(ended.stdout.starts_with(shown), "{ended}");
        ended.has_shown(", medians of 1 rounds");
        let rows = ended.stdout.lines().filter_map(|row| row.split_once("  "));
        let rows = rows.filter(|(_, row)| row.trim_start().starts_with("64 "));
        let rows: Vec<_> = rows.map(|(work, _)| work).collect();
        assert_eq!(rows, [bare, &["leasehold"]].concat());
        ended
    };
    let redis = RedisServer::start();
    let (url, trip) = (redis.url(), "one round trip");
    let rows = [trip, "SET NX, delete", "fenced minimum"];
    bench(&url, &url, &rows).await.has_shown("OF FENCED");
    let left = redis.query::<u64>(&["EXISTS", "leasehold:bench:pair-0:token"]);
    assert_eq!(left, 0);

    let postgres = Postgres::start();
    run(&postgres.url(), "init").await.has_code(Some(0));
    let rows = [
        trip,
        "UPDATE, own rows",
        "UPDATE, one row",
        "advisory lock, unlock",
    ];
    let ended = bench(&postgres.url(), "postgres://", &rows).await;
    ended.has_shown("OF TWO WRITES  OF ADVISORY");
    let tables = || {
        let count = "select count(*) from pg_tables where tablename like 'bench%'";
        postgres.sql(count).trim().to_owned()
    };
    assert_eq!(tables(), "0");
    let interrupted = spawn(&postgres.url(), "bench --time 60s");
    let is_made = async || tables() != "0";
    assert!(eventually(is_made).await, "no table is made");
    let ended = interrupted.ends_by(Signal::INT).await;
    ended.has_signal(Signal::INT);
    assert_eq!(tables(), "0", "an interrupt leaves nothing");
    postgres.sql("create role app login; grant usage on schema leasehold to app");
    postgres.sql(
        "grant select, insert, update, delete on leasehold.keys to app; \
         grant select on leasehold.about to app; grant usage on sequence leasehold.records to app",
    );
    let url = postgres.url();
    let as_app = url.replace("postgres://postgres@", "postgres://app@");
    let ended = bench(&as_app, "postgres://app@", &[]).await;
    ended.has_said("warning: only locks are measured: PostgreSQL: permission denied");

    let zookeeper = Store::zookeeper();
    let rows = [trip, "setData, own nodes", "setData, one node"];
    let ended = bench(&zookeeper.url, "zookeeper://", &rows).await;
    ended.has_shown("OF TWO WRITES");
    // No column without a figure.
    assert!(!ended.stdout.contains("SCRIPTS"), "{ended}");
}

/// There nobody could tell when all of them wait.
#[tokio::test]
async fn bench_measures_no_hand_offs_where_nobody_sees_who_waits() {
    let server = RedisServer::start();
    let url = format!("{}?layout=classic", server.url());
    let ended = ends(&url, "bench --time 1ms --rounds 1", 0).await;
    ended.has_said("warning: no hand-offs are measured: ");
    ended.has_shown("UNCONTENDED");
    assert!(!ended.stdout.contains("HAND-OFF"), "{ended}");
}

/// Whatever ends it.
#[tokio::test]
async fn a_bench_that_fails_gives_back_what_it_holds() {
    let server = RedisServer::start();
    server.command(&["LPUSH", "leasehold:lock:bench/kept-1", "theirs"]);
    let bench = format!("bench --time 1ms --rounds 1 --leases {}", usize::MAX);
    run(&server.url(), bench).await.has_printed(Some(65), "");
    ends(&server.url(), "show --exit-code bench/kept-0", 0).await;
}

/// What an administrator runs by hand is what `init` would have sent, with what each role needs.
#[tokio::test]
async fn what_init_would_do_can_be_read_and_run() {
    let server = Postgres::shared();
    let database = server.url_of(&server.database());
    let url = format!("{database}?schema=by_hand");
    let dry = ends(&url, "init --dry-run", 0).await;
    assert_eq!(dry.stderr, "");
    run(&url, "run k -- true").await.has_code(Some(69));
    let grants = dry.stdout.lines();
    let grants = grants.filter_map(|line| line.strip_prefix("-- GRANT "));
    let grants = grants.map(|grant| format!("grant {}", grant.replace("ROLE", "by_hand")));
    let grants: String = grants.collect();
    // Where new functions are nobody's, and the schema has another of such a name.
    let hardened = "alter default privileges revoke execute on functions from public; \
         create schema by_hand; \
         create function by_hand.notify(int) returns int language sql return 1";
    sql_at(&database, hardened);
    sql_at(&database, &dry.stdout);
    sql_at(&database, &format!("create role by_hand login; {grants}"));
    run(&url, "init").await.has_said("was there already");
    let as_role = url.replace("postgres://postgres@", "postgres://by_hand@");
    run(&as_role, "run k -- true").await.has_code(Some(0));

    let redis = RedisServer::start();
    let refused = ends_printing(&redis.url(), "init --dry-run", 64, "").await;
    refused.has_said("postgres://");
}
