//! The contract of a store and the guarantees of the library, on the classic layout: with
//! scripts, and with transactions if the user may not run scripts.
#![cfg(feature = "redis")]

use leasehold_testkit::facade::cancellations;
use leasehold_testkit::server::{Program, RedisServer};

use crate::redis_support::case::{Case, suites};

/// What a user needs who may not run scripts, and no more.
const NO_SCRIPTS: &str = "on >secret resetchannels ~app:* -@all +watch +unwatch +multi +exec +type +get +set \
    +pttl +pexpire +del +scan +info +ping";
/// What a user needs who may.
const SCRIPTS: &str = "on >secret resetchannels ~app:* -@all +evalsha +script|load +type +get +set +pttl \
    +pexpire +del +scan +info +ping";

/// Three independent servers, the first of which is the one where there is one.
type Shared = [RedisServer; 3];

fn start(program: Program) -> Shared {
    let server = RedisServer::builder().program(program);
    let server = server.user("scripts", SCRIPTS).user("plain", NO_SCRIPTS);
    [(); 3].map(|()| server.clone().start())
}

/// On one server, as a user with the least rights.
fn one(servers: &'static Shared, user: &str) -> Case {
    let url = servers[0].url_as(user, "secret");
    Case::at(&url, [&servers[0]]).classic()
}

/// On all three, as the same user on each.
fn three(servers: &'static Shared, user: &str) -> Case {
    let member = |server: &RedisServer| format!("{user}:secret@127.0.0.1:{}", server.port());
    let members: Vec<_> = servers.iter().map(member).collect();
    let case = Case::at(&format!("redlock://{}/", members.join(",")), servers);
    let case = case.classic().slow();
    case.cancellations(cancellations() / 5)
}

fn scripts(servers: &'static Shared) -> Case {
    one(servers, "scripts")
}

fn plain(servers: &'static Shared) -> Case {
    one(servers, "plain")
}

fn scripts_of_three(servers: &'static Shared) -> Case {
    three(servers, "scripts")
}

fn plain_of_three(servers: &'static Shared) -> Case {
    three(servers, "plain")
}

suites! {
    redis: Default {
        scripts: [contract, facade, limits] scripts,
        transactions: [contract, quick] plain,
        redlock: [contract, facade] scripts_of_three,
        redlock_transactions: [contract] plain_of_three,
    }
    valkey: Valkey { scripts: [contract] scripts, transactions: [contract] plain }
    oldest: OldestRedis {
        scripts: [contract] scripts,
        transactions: [contract] plain,
        redlock: [contract] scripts_of_three,
    }
}
