//! A primary under Sentinels keeps the contract of a store, and users may rely
//! on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::deployment::Sentinels;

struct Watched(Sentinels);

#[async_trait]
impl Fixture for Watched {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = RedisOptions::from_url(&self.0.url()).expect("a good URL");
        Arc::new(RedisStore::connect(options).await.expect("the store opens"))
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.0.primary().query(&["PUBSUB", "CHANNELS", "lease*"]);
        Some(channels.len())
    }
}

fn fresh() -> Watched {
    Watched(Sentinels::start())
}

mod contract {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(@quick super::fresh());
}
