//! The URL scheme of ZooKeeper.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Invalid, Marked};
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::report::Report;
use leasehold_store::scheme::{Description, Initialised, Made, Opened, Scheme};

use super::options::ZooKeeperOptions;
use super::session::Sessions;
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

    /// Makes the nodes, which the first client would make as well.
    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
        let sessions = Sessions::new(options.clone());
        sessions.get().await?;
        let users = match options.identity() {
            Some((user, _)) => format!("for the user {user}"),
            None => "for all who reach the servers".to_owned(),
        };
        Ok(vec![Initialised {
            server: options.hosts(),
            made: Some(Made {
                what: format!("the node {} at {}", options.chroot, options.hosts()),
                users,
            }),
            outcome: Ok(match sessions.has_made_nodes() {
                true => Marked::New,
                false => Marked::Already,
            }),
        }])
    }
}
