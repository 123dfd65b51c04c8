//! Routes a key to its server: a single server or a node of a cluster.

pub(crate) mod cluster;
pub(crate) mod names;

use std::sync::Arc;

use leasehold_core::{Inbox, Renew};
use leasehold_store::StoreError;
use leasehold_store::sync::check_runtime;
use redis::Value;
use tokio::time::Instant;

use self::cluster::{Cluster, RedisClusterOptions};
use crate::codec::script::Request;
use crate::connection::endpoint::Endpoint;
use crate::connection::manager::ConnectionManager;
use crate::connection::step::{Delivery, ScriptAnswer};
use crate::errors;
use crate::options::{RedisLayout, RedisOptions};

/// The way from a key to its server.
#[derive(Clone)]
pub(crate) enum Route {
    /// To one server, or to the primary that Sentinels name.
    One(Arc<ConnectionManager>),
    Cluster(Arc<Cluster>),
}

impl Route {
    /// Opens the connection, for locks of this layout.
    pub(crate) async fn open(options: &RedisOptions, of: RedisLayout) -> Result<Self, StoreError> {
        let endpoint = Endpoint::new(options)?;
        options.check_layout(of)?;
        check_runtime()?;
        let shared = ConnectionManager::start(endpoint);
        shared.first_try().await?;
        Ok(Self::One(shared))
    }

    /// Asks the nodes that are named for the others.
    pub(crate) async fn open_cluster(
        options: RedisClusterOptions,
        of: RedisLayout,
    ) -> Result<Self, StoreError> {
        options.check()?;
        options.node.check_layout(of)?;
        check_runtime()?;
        Ok(Self::Cluster(Cluster::open(options).await?))
    }

    /// The URL of the server or cluster, without the password.
    pub(crate) fn redacted(&self) -> &str {
        match self {
            Self::One(shared) => &shared.endpoint.redacted,
            Self::Cluster(cluster) => &cluster.redacted,
        }
    }

    /// How each server is reached and used.
    pub(crate) fn options(&self) -> &RedisOptions {
        match self {
            Self::One(shared) => &shared.endpoint.options,
            Self::Cluster(cluster) => &cluster.options.node,
        }
    }

    /// What the names of all keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.options().prefix
    }

    /// The primaries of a cluster.
    pub(crate) fn nodes(&self) -> Vec<RedisOptions> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Our name.
    pub(crate) fn inbox(&self) -> &Inbox {
        match self {
            Self::One(shared) => shared.inbox.name(),
            Self::Cluster(cluster) => cluster.inbox.name(),
        }
    }

    /// Waits for the connection of a renewal: its client waits for a third of the TTL, and is told
    /// before that why there is none.
    pub(crate) async fn ready_for(&self, renew: &Renew) -> Result<(), StoreError> {
        match self {
            Self::One(shared) => shared.ready_within(renew.ttl / 4).await,
            Self::Cluster(_) => Ok(()),
        }
    }

    /// Runs a script where its keys are. A server that says it is no primary has carried out
    /// nothing: the request goes to the next, for as long as an answer may take.
    pub(crate) async fn ask(
        &self,
        delivery: Delivery<'_>,
        request: &Request<'_>,
    ) -> Result<ScriptAnswer, StoreError> {
        let shared = match self {
            Self::One(shared) => shared,
            // Following a slot is large, and must not make every request to one server larger.
            Self::Cluster(cluster) => return Box::pin(cluster.run(request)).await,
        };
        let limit = shared.endpoint.options.response_timeout;
        let mut end = None;
        let mut goes_on = || Instant::now() < *end.get_or_insert_with(|| Instant::now() + limit);
        loop {
            let wire = shared.connection().await?;
            let parted = wire.has_parted();
            let answered = wire.run(delivery, request).await?;
            match &answered.value {
                Value::ServerError(error) if errors::is_elsewhere(error) && goes_on() => {
                    wire.leave();
                }
                // Behind one address are several servers, and keys lie apart.
                _ if answered.is_error("CROSSSLOT") && !parted => wire.part(),
                _ => return Ok(answered),
            }
        }
    }

    /// The same where the value is all that counts.
    pub(crate) async fn read(&self, request: &Request<'_>) -> Result<Value, StoreError> {
        Ok(self.ask(Delivery::Plain, request).await?.value)
    }
}
