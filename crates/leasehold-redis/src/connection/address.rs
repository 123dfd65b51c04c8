//! The address of a server or a Sentinel.

use std::fmt;

use leasehold_store::StoreError;
use redis::ConnectionAddr;

use crate::errors;
use crate::options::{RedisOptions, sentinels};

/// A name or IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        Self { host, port }
    }

    /// How it is connected to.
    pub(crate) fn reached(&self, options: &RedisOptions) -> Result<ConnectionAddr, StoreError> {
        let (host, port) = (self.host.clone(), self.port);
        if !options.is_encrypted() {
            return Ok(ConnectionAddr::Tcp(host, port));
        }
        if cfg!(feature = "tls") {
            return Ok(ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            });
        }
        Err(errors::unsupported(
            "this build of leasehold has no TLS",
            "build it with the feature `tls-ring`",
        ))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentinels::address(&self.host, self.port))
    }
}
