//! Routes a key to its server: a single server or a node of a cluster.

pub(crate) mod cluster;
pub(crate) mod names;

use std::sync::Arc;

use leasehold_core::Inbox;
use leasehold_store::StoreError;
use leasehold_store::sync::check_runtime;

use self::cluster::{Cluster, RedisClusterOptions};
use crate::connection::connect::Target;
use crate::connection::manager::ConnectionManager;
use crate::options::RedisOptions;

/// The way from a key to its server.
#[derive(Clone)]
pub(crate) enum Route {
    /// To one server, or to the primary that Sentinels name.
    One(Arc<ConnectionManager>),
    Cluster(Arc<Cluster>),
}

impl Route {
    /// Opens the connection.
    pub(crate) async fn open(target: Target) -> Result<Self, StoreError> {
        check_runtime()?;
        Ok(Self::One(ConnectionManager::open(target, None).await?))
    }

    /// Asks the nodes that are named for the others.
    pub(crate) async fn open_cluster(options: RedisClusterOptions) -> Result<Self, StoreError> {
        check_runtime()?;
        Ok(Self::Cluster(Cluster::open(options).await?))
    }

    /// The URL of the server or cluster, without the password.
    pub(crate) fn redacted(&self) -> &str {
        match self {
            Self::One(shared) => &shared.target().redacted,
            Self::Cluster(cluster) => cluster.redacted(),
        }
    }

    /// How each server is reached and used.
    pub(crate) fn options(&self) -> &RedisOptions {
        match self {
            Self::One(shared) => &shared.target().options,
            Self::Cluster(cluster) => cluster.options(),
        }
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
            Self::One(shared) => shared.inbox(),
            Self::Cluster(cluster) => cluster.inbox(),
        }
    }
}
