//! A primary under Sentinels keeps the contract of a store, and users may rely
//! on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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
        let before = self.listeners();
        let store = RedisStore::connect(options).await.expect("the store opens");
        // The task that hears of fail-overs is there from now on, and counted as such.
        let listens = async {
            while self.listeners().is_subset(&before) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let listens = tokio::time::timeout(Duration::from_secs(20), listens).await;
        listens.expect("a Sentinel is listened to");
        Arc::new(store)
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.0.primary().query(&["PUBSUB", "CHANNELS", "lease*"]);
        Some(channels.len())
    }
}

impl Watched {
    /// Who listens to a Sentinel. One that has just left may still be among them.
    fn listeners(&self) -> BTreeSet<(u16, String)> {
        let mut listeners = BTreeSet::new();
        for sentinel in self.0.sentinels() {
            let clients: String = sentinel.query(&["CLIENT", "LIST"]);
            let listening = clients.lines().filter(|line| line.contains(" sub=1 "));
            let ids = listening.filter_map(|line| line.split(' ').next());
            listeners.extend(ids.map(|id| (sentinel.port(), id.to_owned())));
        }
        listeners
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
