//! The local store keeps the contract of a store.
#![cfg(all(unix, feature = "local"))]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold_testkit::conformance::Fixture;
use tempfile::TempDir;

struct Local(TempDir);

#[async_trait]
impl Fixture for Local {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = LocalOptions {
            directory: Some(self.0.path().to_owned()),
            ..LocalOptions::default()
        };
        Arc::new(LocalStore::open(options).await.expect("the store opens"))
    }
}

fn fresh() -> Local {
    Local(TempDir::new().expect("a temporary directory"))
}

mod store {
    leasehold_testkit::conformance!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}
