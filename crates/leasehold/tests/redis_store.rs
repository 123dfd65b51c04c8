//! One Redis server keeps the contract of a store, and users may rely on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::server::{Program, RedisServer};

struct Redis(RedisServer);

#[async_trait]
impl Fixture for Redis {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = RedisOptions::from_url(&self.0.url()).expect("a good URL");
        Arc::new(RedisStore::connect(options).await.expect("the store opens"))
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.0.query(&["PUBSUB", "CHANNELS"]);
        Some(channels.len())
    }
}

fn fresh() -> Redis {
    Redis(RedisServer::start())
}

fn of(program: Program) -> Redis {
    Redis(RedisServer::builder().program(program).start())
}

mod contract {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}

mod valkey {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::Valkey));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::of(crate::Program::Valkey));
    }
}

mod oldest {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::OldestRedis));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::of(crate::Program::OldestRedis));
    }
}
