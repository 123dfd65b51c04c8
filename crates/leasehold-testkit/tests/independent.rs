//! Independent servers of the testkit.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use leasehold_testkit::deployment::Independent;
use leasehold_testkit::server::{Data, RedisServer};

#[test]
fn they_have_nothing_in_common() {
    let servers = Independent::start(3);
    for (at, server) in servers.servers().iter().enumerate() {
        server.command(&["SET", "k", &at.to_string()]);
    }
    servers[0].kill();
    servers[1].restart(Data::Lose);
    assert_eq!(servers[1].query::<Option<String>>(&["GET", "k"]), None);
    assert_eq!(servers[2].query::<String>(&["GET", "k"]), "2");
    let up: Vec<_> = servers.servers().iter().map(RedisServer::is_up).collect();
    assert_eq!(up, [false, true, true]);
    servers[2].stop();
    assert!(!servers[2].is_up());
    servers[2].cont();
    assert!(servers[2].is_up());
}

#[test]
fn the_url_names_all_in_order_each_with_its_password() {
    let servers = Independent::builder(3)
        .each(RedisServer::builder().password("all"))
        .one(1, RedisServer::builder())
        .one(2, RedisServer::builder().password("own").persistent())
        .start();
    let ports: Vec<_> = servers.servers().iter().map(RedisServer::port).collect();
    let [first, second, third] = ports[..] else {
        panic!("{ports:?}")
    };
    assert_eq!(
        servers.url(),
        format!("redlock://:all@127.0.0.1:{first},127.0.0.1:{second},:own@127.0.0.1:{third}/")
    );
}

#[test]
fn a_persistent_one_finds_its_data_after_a_crash() {
    let servers = Independent::builder(2)
        .one(0, RedisServer::builder().persistent())
        .start();
    for server in servers.servers() {
        server.command(&["SET", "k", "v"]);
        server.kill();
        server.start_again();
    }
    assert_eq!(
        servers[0].query::<Option<String>>(&["GET", "k"]).as_deref(),
        Some("v")
    );
    assert_eq!(servers[1].query::<Option<String>>(&["GET", "k"]), None);
}
