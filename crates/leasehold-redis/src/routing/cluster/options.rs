//! Options of a cluster.

use leasehold_core::Invalid;
use leasehold_store::setters;

use crate::connection::address::Address;
use crate::options::restart::Restart;
use crate::options::sentinels::{discreet, split_authority};
use crate::options::{RedisAddress, RedisOptions};

const EXAMPLE: &str = "write redis-cluster://user:password@host1:6379,host2:6379,host3:6379/";

/// Options for [`RedisStore::connect_cluster`](crate::RedisStore::connect_cluster).
/// Plain data; `Debug` hides the password.
///
/// ```
/// use leasehold::store::redis::RedisClusterOptions;
/// let options = RedisClusterOptions::from_url("redis-cluster://alice:secret@h1,h2:7000/")?;
/// assert_eq!(options.seeds, [("h1".to_owned(), 6379), ("h2".to_owned(), 7000)]);
/// assert_eq!(options.redacted_url(), "redis-cluster://alice:***@h1:6379,h2:7000/");
///
/// use leasehold::store::redis::RedisOptions;
/// let node = RedisOptions::default().credentials(Some("alice"), "secret").prefix("app:");
/// let options = RedisClusterOptions::new([("h1", 6379), ("h2", 7000)]).tls(true).node(node);
/// assert_eq!(options.redacted_url(), "rediss-cluster://alice:***@h1:6379,h2:7000/?prefix=app%3A");
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct RedisClusterOptions {
    /// Hosts and ports of some nodes, to discover the others. One reachable node is enough.
    pub seeds: Vec<(String, u16)>,
    /// Whether the connections are encrypted (feature `tls-ring`).
    pub tls: bool,
    /// Login, certificates, prefix, retention and time-outs, the same for every node. Its address
    /// is not used, and its database must be 0.
    pub node: RedisOptions,
}

setters! { RedisClusterOptions {
    /// Sets whether the connections are encrypted (feature `tls-ring`).
    tls(tls: bool): tls = tls;
    /// Sets login, certificates, prefix, retention and time-outs, the same for every node.
    node(node: RedisOptions): node = node;
}}

impl RedisClusterOptions {
    /// Makes options for a cluster with these nodes.
    pub fn new<H: Into<String>>(seeds: impl IntoIterator<Item = (H, u16)>) -> Self {
        let seeds = seeds.into_iter().map(|(host, port)| (host.into(), port));
        Self {
            seeds: seeds.collect(),
            tls: false,
            node: RedisOptions::default(),
        }
    }

    /// Parses a URL:
    ///
    /// ```text
    /// redis-cluster://[user:password@]host[:port][,host[:port]…][/][?parameters]
    /// rediss-cluster://…                          the same with TLS
    /// valkey-cluster://…  valkeys-cluster://…     the same
    /// ```
    ///
    /// Parameters: those of [`RedisOptions::from_url`] except `db`, since a cluster has only one
    /// database.
    ///
    /// # Errors
    /// [`Invalid`] with the invalid part. The password is never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let tls = match scheme {
            "redis-cluster" | "valkey-cluster" => false,
            "rediss-cluster" | "valkeys-cluster" => true,
            _ => {
                let scheme = scheme.split(':').next().unwrap_or_default();
                let scheme = scheme.escape_debug();
                return Err(Invalid::new(
                    format!("{scheme}: is not a URL scheme of a cluster"),
                    "use redis-cluster://, or rediss-cluster:// for TLS",
                ));
            }
        };
        let (login, hosts, tail) = split_authority(rest);
        let tail = tail.strip_prefix('/').unwrap_or(tail);
        if !tail.is_empty() && !tail.starts_with('?') {
            return Err(Invalid::new("a cluster has only database 0", EXAMPLE));
        }
        let mut options = Self::new(Vec::<(String, u16)>::new()).tls(tls);
        for host in hosts.split(',') {
            if host.is_empty() {
                return Err(Invalid::new("a host of the cluster is missing", EXAMPLE));
            }
            let one = if tls { "rediss" } else { "redis" };
            options.node = RedisOptions::from_url(&format!("{one}://{login}{host}/{tail}"))?;
            if let RedisAddress::Tcp { host, port, .. } = &options.node.address {
                options.seeds.push((host.clone(), *port));
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Invalid`] with the option and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.seeds.is_empty() {
            return Err(Invalid::new(
                "the URL names no host of the cluster",
                EXAMPLE,
            ));
        }
        if self.node.db != 0 {
            return Err(Invalid::new(
                format!("a cluster has no database {}", self.node.db),
                "leave out db; it is 0",
            ));
        }
        if self.node.acknowledge.is_some() {
            return Err(Invalid::new(
                "in a cluster, grants cannot wait for acknowledgements",
                "leave out acknowledge; docs/stores/cluster.md says what a fail-over can lose",
            ));
        }
        if self.node.restart != Restart::Trust {
            return Err(Invalid::new(
                "a cluster has no quarantine: the mark of a node would move away with its slots",
                "leave out restart; docs/stores/cluster.md says what a fail-over can lose",
            ));
        }
        self.seeds().try_for_each(|seed| self.at(&seed).check())
    }

    /// Returns the URL of these options, without the password. Except for that, parsing it gives
    /// the same options.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.shown(&self.node.without_lone_users())
    }

    /// The URL by which others open the same store, with passwords that they have from elsewhere.
    pub(crate) fn url_for_others(&self) -> String {
        self.shown(&self.node.clone().without_passwords())
    }

    fn shown(&self, node: &RedisOptions) -> String {
        let tls = if self.tls { "s" } else { "" };
        let seeds: Vec<_> = self.seeds().map(|seed| seed.to_string()).collect();
        let (login, params) = (node.shown_login(), node.shown_params());
        format!("redis{tls}-cluster://{login}{}/{params}", seeds.join(","))
    }

    pub(super) fn seeds(&self) -> impl Iterator<Item = Address> {
        let address = |(host, port): &(String, u16)| Address::new(host, *port);
        self.seeds.iter().map(address)
    }

    /// How to talk to one node.
    pub(super) fn at(&self, node: &Address) -> RedisOptions {
        RedisOptions {
            address: RedisAddress::tcp(&node.host, node.port, self.tls),
            ..self.node.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use leasehold_store::access::{Access, TlsOptions};

    use super::*;

    #[test]
    fn a_url_says_everything() {
        let url = "rediss-cluster://al%40ice:s%2C%3Acret@[::1]:7000,h2,10.0.0.3:7003/?prefix=a:\
            &response_timeout=250ms&ca=/ca.pem";
        let options = RedisClusterOptions::from_url(url).unwrap();
        let seeds = [("::1", 7_000), ("h2", 6_379), ("10.0.0.3", 7_003)];
        let access = Access::default().tls(TlsOptions::trusting(Path::new("/ca.pem")));
        let node = RedisOptions::tls("10.0.0.3", 7_003)
            .credentials(Some("al@ice"), "s,:cret")
            .prefix("a:")
            .response_timeout(Duration::from_millis(250))
            .with_access(&access);
        let wanted = RedisClusterOptions::new(seeds).tls(true).node(node);
        assert_eq!(options, wanted);
        let shown = options.redacted_url();
        assert_eq!(
            shown,
            "rediss-cluster://al%40ice:***@[::1]:7000,h2:6379,10.0.0.3:7003/\
             ?prefix=a%3A&response_timeout=250ms&ca=/ca.pem"
        );
        let again = RedisClusterOptions::from_url(&shown).unwrap();
        assert_eq!(again.seeds, options.seeds);
        for shown in [format!("{options:?}"), shown] {
            assert!(!shown.contains("cret"), "{shown}");
        }
    }

    #[test]
    fn short_urls() {
        for (url, shown) in [
            ("redis-cluster://h", "redis-cluster://h:6379/"),
            (
                "valkey-cluster://h1,h2/",
                "redis-cluster://h1:6379,h2:6379/",
            ),
            (
                "valkeys-cluster://:pw@h?prefix=p",
                "rediss-cluster://:***@h:6379/?prefix=p",
            ),
        ] {
            let options = RedisClusterOptions::from_url(url).unwrap();
            assert_eq!(options.redacted_url(), shown);
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (url, message) in [
            ("redis-cluster://", "a host of the cluster is missing"),
            ("redis-cluster://a,,b", "a host of the cluster is missing"),
            ("redis-cluster://a/1", "a cluster has only database 0"),
            ("redis-cluster://a/?db=1", "a cluster has no database 1"),
            ("redis://a", "redis: is not a URL scheme of a cluster"),
            ("a\nb", "a\\nb: is not a URL scheme of a cluster"),
            (
                "redis-cluster:a",
                "redis-cluster: is not a URL scheme of a cluster",
            ),
            (
                "redis-cluster://:secret@a/?color=red",
                "the URL has an unknown parameter \"color\"",
            ),
            (
                "redis-cluster://a/?prefix=lock:",
                "the prefix \"lock:\" is not allowed",
            ),
            (
                "redis-cluster://a/?acknowledge=1",
                "in a cluster, grants cannot wait for acknowledgements",
            ),
            (
                "redis-cluster://a/?restart=quarantine",
                "a cluster has no quarantine: the mark of a node would move away with its slots",
            ),
        ] {
            let refused = RedisClusterOptions::from_url(url).unwrap_err();
            assert_eq!(refused.message, message, "{url}");
            assert!(refused.hint.is_some(), "{url}");
        }
        let nowhere = RedisClusterOptions::new(Vec::<(String, u16)>::new());
        assert!(nowhere.check().is_err());
    }
}
