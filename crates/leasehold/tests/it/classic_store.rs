//! The contract of a store and the guarantees of the library, on the classic layout.
#![cfg(feature = "redis")]

use leasehold_testkit::facade::cancellations;

use crate::redis_support::case::{Case, Program, RedisServer, suites};

/// What a user needs, and no more.
const RULE: &str = "on >secret resetchannels ~app:* -@all +eval +evalsha +type +get +set +pttl \
    +pexpire +del +scan +info +ping";

/// Three independent servers, the first of which is the one where there is one.
type Shared = [RedisServer; 3];

fn start(program: Program) -> Shared {
    let server = RedisServer::builder().program(program);
    let server = server.user("least", RULE);
    [(); 3].map(|()| server.clone().start())
}

/// On one server, as a user with the least rights.
fn one(servers: &'static Shared) -> Case {
    let url = servers[0].url_as("least", "secret");
    Case::at(&url, [&servers[0]]).classic()
}

/// On all three, as the same user on each.
fn three(servers: &'static Shared) -> Case {
    let member = |server: &RedisServer| format!("least:secret@127.0.0.1:{}", server.port());
    let members: Vec<_> = servers.iter().map(member).collect();
    let case = Case::at(&format!("redlock://{}/", members.join(",")), servers);
    case.classic().slow().cancellations(cancellations() / 5)
}

suites! {
    redis: Default {
        server: [contract, facade, limits] one,
        redlock: [contract, facade] three,
    }
    valkey: Valkey { server: [contract] one }
    oldest: OldestRedis {
        server: [contract] one,
        redlock: [contract] three,
    }
}
