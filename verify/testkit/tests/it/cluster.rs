//! The Cluster of the testkit: who has a slot, how it moves, who takes over.

use leasehold_testkit::deployment::Cluster;
use leasehold_testkit::server::{Data, RedisServer};
use redis::RedisError;

fn read(node: &RedisServer, key: &str) -> Option<String> {
    node.query(&["GET", key])
}

fn code(answer: Result<redis::Value, RedisError>) -> String {
    answer.unwrap_err().code().unwrap().to_owned()
}

#[tokio::test]
async fn a_node_that_loses_its_data_stays_the_node_that_it_is() {
    let cluster = Cluster::builder().replicas(0).start();
    let slot = cluster.slot_of("k");
    let owner = cluster.owner_of(slot);
    for (data, found) in [(Data::Keep, Some("v")), (Data::Lose, None)] {
        owner.command(&["SET", "k", "v"]);
        owner.restart(data);
        cluster.wait_until_ok().await;
        assert_eq!(cluster.owner_of(slot).port(), owner.port());
        assert_eq!(read(owner, "k").as_deref(), found);
    }
}

#[tokio::test]
async fn a_node_that_is_cut_off_is_replaced_and_comes_back() {
    let cluster = Cluster::builder().behind_proxies().start();
    let slot = cluster.slot_of("k");
    let old = cluster.owner_of(slot);
    old.command(&["SET", "k", "v"]);
    cluster.wait_until_ok().await;
    let replica = cluster.replicas_of(old)[0];
    cluster.cut_off(old);
    // It answers its own clients until it has missed the others for a while.
    assert_eq!(read(old, "k").as_deref(), Some("v"));
    cluster.wait_for_another_owner(slot, old).await;
    replica.command(&["SET", "k", "new"]);
    let alone = old.try_command(&["SET", "k", "alone"]);
    assert_eq!(code(alone), "CLUSTERDOWN");
    cluster.rejoin(old);
    cluster.wait_until_ok().await;
    assert_eq!(cluster.owner_of(slot).port(), replica.port());
    assert_eq!(code(old.try_command(&["GET", "k"])), "MOVED");
}
