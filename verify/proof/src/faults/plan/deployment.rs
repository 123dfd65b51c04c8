//! Where the locks of a schedule are.

use serde::{Deserialize, Serialize};

/// Where the locks are.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
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
}

impl Deployment {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Local,
        Self::Server,
        Self::ServerQuarantine,
        Self::ServerAof,
        Self::Sentinel,
        Self::Acknowledged,
        Self::Cluster,
        Self::Redlock3,
        Self::Redlock5,
        Self::Postgres,
        Self::PostgresPooled,
    ];

    /// As the command line and tables name it.
    #[must_use]
    pub fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Independent servers.
    #[must_use]
    pub fn is_redlock(self) -> bool {
        matches!(self, Self::Redlock3 | Self::Redlock5)
    }

    /// PostgreSQL, with or without a pooler.
    #[must_use]
    pub fn is_postgres(self) -> bool {
        matches!(self, Self::Postgres | Self::PostgresPooled)
    }

    /// How many servers there are, Sentinels not counted. A pooler is the last of them.
    #[must_use]
    pub fn servers(self) -> usize {
        match self {
            Self::Local => 0,
            Self::Server | Self::ServerQuarantine | Self::ServerAof | Self::Postgres => 1,
            Self::PostgresPooled => 2,
            Self::Sentinel | Self::Acknowledged | Self::Redlock3 => 3,
            Self::Redlock5 => 5,
            Self::Cluster => 6,
        }
    }
}
