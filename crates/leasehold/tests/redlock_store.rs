//! Three independent servers keep the contract of a store, as far as a store
//! without a queue has it, and users may rely on it.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

mod redlock_support;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold_testkit::conformance::Fixture;
use redlock_support::Set;

/// Servers that are marked as new when the first client comes.
struct Redlock {
    set: Set,
    marked: tokio::sync::OnceCell<()>,
}

#[async_trait]
impl Fixture for Redlock {
    async fn client(&self) -> Arc<dyn LockStore> {
        self.marked.get_or_init(|| self.set.init()).await;
        Arc::new(self.set.store().await)
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels = |server: &redlock_support::RedisServer| {
            server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len()
        };
        Some(self.set.servers.iter().map(channels).sum())
    }
}

fn fresh() -> Redlock {
    Redlock {
        set: Set::unmarked(3, ""),
        marked: tokio::sync::OnceCell::new(),
    }
}

mod contract {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}
