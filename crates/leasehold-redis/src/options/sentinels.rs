//! The addresses of Sentinels, and the URL of a watched primary.

use leasehold_core::Invalid;
use leasehold_store::debug;
use leasehold_store::params::{encode_name, not_encoded};
use url::Url;

use super::url::{decode, host_name};

/// The port of a Sentinel by custom.
const PORT: u16 = 26379;

const EXAMPLE: &str = "write redis-sentinel://user:password@h1,h2:26380,h3/mymaster/0";

/// The Sentinels of a primary, and the name of the primary at the Sentinels. Plain data; `Debug`
/// hides the password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sentinels {
    /// Name or IP address, and port, of each Sentinel. Not all Sentinels need to be listed.
    pub nodes: Vec<(String, u16)>,
    /// The name of the primary at the Sentinels.
    pub master: String,
    /// Whether connections to the Sentinels and to the primary are encrypted
    /// (feature `tls-ring`).
    pub tls: bool,
    /// The ACL user at the Sentinels; `None` for `default`.
    pub username: Option<String>,
    /// The password at the Sentinels, which may differ from that of the servers.
    pub password: Option<String>,
}

impl Sentinels {
    /// Makes a list of Sentinels, with the default port 26379, for the primary named `master`.
    ///
    /// # Errors
    /// [`Invalid`] with the number of the invalid address.
    pub fn new<'a>(
        nodes: impl IntoIterator<Item = &'a str>,
        master: impl Into<String>,
    ) -> Result<Self, Invalid> {
        let nodes = nodes.into_iter().zip(1..).map(node);
        Ok(Self {
            nodes: nodes.collect::<Result<_, _>>()?,
            master: master.into(),
            tls: false,
            username: None,
            password: None,
        })
    }

    /// Sets user and password at the Sentinels.
    #[must_use]
    pub fn credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.username = username.map(str::to_owned);
        self.password = Some(password.to_owned());
        self
    }

    /// Encrypts the connections.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Reads the hosts, and what comes behind the first `/` of the path: the
    /// name of the primary, and perhaps the number of a database, which is
    /// handed back.
    pub(crate) fn from_url<'a>(hosts: &[&str], url: &'a Url) -> Result<(Self, &'a str), Invalid> {
        if url.path().contains('@') {
            let why = "the name of the primary contains an @ that is not percent-encoded";
            return Err(Invalid::plain(why));
        }
        let mut path = url.path().trim_start_matches('/').splitn(2, '/');
        let master = decode("name of the primary", path.next().unwrap_or_default())?;
        let db = path.next().unwrap_or_default();
        let sentinels = Self::new(hosts.iter().copied(), master)?;
        sentinels.check()?;
        Ok((sentinels, db))
    }

    /// Refuses what cannot be asked.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.nodes.is_empty() || self.nodes.iter().any(|(host, _)| host.is_empty()) {
            return Err(Invalid::new("the URL names no Sentinel", EXAMPLE));
        }
        if self.master.is_empty() {
            let why = "the URL does not contain the name of the primary, as the Sentinels know it";
            return Err(Invalid::new(why, EXAMPLE));
        }
        Ok(())
    }

    /// The part of a URL between the credentials and the database.
    pub(crate) fn show(&self) -> String {
        let mut text = self.names().join(",") + "/";
        encode_name(&self.master, &mut text);
        text
    }

    /// The addresses as people write them.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.nodes.iter();
        names.map(|(host, port)| address(host, *port)).collect()
    }
}

debug!(Sentinels; |it| nodes: it.names(), master: it.master, tls: it.tls, username: it.username);

/// An address as people write it.
pub(crate) fn address(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Never repeats the text: it may be a part of a password that is not encoded.
fn node((text, which): (&str, usize)) -> Result<(String, u16), Invalid> {
    let why = format!("the address of Sentinel {which} in the URL is not valid");
    let unreadable = || Invalid::new(&*why, EXAMPLE);
    let url = Url::parse(&format!("redis://{text}")).map_err(|_| unreadable())?;
    let is_more = url.password().is_some() || url.query().is_some() || url.fragment().is_some();
    if !matches!(url.path(), "" | "/") || !url.username().is_empty() || is_more {
        return Err(unreadable());
    }
    Ok((host_name(&url, unreadable)?, url.port().unwrap_or(PORT)))
}

/// Takes apart what stands behind a URL scheme: the login with its @, the hosts, and the rest.
pub(crate) fn split_authority(text: &str) -> (&str, &str, &str) {
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    let (authority, rest) = text.split_at(end);
    let hosts_at = authority.rfind('@').map_or(0, |at| at + 1);
    let (login, hosts) = authority.split_at(hosts_at);
    (login, hosts, rest)
}

/// Takes a URL with several hosts apart: the hosts, and the URL with the first
/// of them only, which others can read.
pub(crate) fn split_hosts(url: &str) -> (Vec<&str>, String) {
    let Some((scheme, text)) = url.split_once("://") else {
        return (Vec::new(), url.to_owned());
    };
    let (login, hosts, rest) = split_authority(text);
    let hosts: Vec<_> = hosts.split(',').collect();
    let one = format!("{scheme}://{login}{}{rest}", hosts[0]);
    (hosts, one)
}

/// An @ behind the first /, ? or # of a refused URL: more likely than not what is refused
/// is a part of a password that is not encoded, and it must not be shown.
pub(crate) fn discreet(url: &str, invalid: Invalid) -> Invalid {
    let behind = match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(':') => split_authority(rest).2,
        _ => url,
    };
    if !behind.contains('@') {
        return invalid;
    }
    not_encoded("the URL cannot be parsed, and it has an @ after its first /, ? or #")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{RedisAddress, RedisOptions};

    #[test]
    fn a_url_names_sentinels_and_a_primary() {
        let url = "redis-sentinel://al%40ice:s%2Ccret@h1,[::1]:7000,h3/my%20master/2\
            ?prefix=p:&sentinel_user=sam&sentinel_pass=hush,hush";
        let options = RedisOptions::from_url(url).unwrap();
        let sentinels = Sentinels::new(["h1", "[::1]:7000", "h3:26379"], "my master")
            .unwrap()
            .credentials(Some("sam"), "hush,hush");
        let wanted = RedisOptions::sentinels(sentinels.clone())
            .credentials(Some("al@ice"), "s,cret")
            .db(2)
            .prefix("p:");
        assert_eq!(options, wanted);
        for shown in [format!("{options:?}"), options.redacted_url()] {
            assert!(
                !shown.contains("cret") && !shown.contains("hush"),
                "{shown}"
            );
        }
        let again = RedisOptions::from_url(&options.redacted_url()).unwrap();
        let hidden = sentinels.credentials(Some("sam"), "***");
        assert_eq!(again.address, RedisAddress::Sentinel(hidden));
        assert_eq!((again.db, again.prefix), (2, "p:".to_owned()));

        let least = RedisOptions::from_url("valkeys-sentinel://h/m").unwrap();
        let RedisAddress::Sentinel(Sentinels { nodes, tls, .. }) = &least.address else {
            panic!("{least:?}")
        };
        assert_eq!(
            (nodes.as_slice(), *tls),
            (&[("h".to_owned(), 26379)][..], true)
        );
        assert_eq!(least.redacted_url(), "rediss-sentinel://h:26379/m/0");
    }

    /// A password that stands there would not be used.
    #[test]
    fn the_address_of_a_sentinel_is_a_host_and_a_port() {
        for odd in ["u@h", ":hush@h", "u:hush@h", "h/x", "h?x", "h#x"] {
            let invalid = Sentinels::new(["a", odd], "m").unwrap_err();
            assert!(invalid.message.contains("Sentinel 2"), "{odd}: {invalid}");
        }
        assert!(Sentinels::new(["a", "h:1/"], "m").is_ok());
    }
}
