//! `leasehold log`: what the audit log of a store says.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_testkit::deployment::Cluster;
use leasehold_testkit::proxy::{Command, Proxy};

use crate::common::*;

/// The entries, as JSON.
async fn entries(url: &str, arguments: impl Arguments) -> Vec<Value> {
    let mut command = at(url, "log --json");
    command.args(arguments.words());
    json_lines(&Process::spawn(command).ends(0).await.stdout)
}

fn events(entries: &[Value]) -> Vec<(&str, &str)> {
    let keys = entries.iter().map(|entry| entry["key"].as_str().unwrap());
    keys.zip(names(entries)).collect()
}

async fn tells_who_held(url: &str) {
    for (label, key) in [("nightly", "report"), ("backup", "disk")] {
        ends(url, format!("run --label {label} {key} -- true"), 0).await;
    }
    let holder = printing(url, "hold --json report", "token").await;
    let follower = printing(url, "log --follow report", "granted").await;
    ends(url, "break --yes report", 0).await;
    follower.prints("taken from").await;
    follower.ends_by(Signal::INT).await;
    holder.finish().await.has_code(Some(79));

    let all = entries(url, "").await;
    let report = ["granted", "released", "granted", "broken"].map(|event| ("report", event));
    let disk = ["granted", "released"].map(|event| ("disk", event));
    let of_report = entries(url, &["report"]).await;
    assert_eq!(events(&of_report), report);
    assert_eq!(all.len(), report.len() + disk.len());
    let of_owner = entries(url, "--owner backup").await;
    assert_eq!(events(&of_owner), disk);
    assert_eq!(of_owner[0]["owner"]["label"], "backup");
    assert_eq!(of_report[0]["token"], of_report[1]["token"]);
    assert!(of_report[3]["by"]["pid"].is_u64(), "{of_report:?}");
    assert!(of_report[3]["held_ms"].is_u64());
    assert_eq!(entries(url, "--since 0s").await.len(), 0);
    assert_eq!(entries(url, "--since 1h").await.len(), all.len());
    assert_eq!(entries(url, "-n 3").await, all[all.len() - 3..]);
    assert_eq!(entries(url, "--lines 2 report").await, of_report[2..]);
    assert_eq!(entries(url, "-n 0").await.len(), 0);
    let at = |entry: &Value| entry["at"].as_str().unwrap().to_owned();
    let (first, third) = (at(&all[0]), at(&all[2]));
    let until = entries(url, ("--until", &third)).await;
    assert_eq!((&until[0], until.last()), (&all[0], Some(&all[2])));
    let between = entries(url, format!("--since {first} --until {first} -n 9")).await;
    assert_eq!(between[0], all[0]);
    let at_once = between.iter().all(|entry| at(entry) == first);
    assert!(at_once, "{between:?}");
    assert_eq!(entries(url, "--until '2001-01-31 12:00'").await.len(), 0);
    assert_eq!(run_at(url, "log --until 2001-01-31").await.stderr, "");
    // What a client without audit does is not there.
    let silent = url.split('?').next().unwrap();
    run_at(silent, "run report -- true").await;
    assert_eq!(entries(silent, "").await.len(), all.len());
}

#[tokio::test]
async fn of_this_machine() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("local:{}?audit=1000", place.path().join("locks").display());
    tells_who_held(&url).await;
}

#[tokio::test]
async fn of_a_server() {
    let server = RedisServer::start();
    tells_who_held(&format!("{}?audit=24h", server.url())).await;
}

#[tokio::test]
async fn a_store_that_keeps_none_is_named() {
    let server = RedisServer::start();
    let classic = format!("{}?layout=classic", server.url());
    ends_saying(&classic, "log", 69, "cannot read the audit log").await;
    let refused = run_at(&format!("{classic}&audit=1000"), "log").await;
    refused.has_ended_saying(Some(64), "audit has no effect");
    for bad in ["redis://h/?audit=1", "local:?audit=often"] {
        ends_saying(bad, "log", 64, "audit=10000").await;
    }
}

/// Also where nobody sees a terminal: what looks like a quiet store may keep no log.
#[tokio::test]
async fn a_store_whose_log_is_empty_says_so() {
    let server = RedisServer::start();
    let url = server.url();
    for arguments in ["log", "log --json k", "log --since 1h"] {
        let ended = ends_printing(&url, arguments, 0, "").await;
        ended.has_said("audit log of this store is empty");
        ended.has_said("?audit=10000");
    }
    assert_eq!(run_at(&url, "log -q").await.stderr, "");
    let follower = saying(&url, "log --follow", "is empty").await;
    run_at(&format!("{url}?audit=1000"), "run k -- true").await;
    follower.prints("released").await;
    follower.ends_by(Signal::INT).await;
    // Times that cannot be meant are refused.
    for wrong in ["--since yesterday", "--until 1h --follow", "-n -1"] {
        ends(&url, format!("log {wrong}"), 64).await;
    }
}

/// What was read before the connection broke is not read again, and so must be printed.
#[tokio::test]
async fn a_follower_misses_nothing_when_its_connection_breaks() {
    let server = RedisServer::start();
    let audited = format!("{}?audit=1000", server.url());
    let proxy = Proxy::to(&server);
    let follower = saying(&proxy.url(), "log --follow", "is empty").await;
    // The second page of the log is asked for from behind the last entry of the first.
    let goes_on = |command: &Command| command.has("(") && command.has("500");
    let second = proxy.hold_request(goes_on, 1);
    run_at(&audited, "run k -- true").await;
    second.wait().await;
    proxy.cut();
    follower.prints("granted").await;
    follower.ends_by(Signal::INT).await;
}

/// Said once, as by `ls --watch`; what does not pass ends it.
#[tokio::test]
async fn an_outage_is_said_once_and_waited_through() {
    let server = RedisServer::start();
    let audited = format!("{}?audit=1000", server.url());
    run_at(&audited, "run k -- true").await;
    let follower = printing(&audited, "log --follow", "released").await;
    server.kill();
    follower.says("; trying again").await;
    server.start_again();
    follower.says("the store answers again").await;
    server.command(&["DEL", "leasehold:audit"]);
    server.command(&["LPUSH", "leasehold:audit", "theirs"]);
    let ended = follower.ends_saying(65, "is not an audit log").await;
    let told = ended.stderr.matches("; trying again").count();
    assert_eq!(told, 1, "{}", ended.stderr);
}

/// Each node has a log of its own.
#[tokio::test]
async fn what_a_follower_reads_at_once_is_sorted() {
    let cluster = Cluster::start();
    let url = format!("{}?audit=1000", cluster.url());
    let follower = saying(&url, "log --follow --json", "is empty").await;
    follower.stop();
    for key in ["a", "b", "c", "a", "b"] {
        ends(&url, format!("run {key} -- true"), 0).await;
    }
    ends(&url, "run --label last c -- true", 0).await;
    follower.signal(Signal::CONT);
    follower.prints("last").await;
    let printed = json_lines(&follower.ends_by(Signal::INT).await.stdout);
    let at = |entry: &Value| entry["at"].as_str().unwrap().parse::<Timestamp>();
    let times: Vec<_> = printed.iter().map(|entry| at(entry).unwrap()).collect();
    assert!(times.len() > 10 && times.is_sorted(), "{printed:?}");
}

/// A waiter that is killed costs the next in line nothing, however young it is: its grant is taken
/// back in the step that made it, and does not have to expire.
#[tokio::test]
async fn a_waiter_that_is_killed_young_is_passed_over() {
    let server = RedisServer::start();
    let url = format!("{}?audit=1000", server.url());
    let client = leasehold::connect(&server.url()).await.unwrap();
    let holder = holder_at(&url, "k").await;
    let mut waiters = Vec::new();
    for _ in 0..2 {
        waiters.push(spawn_at(&url, "run k -- true"));
        // Each asks again once it listens, and lives for longer then.
        let all_listen = async || {
            let seen = client.inspect("k").await.unwrap();
            let long = Duration::from_secs(10);
            let mut listen = seen.waiters;
            listen.retain(|it| seen.at + it.expires_in > it.since + long);
            listen.len() == waiters.len()
        };
        assert!(eventually(all_listen).await, "they listen");
    }
    let inboxes = || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len();
    // Also the holder's, after a while.
    assert!(eventually(async || inboxes() == 3).await);
    let dead = waiters.remove(0);
    dead.signal(Signal::KILL);
    dead.wait().await;
    assert!(eventually(async || inboxes() == 2).await);
    holder.signal(Signal::TERM);
    waiters.remove(0).finish().await.has_code(Some(0));
    // It keeps its place, and may be tried once more.
    let all = entries(&url, "").await;
    let expected = ["granted", "released", "granted", "returned", "granted"];
    let expected = expected.map(|event| ("k", event));
    assert!(events(&all).starts_with(&expected), "{all:?}");
}
