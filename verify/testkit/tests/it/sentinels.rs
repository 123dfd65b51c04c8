//! Sentinels of the testkit: who is the primary, and who becomes it.

use leasehold_testkit::deployment::Sentinels;
use leasehold_testkit::server::{Data, RedisServer};

fn read(server: &RedisServer) -> Option<String> {
    server.query(&["GET", "k"])
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
