//! Sentinels of the testkit: who is the primary, and who becomes it.

use std::time::Duration;

use leasehold_testkit::deployment::Sentinels;
use leasehold_testkit::server::{Data, RedisServer};
use tokio::time::Instant;

fn ports(servers: &[RedisServer]) -> Vec<u16> {
    servers.iter().map(|it| it.port()).collect()
}

fn read(server: &RedisServer) -> Option<String> {
    server.query(&["GET", "k"])
}

fn with_passwords() -> Sentinels {
    let server = RedisServer::builder().password("data");
    let builder = Sentinels::builder().server(server);
    builder.sentinel_password("watch").start()
}

#[tokio::test]
async fn they_are_ready_within_seconds() {
    let begun = Instant::now();
    let deployment = Sentinels::start();
    println!("ready after {:?}", begun.elapsed());
    let primary = deployment.primary();
    assert_eq!(primary.port(), deployment.servers()[0].port());
    primary.command(&["SET", "k", "v"]);
    deployment.wait_for_replicas().await;
    let replicas = deployment.replicas();
    assert_eq!(replicas.len(), 2);
    for replica in replicas {
        assert_eq!(read(replica).as_deref(), Some("v"));
    }
    let [a, b, c] = ports(deployment.sentinels())[..] else {
        panic!("there are three Sentinels");
    };
    let url = format!("redis-sentinel://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/main");
    assert_eq!(deployment.url(), url);
}

#[tokio::test]
async fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    // Passwords are in the way of clients only.
    let deployment = with_passwords();
    let old = deployment.primary();
    old.command(&["SET", "k", "v"]);
    deployment.wait_for_replicas().await;
    let begun = Instant::now();
    old.kill();
    let new = deployment.wait_for_another_primary(old).await;
    println!("failed over after {:?}", begun.elapsed());
    assert_eq!(read(new).as_deref(), Some("v"));

    old.start_again();
    new.command(&["SET", "k", "new"]);
    deployment.wait_for_replicas().await;
    println!("all are in sync after {:?}", begun.elapsed());
    assert_eq!(read(old).as_deref(), Some("new"));
}

#[tokio::test]
async fn a_stopped_primary_is_replaced_and_demoted_when_it_goes_on() {
    let deployment = Sentinels::builder().replicas(1).start();
    let old = deployment.primary();
    old.stop();
    let new = deployment.wait_for_another_primary(old).await;
    new.command(&["SET", "k", "new"]);
    old.cont();
    deployment.wait_for_replicas().await;
    assert_eq!(read(old).as_deref(), Some("new"));
}

#[tokio::test]
async fn a_planned_fail_over_takes_whom_it_should() {
    // A machine that is too busy to answer for a second has no other beside it.
    let patient = Duration::from_secs(5);
    let deployment = Sentinels::builder().down_after(patient).start();
    let preferred = &deployment.servers()[2];
    deployment.prefer(preferred).await;
    let new = deployment.fail_over().await;
    assert_eq!(new.port(), preferred.port());
    let preferred = &deployment.servers()[1];
    deployment.wait_for_replicas().await;
    deployment.prefer(preferred).await;
    let new = deployment.fail_over().await;
    assert_eq!(new.port(), preferred.port());
}

#[tokio::test]
async fn passwords_are_asked_for_by_servers_and_by_sentinels() {
    let deployment = with_passwords();
    let url = deployment.url();
    assert!(url.starts_with("redis-sentinel://:data@127.0.0.1:"));
    let refused = |server: &RedisServer| {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
        let mut connection = client.get_connection().unwrap();
        let error = redis::cmd("PING").exec(&mut connection).unwrap_err();
        error.code() == Some("NOAUTH")
    };
    assert!(deployment.servers().iter().all(refused));
    assert!(deployment.sentinels().iter().all(refused));
}

#[tokio::test]
async fn two_sentinels_are_enough_and_one_that_comes_back_agrees() {
    let deployment = Sentinels::start();
    let old = deployment.primary();
    deployment.sentinels()[0].kill();
    old.restart(Data::Lose);
    old.kill();
    let new = deployment.wait_for_another_primary(old).await;
    deployment.sentinels()[0].start_again();
    let agreed = deployment.wait_for_another_primary(old).await;
    assert_eq!(agreed.port(), new.port());
}

#[tokio::test]
async fn a_primary_that_is_cut_off_is_replaced_and_goes_on_alone() {
    let deployment = Sentinels::builder().replicas(1).behind_proxies().start();
    let old = deployment.primary();
    deployment.cut_off(old);
    let new = deployment.wait_for_another_primary(old).await;
    // Two primaries, each with clients of its own.
    old.command(&["SET", "k", "old"]);
    new.command(&["SET", "k", "new"]);
    assert_eq!(read(old).as_deref(), Some("old"));
    deployment.rejoin(old);
    deployment.wait_for_replicas().await;
    assert_eq!(read(old).as_deref(), Some("new"));
    assert_eq!(deployment.primary().port(), new.port());
}

#[tokio::test]
async fn a_replica_that_gets_nothing_can_be_promoted() {
    let deployment = Sentinels::builder().behind_proxies().start();
    let old = deployment.primary();
    let replicas = deployment.replicas();
    let [with, without] = replicas[..] else {
        panic!("{replicas:?}")
    };
    deployment.prefer(without).await;
    deployment.separate(old, without);
    old.command(&["SET", "k", "v"]);
    // Acknowledged by one of two, and lost all the same.
    old.wait_for_replicas(1);
    assert_eq!(read(with).as_deref(), Some("v"));
    assert_eq!(read(without), None);
    old.kill();
    let new = deployment.wait_for_another_primary(old).await;
    assert_eq!(new.port(), without.port());
    assert_eq!(read(new), None);
    deployment.rejoin(without);
    old.start_again();
    deployment.wait_for_replicas().await;
    assert_eq!(read(with), None);
}
