//! The servers without locks: plain requests of one session.

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::bare::{BareServer, BareWork};
use leasehold_store::random::random_u64;
use zookeeper_client::{CreateMode, Error};

use super::options::ZooKeeperOptions;
use super::session::Sessions;

/// The server of a URL without a store, to measure it. None where there is nothing to compare with.
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
    let bare = Bare {
        sessions: Sessions::new(options),
        node: format!("/bench-{:016x}", random_u64()),
    };
    bare.set(&bare.node).await?;
    Ok(Some(Box::new(bare)))
}

const WORKS: [BareWork; 3] = [
    BareWork::new("round_trip", "one round trip", None),
    // Two are the least that a lock needs which is kept.
    BareWork::new("own_nodes", "setData, own nodes", Some(("of_writes", 0.5))),
    BareWork::new("one_node", "setData, one node", None),
];

#[derive(Debug)]
pub(crate) struct Bare {
    sessions: Sessions,
    /// What the names of its nodes begin with. They end with the session.
    node: String,
}

impl Bare {
    /// Sets a node, which is made where there is none.
    async fn set(&self, node: &str) -> Result<(), StoreError> {
        let (session, sessions) = (self.sessions.get().await?, &self.sessions);
        let client = &session.client;
        loop {
            let set = client.set_data(node, b"1", None);
            if sessions.ask_unless(&Error::NoNode, set).await?.is_some() {
                return Ok(());
            }
            let options = CreateMode::Ephemeral.with_acls(sessions.acls());
            let made = client.create(node, b"", &options);
            sessions.ask_unless(&Error::NodeExists, made).await?;
        }
    }
}

#[async_trait]
impl BareServer for Bare {
    fn works(&self) -> &'static [BareWork] {
        &WORKS
    }

    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError> {
        match place {
            0 => {
                let session = self.sessions.get().await?;
                let looked = session.client.check_stat(&self.node);
                self.sessions.ask(looked).await.map(drop)
            }
            1 => self.set(&format!("{}-{task}", self.node)).await,
            _ => self.set(&self.node).await,
        }
    }
}
