//! The contract of a store and the guarantees of the library, with grants and renewals that a
//! replica must acknowledge.
#![cfg(feature = "redis")]

use crate::redis_support::case::{Case, Program, RedisServer, suites};

struct Shared {
    primary: RedisServer,
    _replica: RedisServer,
}

fn start(program: Program) -> Shared {
    let server = RedisServer::builder().program(program);
    let primary = server.clone().start();
    let _replica = server.replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    Shared { primary, _replica }
}

fn fresh(pair: &'static Shared) -> Case {
    Case::at(&pair.primary.url(), [&pair.primary]).with("acknowledge=1&acknowledge_timeout=5s")
}

suites! {
    redis: Default { contract: [contract] fresh, facade: [quick] fresh }
    valkey: Valkey { contract: [contract] fresh }
    oldest: OldestRedis { contract: [contract] fresh }
}
