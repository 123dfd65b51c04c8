//! The servers without locks: plain requests of one session.

use async_trait::async_trait;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::bare::{BareServer, BareWork};
use leasehold_store::random::random_u64;
use zookeeper_client::{Client, Error};

use super::options::ZooKeeperOptions;
use super::session::{Failure, Sessions};

/// The server of a URL without a store, to measure it. None where there is nothing to compare with.
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    let options = ZooKeeperOptions::from_url(url)?.with_access(access)?;
    Ok(Some(Box::new(Bare::open(options).await?)))
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
    /// The node in which the others are.
    node: String,
}

impl Bare {
    pub(crate) async fn open(options: ZooKeeperOptions) -> Result<Self, StoreError> {
        let bare = Self {
            sessions: Sessions::new(options),
            node: format!("/bench-{:016x}", random_u64()),
        };
        let session = bare.sessions.get().await?;
        bare.make(&session.client, &bare.node).await?;
        Ok(bare)
    }

    async fn make(&self, client: &Client, node: &str) -> Result<(), StoreError> {
        let options = self.sessions.lasting();
        match self
            .sessions
            .answer(client.create(node, b"", &options))
            .await
        {
            Ok(_) | Err(Failure::ZooKeeper(Error::NodeExists)) => Ok(()),
            Err(failure) => Err(self.sessions.failed(failure)),
        }
    }
}

#[async_trait]
impl BareServer for Bare {
    fn works(&self) -> &'static [BareWork] {
        &WORKS
    }

    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError> {
        let session = self.sessions.get().await?;
        let client = &session.client;
        let node = match place {
            0 => {
                return self
                    .sessions
                    .ask(client.check_stat(&self.node))
                    .await
                    .map(drop);
            }
            1 => format!("{}/{task}", self.node),
            _ => self.node.clone(),
        };
        loop {
            match self
                .sessions
                .answer(client.set_data(&node, b"1", None))
                .await
            {
                Ok(_) => return Ok(()),
                Err(Failure::ZooKeeper(Error::NoNode)) => self.make(client, &node).await?,
                Err(failure) => return Err(self.sessions.failed(failure)),
            }
        }
    }

    async fn clear(&self) -> Result<(), StoreError> {
        let session = self.sessions.get().await?;
        let client = &session.client;
        for node in self.sessions.ask(client.list_children(&self.node)).await? {
            let node = format!("{}/{node}", self.node);
            self.sessions.ask(client.delete(&node, None)).await?;
        }
        self.sessions.ask(client.delete(&self.node, None)).await
    }
}
