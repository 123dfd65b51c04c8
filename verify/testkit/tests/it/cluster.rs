//! The Cluster of the testkit: who has a slot, how it moves, who takes over.

use leasehold_testkit::deployment::{Cluster, Takeover};
use leasehold_testkit::server::{Data, RedisServer};
use redis::RedisError;
use tokio::time::Instant;

fn read(node: &RedisServer, key: &str) -> Option<String> {
    node.query(&["GET", key])
}

/// Another primary than the owner of a slot.
fn another(cluster: &Cluster, slot: u16) -> &RedisServer {
    let owner = cluster.owner_of(slot).port();
    let primaries = cluster.primaries().into_iter();
    primaries.into_iter().find(|it| it.port() != owner).unwrap()
}

fn code(answer: Result<redis::Value, RedisError>) -> String {
    answer.unwrap_err().code().unwrap().to_owned()
}

#[tokio::test]
async fn every_key_has_an_owner_and_replicas_take_over_when_told() {
    let begun = Instant::now();
    let cluster = Cluster::start();
    println!("ready after {:?}", begun.elapsed());
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.primaries().len(), 3);
    let mut owners = Vec::new();
    for n in 0..30 {
        let key = format!("k{n}");
        let owner = cluster.owner_of(cluster.slot_of(&key));
        owner.command(&["SET", &key, "v"]);
        owners.push(owner.port());
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 3);
    assert_eq!(cluster.slot_of("{a}b"), cluster.slot_of("a"));
    for primary in cluster.primaries() {
        assert_eq!(cluster.replicas_of(primary).len(), 1);
    }
    let hosts = cluster.nodes().iter();
    let hosts: Vec<_> = hosts.map(|it| format!("127.0.0.1:{}", it.port())).collect();
    let url = format!("redis-cluster://{}/", hosts.join(","));
    assert_eq!(cluster.url(), url);

    // Replicas take over when told.
    let slot = cluster.slot_of("k");
    let first = cluster.owner_of(slot);
    first.command(&["SET", "k", "v"]);
    for how in [Takeover::Agreed, Takeover::Unasked] {
        cluster.wait_until_ok().await;
        let old = cluster.owner_of(slot);
        let replica = cluster.replicas_of(old)[0];
        cluster.fail_over(replica, how).await;
        assert_eq!(cluster.owner_of(slot).port(), replica.port(), "{how:?}");
        assert_eq!(read(replica, "k").as_deref(), Some("v"), "{how:?}");
    }
}

#[tokio::test]
async fn a_slot_moves_step_by_step() {
    let server = RedisServer::builder().password("secret");
    let cluster = Cluster::builder().replicas(0).server(server).start();
    let url = cluster.url();
    assert!(url.starts_with("redis-cluster://:secret@127.0.0.1:"));
    let slot = cluster.slot_of("{k}1");
    let (from, to) = (cluster.owner_of(slot), another(&cluster, slot));
    from.command(&["SET", "{k}1", "one"]);
    from.command(&["SET", "{k}2", "two"]);

    let moving = cluster.begin_move(slot, to).await;
    assert_eq!(read(from, "{k}1").as_deref(), Some("one"));
    assert_eq!(code(from.try_command(&["GET", "{k}3"])), "ASK");
    assert!(moving.migrate_key("{k}1"));
    assert!(!moving.migrate_key("{k}3"));
    assert_eq!(code(from.try_command(&["GET", "{k}1"])), "ASK");
    assert_eq!(code(to.try_command(&["GET", "{k}1"])), "MOVED");
    let refused = from.try_command(&["MGET", "{k}1", "{k}2"]);
    assert_eq!(code(refused), "TRYAGAIN");
    assert_eq!(read(from, "{k}2").as_deref(), Some("two"));
    assert_eq!(moving.migrate(10), 1);
    assert_eq!(moving.migrate(10), 0);
    moving.finish().await;

    assert_eq!(code(from.try_command(&["GET", "{k}1"])), "MOVED");
    assert_eq!(read(to, "{k}1").as_deref(), Some("one"));
    assert_eq!(read(to, "{k}2").as_deref(), Some("two"));
    assert_eq!(cluster.owner_of(slot).port(), to.port());
    cluster.wait_until_ok().await;

    // Back, and forth, as often as one likes.
    let begun = Instant::now();
    for _ in 0..10 {
        cluster.move_slot(slot, from).await;
        assert_eq!(read(from, "{k}1").as_deref(), Some("one"));
        cluster.move_slot(slot, to).await;
    }
    println!("twenty moves took {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("k");
    let old = cluster.owner_of(slot);
    old.command(&["SET", "k", "v"]);
    cluster.wait_until_ok().await;
    let replica = cluster.replicas_of(old)[0];
    let begun = Instant::now();
    old.kill();
    let new = cluster.wait_for_another_owner(slot, old).await;
    println!("failed over after {:?}", begun.elapsed());
    assert_eq!(new.port(), replica.port());
    assert_eq!(read(new, "k").as_deref(), Some("v"));
    old.start_again();
    cluster.wait_until_ok().await;
    assert_eq!(cluster.replicas_of(new)[0].port(), old.port());
    assert_eq!(old.query::<usize>(&["DBSIZE"]), 1);
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
