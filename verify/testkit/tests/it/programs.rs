//! Every program that is tested with: what it is, and that every deployment works with it.
//!
//! A program that is not there fails these tests: `scripts/test --install` gets it.

use leasehold_testkit::deployment::{Cluster, Sentinels, Takeover};
use leasehold_testkit::server::{Program, RedisServer, RedisServerBuilder};

fn of(program: Program) -> RedisServerBuilder {
    RedisServer::builder().program(program)
}

#[test]
fn they_are_what_they_are_called() {
    for (program, line) in [
        (Program::Valkey, "server_name:valkey"),
        (Program::OldestRedis, "redis_version:6.2."),
    ] {
        let info: String = of(program).start().query(&["INFO", "server"]);
        assert!(info.contains(line), "{info}");
    }
}

/// The primary dies, and the replica that is promoted lacks what it was kept from.
async fn sentinels(program: Program) {
    let server = of(program).password("secret");
    let deployment = Sentinels::builder().server(server).replicas(1);
    let deployment = deployment.behind_proxies().start();
    let (old, replica) = (deployment.primary(), deployment.replicas()[0]);
    old.command(&["SET", "k", "v"]);
    deployment.wait_for_replicas().await;
    deployment.separate(old, replica);
    old.command(&["SET", "k", "unheard"]);
    old.kill();
    let new = deployment.wait_for_another_primary(old).await;
    assert_eq!(new.port(), replica.port());
    assert_eq!(new.query::<String>(&["GET", "k"]), "v");
}

/// A slot moves away from a node that is then replaced, cut off, and let in again.
async fn cluster(program: Program) {
    let server = of(program).password("secret");
    let cluster = Cluster::builder().server(server).behind_proxies();
    let cluster = cluster.start();
    let slot = cluster.slot_of("k");
    let from = cluster.owner_of(slot);
    from.command(&["SET", "k", "v"]);
    let primaries = cluster.primaries();
    let to = primaries.iter().find(|it| it.port() != from.port());
    let to = to.expect("there are three");
    cluster.move_slot(slot, to).await;
    assert_eq!(to.query::<String>(&["GET", "k"]), "v");
    cluster.wait_until_ok().await;

    let replica = cluster.replicas_of(to)[0];
    cluster.fail_over(replica, Takeover::Agreed).await;
    cluster.wait_until_ok().await;
    cluster.cut_off(replica);
    let new = cluster.wait_for_another_owner(slot, replica).await;
    assert_eq!(new.port(), to.port());
    assert_eq!(new.query::<String>(&["GET", "k"]), "v");
    cluster.rejoin(replica);
    cluster.wait_until_ok().await;
    assert_eq!(cluster.replicas_of(new)[0].port(), replica.port());
}

#[tokio::test]
async fn valkey_has_sentinels() {
    sentinels(Program::Valkey).await;
}

#[tokio::test]
async fn valkey_has_a_cluster() {
    cluster(Program::Valkey).await;
}

#[tokio::test]
async fn the_oldest_redis_has_sentinels() {
    sentinels(Program::OldestRedis).await;
}

#[tokio::test]
async fn the_oldest_redis_has_a_cluster() {
    cluster(Program::OldestRedis).await;
}
