//! The contract of a store and the guarantees of the library, on one Redis server.
#![cfg(feature = "redis")]

use crate::redis_support::case::{Case, Program, RedisServer, suites};

type Shared = RedisServer;

fn start(program: Program) -> Shared {
    let builder = RedisServer::builder().program(program);
    let bob = "on >secret ~* resetchannels +@all";
    builder.user("bob", bob).start()
}

fn fresh(server: &'static Shared) -> Case {
    Case::at(&server.url(), [server])
}

/// As a user without any channel, who neither hears nor tells.
fn deaf(server: &'static Shared) -> Case {
    Case::at(&server.url_as("bob", "secret"), [server])
}

suites! {
    redis: Default { contract: [contract] fresh, facade: [facade] fresh, deaf: [contract, quick] deaf }
    valkey: Valkey { contract: [contract] fresh, facade: [quick] fresh, deaf: [contract, quick] deaf }
    oldest: OldestRedis { contract: [contract] fresh, facade: [quick] fresh, deaf: [contract, quick] deaf }
}
