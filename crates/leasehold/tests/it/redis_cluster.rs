//! The contract of a store and the guarantees of the library, on a Redis Cluster.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold_testkit::deployment::Cluster;

use crate::redis_support::case::{Case, Program, RedisServer, suites};

type Shared = Cluster;

fn start(program: Program) -> Shared {
    let node = RedisServer::builder().program(program);
    // Nothing fails here, and a busy machine must not look like it.
    let patient = Duration::from_secs(60);
    let builder = Cluster::builder().replicas(0).down_after(patient);
    builder.server(node).start()
}

fn fresh(cluster: &'static Shared) -> Case {
    Case::at(&cluster.url(), cluster.nodes())
}

suites! {
    redis: Default { contract: [contract] fresh, facade: [quick] fresh }
    valkey: Valkey { contract: [contract] fresh, facade: [quick] fresh }
    oldest: OldestRedis { contract: [contract] fresh, facade: [quick] fresh }
}
