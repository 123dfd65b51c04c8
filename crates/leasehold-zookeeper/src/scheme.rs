//! The URL scheme of ZooKeeper.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Invalid;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::report::Report;
use leasehold_store::scheme::{Description, Opened, Scheme};

use super::options::ZooKeeperOptions;
use super::{doctor, journal};

/// The URL scheme of ZooKeeper servers: `zookeeper://`.
#[derive(Debug)]
pub struct ZooKeeper;

#[async_trait]
impl Scheme for ZooKeeper {
    fn names(&self) -> &'static [&'static str] {
        &["zookeeper"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["zookeeper://host1,host2,host3/path"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        let options = ZooKeeperOptions::from_url(url)?;
        Ok(Description::with_servers(
            options.redacted_url(),
            options.password.is_some(),
        ))
    }

    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError> {
        let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
        let url = options.url_for_others();
        let store = Arc::new(journal::open(&options).await?);
        Ok(Opened { store, url })
    }

    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError> {
        let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
        Ok(doctor::examine(&options).await)
    }
}
