//! Where the locks of a schedule are.

use serde::{Deserialize, Serialize};

use crate::value_name::value_name;

/// Where the locks are.
#[derive(Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deployment {
    /// `local:`, files of one machine.
    Local,
    /// One server that keeps nothing on disk.
    Server,
    /// One server that has every write on disk before it answers.
    ServerAof,
    /// A primary with two replicas under three Sentinels; nothing is acknowledged.
    Sentinel,
    /// The same; both replicas acknowledge.
    Acknowledged,
    /// Three primaries with a replica each.
    Cluster,
    /// Three independent servers.
    Redlock3,
    /// Five independent servers.
    Redlock5,
    /// One server that keeps nothing on disk, and grants nothing for a while after a restart.
    ServerQuarantine,
    /// A PostgreSQL server that has every commit on disk before it answers.
    Postgres,
    /// The same behind a pooler, which gives each transaction a session.
    PostgresPooled,
    /// A PostgreSQL server, and a standby that has every commit on disk before it is answered.
    PostgresStandby,
    /// A ZooKeeper server that has every change on disk before it answers.
    Zookeeper,
    /// Three of them, of which two make a majority. Clients know all.
    ZookeeperEnsemble,
}

impl Deployment {
    /// As the command line and tables name it.
    pub fn name(self) -> String {
        value_name(&self)
    }

    /// Independent servers.
    pub fn is_redlock(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock5)
    }

    /// PostgreSQL, with or without a pooler or a standby.
    pub fn is_postgres(self) -> bool {
        use Deployment::{Postgres, PostgresPooled, PostgresStandby};
        matches!(self, Postgres | PostgresPooled | PostgresStandby)
    }

    /// ZooKeeper, one server or several.
    pub fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zookeeper | Self::ZookeeperEnsemble)
    }

    /// Servers of Redis, however many.
    pub fn is_redis(self) -> bool {
        !(self == Self::Local || self.is_postgres() || self.is_zookeeper())
    }

    /// Whether its clients have the time of day from clocks of their own. PostgreSQL and ZooKeeper
    /// give their own time: that of their clients must not matter.
    pub fn clients_have_clocks(self) -> bool {
        !self.is_redis() || self.is_redlock()
    }

    /// Whether a fail-over is part of it.
    pub fn takes_time(self) -> bool {
        matches!(
            self,
            Self::Sentinel
                | Self::Acknowledged
                | Self::Cluster
                | Self::PostgresStandby
                | Self::ZookeeperEnsemble
        )
    }

    /// Whether its store keeps an audit log.
    pub fn keeps_audit(self) -> bool {
        self == Self::Local || self.is_redis()
    }

    /// How many servers there are, Sentinels not counted. A pooler or a standby is the last of them.
    pub fn servers(self) -> usize {
        match self {
            Self::Local => 0,
            Self::Server | Self::ServerQuarantine | Self::ServerAof => 1,
            Self::Postgres | Self::Zookeeper => 1,
            Self::PostgresPooled | Self::PostgresStandby => 2,
            Self::Sentinel | Self::Acknowledged | Self::Redlock3 | Self::ZookeeperEnsemble => 3,
            Self::Redlock5 => 5,
            Self::Cluster => 6,
        }
    }
}
