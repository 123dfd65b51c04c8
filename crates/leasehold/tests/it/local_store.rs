//! The contract of a store and the guarantees of the library, on the local store.
#![cfg(feature = "local")]

use std::path::PathBuf;

use leasehold::store::local::{LocalOptions, LocalStore};
use leasehold_testkit::facade::cancellations;
use tempfile::TempDir;

use crate::steps::*;

struct Local {
    place: TempDir,
    /// That shares the directory; `None`: it is one user's.
    group: Option<u32>,
}

#[async_trait]
impl Fixture for Local {
    async fn client(&self) -> Arc<dyn LockStore> {
        self.open("retention=24h").await
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        self.open("audit=1000").await
    }
}

impl Local {
    async fn open(&self, query: &str) -> Arc<dyn LockStore> {
        let mut url = format!("local:{}?{query}", self.directory().display());
        if let Some(group) = self.group {
            url += &format!("&group={group}");
            let made = Client::builder().store(&*url).initialise().await;
            made.expect("the directory is made, if it was not");
        }
        let options = LocalOptions::from_url(&url).expect("a good URL");
        Arc::new(LocalStore::open(options).await.expect("the store opens"))
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("state")
    }
}

impl leasehold_testkit::facade::Fixture for Local {
    /// Each step takes files: fewer will do here.
    fn cancellations(&self) -> usize {
        cancellations() / 5
    }

    fn open_inboxes(&self) -> Option<usize> {
        let inboxes = self.directory().join("inbox");
        Some(inboxes.read_dir().expect("a directory").count())
    }
}

fn fresh() -> Local {
    Local {
        place: tempfile::tempdir().expect("a directory"),
        group: None,
    }
}

/// The group that the tests run with shares the directory.
#[cfg(target_os = "linux")]
fn shared() -> Local {
    use std::os::unix::fs::MetadataExt;

    let fresh = fresh();
    let ours = fresh.place.path().metadata().expect("a directory").gid();
    but(fresh, |it| it.group = Some(ours))
}

mod contract {
    leasehold_store::contract!(super::fresh());
}

mod facade {
    leasehold_testkit::facade!(super::fresh());
}

#[cfg(target_os = "linux")]
mod of_a_group {
    leasehold_store::contract!(super::shared());
}
