//! The URL scheme of ZooKeeper.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Invalid, Marked};
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::report::Report;
use leasehold_store::scheme::{Description, Initialised, Made, Opened, Scheme, StoreOptions};
use leasehold_store::sync::Ordering;

use super::options::ZooKeeperOptions;
use super::session::Sessions;
use super::{doctor, journal};

/// The URL schemes of ZooKeeper servers: `zookeeper://`, and `zookeeper+tls://` with TLS.
#[derive(Debug)]
pub struct ZooKeeper;

#[async_trait]
impl Scheme for ZooKeeper {
    fn names(&self) -> &'static [&'static str] {
        &["zookeeper", "zookeeper+tls"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["zookeeper://host1,host2,host3/path"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        let options = ZooKeeperOptions::from_url(url)?;
        let (url, password) = (options.redacted_url(), &options.access.password);
        Ok(Description::with_servers(url, password.is_some()))
    }

    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError> {
        ZooKeeperOptions::from_url(url)?.open(access).await
    }

    async fn examine(&self, url: &str, access: &Access) -> Result<Report, StoreError> {
        doctor::examine(&ZooKeeperOptions::from_url(url)?.with_access(access)?).await
    }

    /// Makes the nodes, which the first client would make as well.
    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
        let login = options.access.login(options.connect_timeout).await?;
        let sessions = Sessions::new(options.clone());
        let is_open = sessions.are_open(&sessions.get().await?.client).await?;
        let users = match login.user {
            Some(user) if !is_open => format!("for the user {user}"),
            None if !is_open && options.has_identity() => "for the client certificate".to_owned(),
            _ => "for all who reach the servers".to_owned(),
        };
        let what = format!("the node {} at {}", options.chroot, options.hosts());
        let made = sessions.has_made_nodes.load(Ordering::Acquire);
        let outcome = if made { Marked::New } else { Marked::Already };
        let initialised = Initialised::new(options.hosts(), Ok(outcome));
        Ok(vec![initialised.with_made(Made::new(what, users))])
    }
}

#[async_trait]
impl StoreOptions for ZooKeeperOptions {
    async fn open(&self, access: &Access) -> Result<Opened, StoreError> {
        let options = self.clone().with_access(access)?;
        let url = options.url_for_others();
        let store = Arc::new(journal::open(&options).await?);
        Ok(Opened::new(store, url))
    }
}
