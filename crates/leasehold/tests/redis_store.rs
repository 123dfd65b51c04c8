//! One Redis server keeps the contract of a store, and users may rely on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::server::{Program, RedisServer};

struct Redis {
    server: RedisServer,
    url: String,
}

#[async_trait]
impl Fixture for Redis {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = RedisOptions::from_url(&self.url).expect("a good URL");
        Arc::new(RedisStore::connect(options).await.expect("the store opens"))
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS"]);
        Some(channels.len())
    }
}

fn fresh() -> Redis {
    of(Program::Default)
}

fn of(program: Program) -> Redis {
    let server = RedisServer::builder().program(program).start();
    let url = server.url();
    Redis { server, url }
}

/// As a user without any channel, who neither hears nor tells.
fn deaf(program: Program) -> Redis {
    let server = RedisServer::builder()
        .program(program)
        .user("bob", "on >secret ~* resetchannels +@all")
        .start();
    let url = server.url_as("bob", "secret");
    Redis { server, url }
}

mod contract {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}

mod deaf {
    leasehold_testkit::conformance!(super::deaf(super::Program::Default));
    leasehold_testkit::facade!(@quick super::deaf(super::Program::Default));
}

mod valkey {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::Valkey));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::of(crate::Program::Valkey));
    }

    mod deaf {
        leasehold_testkit::conformance!(crate::deaf(crate::Program::Valkey));
        leasehold_testkit::facade!(@quick crate::deaf(crate::Program::Valkey));
    }
}

mod oldest {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::OldestRedis));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::of(crate::Program::OldestRedis));
    }

    mod deaf {
        leasehold_testkit::conformance!(crate::deaf(crate::Program::OldestRedis));
        leasehold_testkit::facade!(@quick crate::deaf(crate::Program::OldestRedis));
    }
}
