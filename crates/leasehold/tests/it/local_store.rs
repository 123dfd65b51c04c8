//! The contract of a store and the guarantees of the library, on the local store.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "local")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold_store::contract::Fixture;
use leasehold_testkit::facade::cancellations;
use tempfile::TempDir;

struct Local(TempDir);

#[async_trait]
impl Fixture for Local {
    async fn client(&self) -> Arc<dyn LockStore> {
        self.open("").await
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        self.open("?audit=1000").await
    }
}

impl Local {
    async fn open(&self, query: &str) -> Arc<dyn LockStore> {
        let url = format!("local:{}{query}", self.0.path().join("state").display());
        let options = LocalOptions::from_url(&url).expect("a good URL");
        Arc::new(LocalStore::open(options).await.expect("the store opens"))
    }
}

impl leasehold_testkit::facade::Fixture for Local {
    /// Each step takes files: fewer will do here.
    fn cancellations(&self) -> usize {
        cancellations() / 5
    }

    fn open_inboxes(&self) -> Option<usize> {
        let inboxes = self.0.path().join("state").join("inbox");
        Some(inboxes.read_dir().expect("a directory").count())
    }
}

fn fresh() -> Local {
    Local(tempfile::tempdir().expect("a directory"))
}

mod contract {
    leasehold_store::contract!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}
