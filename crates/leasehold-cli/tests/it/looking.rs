//! To look changes nothing: no key more, no key less, no other value.

use std::collections::BTreeMap;

use crate::common::*;
use leasehold_testkit::deployment::{Cluster, Independent, Sentinels};

/// All keys of these servers, with their values as the server writes them down; but for the last
/// token of all keys, which the trial of `doctor` raises as every lock does.
fn keyspace(servers: &[&RedisServer]) -> Vec<BTreeMap<String, Vec<u8>>> {
    let of = |server: &&RedisServer| {
        let keys: Vec<String> = server.query(&["KEYS", "*"]);
        let value = |key: String| {
            let value = server.query(&["DUMP", &key]);
            (key, value)
        };
        let keys = keys.into_iter().filter(|key| key != "leasehold:last");
        keys.map(value).collect()
    };
    servers.iter().map(of).collect()
}

/// The looks, one after the other: each leaves the keys as they were.
async fn nothing_changes(url: &str, servers: &[&RedisServer]) {
    let before = keyspace(servers);
    for arguments in ["doctor", "ls", "ls --json", "show k", "show other"] {
        let seen = run_at(url, arguments).await;
        assert!(seen.code() < Some(64), "{seen}");
        assert_eq!(keyspace(servers), before, "{arguments:?} at {url}");
    }
    for (arguments, said) in [
        ("elect --observe other", "nobody leads"),
        ("ls --watch=100ms", "no locks"),
    ] {
        let observer = printing(url, arguments, said).await;
        observer.ends_by(Signal::INT).await.has_code(Some(0));
        assert_eq!(keyspace(servers), before, "{arguments:?} at {url}");
    }
}

/// The same before and after a lock was used.
async fn nothing_changes_around_a_use(url: &str, servers: &[&RedisServer]) {
    nothing_changes(url, servers).await;
    for arguments in ["init", "run k -- true"] {
        let ended = run_at(url, arguments).await;
        // Only some have a mark, which `init` writes.
        let fine = ended.code() == Some(0) || arguments == "init" && ended.code() == Some(64);
        assert!(fine, "{arguments:?} at {url}: {}", ended.stderr);
    }
    nothing_changes(url, servers).await;
}

#[tokio::test]
async fn at_one_server() {
    let server = RedisServer::start();
    nothing_changes_around_a_use(&server.url(), &[&server]).await;
}

#[tokio::test]
async fn at_a_server_that_may_have_forgotten() {
    let server = RedisServer::start();
    let url = format!("{}?restart=quarantine", server.url());
    nothing_changes_around_a_use(&url, &[&server]).await;
}

#[tokio::test]
async fn at_servers_with_a_vote_each() {
    let servers = Independent::start(3);
    let each: Vec<_> = servers.servers().iter().collect();
    nothing_changes_around_a_use(&servers.url(), &each).await;
}

#[tokio::test]
async fn at_servers_that_share_their_locks_with_other_libraries() {
    let server = RedisServer::start();
    let url = format!("{}?layout=classic&prefix=app:", server.url());
    nothing_changes(&url, &[&server]).await;
    let servers = Independent::start(3);
    let each: Vec<_> = servers.servers().iter().collect();
    let url = format!("{}?layout=classic&prefix=app:", servers.url());
    nothing_changes(&url, &each).await;
}

#[tokio::test]
async fn at_a_primary_that_sentinels_watch() {
    let sentinels = Sentinels::start();
    let primary = [sentinels.primary()];
    nothing_changes_around_a_use(&sentinels.url(), &primary).await;
}

#[tokio::test]
async fn at_a_cluster() {
    let cluster = Cluster::start();
    let primaries = cluster.primaries();
    nothing_changes_around_a_use(&cluster.url(), &primaries).await;
}

/// What the holder of a key waits for is found in a list of all keys.
async fn is_shown(url: &str, warned: &[&str]) {
    let _holder = printing(url, ("run k -- sh -c", "echo up; exec sleep 60"), "up").await;
    let seen = ends(url, "show k", 0).await;
    seen.has_shown("holds");
    for why in ["could not find"].iter().chain(warned) {
        let is_said = seen.stderr.contains(why);
        assert_eq!(is_said, !warned.is_empty(), "{why}: {seen}");
    }
    let seen = run_at(url, "show -q --exit-code k").await;
    seen.has_been_quiet(Some(1));
}

#[tokio::test]
async fn a_key_is_shown_also_where_others_cannot_be_listed() {
    let rights = "on >secret ~* &* +@all -scan";
    let server = RedisServer::builder().user("bob", rights).start();
    let url = server.url_as("bob", "secret");
    is_shown(&url, &["cannot look at the locks", "scan"]).await;
    // A member that is stopped makes each page of the list late, and nobody waits there.
    let servers = Independent::start(3);
    run_at(&servers.url(), "init").await.has_code(Some(0));
    servers.servers()[0].stop();
    is_shown(&servers.url(), &[]).await;
    servers.servers()[0].cont();
}
