//! A store whose grants and renewals must be acknowledged by a replica keeps the
//! contract of a store, and users may rely on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{Acknowledge, RedisOptions, RedisStore};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::server::RedisServer;

struct Pair {
    primary: RedisServer,
    _replica: RedisServer,
}

#[async_trait]
impl Fixture for Pair {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = RedisOptions::from_url(&self.primary.url()).expect("a good URL");
        let policy = Acknowledge::replicas(1).timeout(std::time::Duration::from_secs(5));
        let store = RedisStore::connect(options.acknowledge(policy)).await;
        Arc::new(store.expect("the store opens"))
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.primary.query(&["PUBSUB", "CHANNELS", "lease*"]);
        Some(channels.len())
    }
}

fn fresh() -> Pair {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    Pair {
        primary,
        _replica: replica,
    }
}

mod contract {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(@quick super::fresh());
}
