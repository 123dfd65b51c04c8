//! The URL schemes of Redis stores.

use std::sync::Arc;

use leasehold_store::access::Access;
use leasehold_store::scheme::Initialised;
use leasehold_store::{StoreError, debug, server_scheme};

use super::doctor::{examine, examine_cluster, examine_redlock};
use crate::classic::ClassicStore;
use crate::options::{RedisLayout, RedisOptions};
use crate::queue::RedisStore;
use crate::quorum::{RedlockOptions, RedlockStore};
use crate::routing::cluster::RedisClusterOptions;

// Without the passwords.
debug!(ClassicStore; |it| url: it.redacted_url());
debug!(RedisStore; |it| url: it.redacted_url());
debug!(RedlockStore; |it| url: it.redacted_url());
debug!(RedisClusterOptions; |it| url: it.redacted_url());
debug!(RedlockOptions; |it| url: it.redacted_url());

/// The URL schemes of one server, and of Sentinels: `redis://`, `redis-sentinel://` and so on.
#[derive(Debug)]
pub struct OneServer;

/// The URL schemes of a cluster: `redis-cluster://` and so on.
#[derive(Debug)]
pub struct ManyNodes;

/// The URL schemes of independent servers: `redlock://` and `redlocks://`.
#[derive(Debug)]
pub struct Votes;

server_scheme! { OneServer: RedisOptions,
    [
        "redis", "rediss", "redis+unix", "unix", "valkey", "valkeys", "valkey+unix",
        "redis-sentinel", "rediss-sentinel", "valkey-sentinel", "valkeys-sentinel",
    ],
    [
        "redis://host/", "rediss://host/", "redis+unix:///path", "valkey://host/",
        "redis-sentinel://h1,h2,h3/name",
    ],
    with_access(),
    open: |options| match options.layout {
        RedisLayout::Native => Arc::new(RedisStore::connect(options).await?),
        RedisLayout::Classic => Arc::new(ClassicStore::connect(options).await?),
    },
    examine: examine,

    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        let options = RedisOptions::from_url(url)?.with_access(access);
        let server = options.address.shown();
        let outcome = Ok(RedisStore::initialise(options).await?);
        Ok(vec![Initialised::new(server, outcome)])
    }
}

server_scheme! { ManyNodes: RedisClusterOptions,
    ["redis-cluster", "rediss-cluster", "valkey-cluster", "valkeys-cluster"],
    ["redis-cluster://h1,h2,h3/"],
    with_access(),
    open: |options| match options.node.layout {
        RedisLayout::Native => Arc::new(RedisStore::connect_cluster(options).await?),
        RedisLayout::Classic => Arc::new(ClassicStore::connect_cluster(options).await?),
    },
    examine: examine_cluster,
}

server_scheme! { Votes: RedlockOptions,
    ["redlock", "redlocks"],
    ["redlock://h1,h2,h3/"],
    with_access(),
    open: |options| Arc::new(RedlockStore::connect(options).await?),
    examine: examine_redlock,

    async fn initialise(&self, url: &str, access: &Access) -> Result<Vec<Initialised>, StoreError> {
        RedlockStore::initialise(RedlockOptions::from_url(url)?.with_access(access)).await
    }
}

impl RedisClusterOptions {
    fn with_access(mut self, access: &Access) -> Self {
        self.node.access.replace(access);
        self
    }

    fn has_password(&self) -> bool {
        self.node.has_password()
    }
}

impl RedlockOptions {
    fn with_access(mut self, access: &Access) -> Self {
        for server in &mut self.servers {
            server.access.replace(access);
        }
        self
    }

    fn has_password(&self) -> bool {
        self.servers.iter().any(RedisOptions::has_password)
    }
}

impl RedisOptions {
    /// Also one for the Sentinels.
    fn has_password(&self) -> bool {
        *self != self.clone().without_passwords()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::scheme::Scheme;

    use super::*;

    /// What is listed is read, and what is read is listed: no URL is known to one of them only.
    #[test]
    fn the_names_are_those_that_the_options_read() {
        let known: [&dyn Scheme; 3] = [&OneServer, &ManyNodes, &Votes];
        for scheme in known {
            for name in scheme.names() {
                let url = match *name {
                    unix if unix.contains("unix") => format!("{name}:///run/redis.sock"),
                    sentinel if sentinel.contains("sentinel") => format!("{name}://a,b,c/mine"),
                    _ => format!("{name}://a:1,b:2,c:3/"),
                };
                let one = url.replace("a:1,b:2,c:3", "a:1");
                let read = [
                    RedisOptions::from_url(&one).is_ok(),
                    RedisClusterOptions::from_url(&url).is_ok(),
                    RedlockOptions::from_url(&url).is_ok(),
                ];
                let here = known.map(|other| other.names().contains(name));
                assert_eq!(read, here, "{name}");
            }
        }
        for scheme in known {
            for example in scheme.examples() {
                assert!(scheme.describe(example).is_ok(), "{example}");
            }
        }
    }
}
