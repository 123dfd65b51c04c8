//! Where a server is, and how its locks lie there.

use std::path::PathBuf;

use super::sentinels::{self, Sentinels};

/// The layout of a lock in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RedisLayout {
    /// The native layout: a queue with tokens, at `<prefix>lock:<name>`, with all features of
    /// leasehold.
    #[default]
    Native,
    /// The classic layout, shared with other libraries: the string of `SET key id NX PX ttl`, at
    /// `<prefix><name>`. One holder, no queue, no pushes, no fencing tokens. See
    /// [`ClassicStore`](crate::ClassicStore).
    Classic,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisAddress {
    /// TCP.
    Tcp {
        /// Name or IP address.
        host: String,
        /// Port; Redis uses 6379 by default.
        port: u16,
        /// Whether the connection is encrypted (feature `tls-ring`).
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// The primary that Sentinels report.
    Sentinel(Sentinels),
}

impl RedisAddress {
    pub(crate) fn tcp(host: impl Into<String>, port: u16, tls: bool) -> Self {
        let host = host.into();
        Self::Tcp { host, port, tls }
    }

    /// Host and port, or the path.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } => sentinels::address(host, *port),
            Self::Unix(path) => path.display().to_string(),
            Self::Sentinel(sentinels) => format!("the primary {:?}", sentinels.master),
        }
    }
}
