//! The address of a server or a Sentinel.

use std::fmt;

use crate::options::{RedisAddress, RedisOptions, sentinels};

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
    pub(crate) fn reached(&self, options: &RedisOptions) -> RedisAddress {
        RedisAddress::tcp(&self.host, self.port, options.is_encrypted())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sentinels::address(&self.host, self.port))
    }
}
