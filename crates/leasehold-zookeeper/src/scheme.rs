//! The URL scheme of ZooKeeper.

use std::sync::Arc;

use leasehold_core::Marked;
use leasehold_store::access::Access;
use leasehold_store::scheme::{Initialised, Made};
use leasehold_store::sync::Ordering;
use leasehold_store::{StoreError, server_scheme};

use super::options::ZooKeeperOptions;
use super::session::Sessions;
use super::{doctor, journal};

/// The URL schemes of ZooKeeper servers: `zookeeper://`, and `zookeeper+tls://` with TLS.
#[derive(Debug)]
pub struct ZooKeeper;

server_scheme! { ZooKeeper: ZooKeeperOptions,
    ["zookeeper", "zookeeper+tls"],
    ["zookeeper://host1,host2,host3/path"],
    with_access(?),
    open: |options| Arc::new(journal::open(&options).await?),
    examine: doctor::examine,

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
