//! Options of a store in ZooKeeper, and their URL.

use std::fmt;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::access::{Access, TlsFiles, read_password};
use leasehold_store::params::Field::{self, DurationOr};
use leasehold_store::params::{Param, Params, add_params, check_bounds, encode};
use leasehold_store::{ErrorKind, StoreError};
use percent_encoding::percent_decode_str;

const PORT: u16 = 2181;
const USUAL_CHROOT: &str = "/leasehold";
/// The usual `jute.maxbuffer`.
const USUAL_MAXBUFFER: usize = 0xf_ffff;
const USUAL_SESSION: Duration = Duration::from_secs(6);
const USUAL_RETENTION: Duration = Duration::from_secs(24 * 3600);
const USUAL_TIMEOUT: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Options of a store in ZooKeeper. `Debug` hides the password.
///
/// # The parameters of a URL
/// `session_timeout` (how long a client that has died counts as listening; default 6 s, within the
/// bounds of the servers), `maxbuffer` (bytes; as `jute.maxbuffer` of the servers; default 1 MiB),
/// `retention` (how long an idle key keeps its last token; default 24 h), `connect_timeout`,
/// `response_timeout` (5 s).
#[derive(Clone)]
pub struct ZooKeeperOptions {
    /// The servers, each with its port.
    servers: Vec<String>,
    /// The node under which all others are.
    pub chroot: String,
    user: Option<String>,
    pub(crate) password: Option<String>,
    /// How long a client that has died counts as listening.
    pub session_timeout: Duration,
    /// The largest request that the servers take, in bytes.
    pub maxbuffer: usize,
    /// How long an idle key keeps its last token.
    pub retention: Duration,
    /// How long opening a session may take.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub response_timeout: Duration,
}

const TABLE: &[Param<ZooKeeperOptions>] = &[
    ("session_timeout", |options| {
        DurationOr(&mut options.session_timeout, USUAL_SESSION)
    }),
    ("maxbuffer", |options| {
        let shown = (options.maxbuffer != USUAL_MAXBUFFER).then(|| options.maxbuffer.to_string());
        Field::custom(shown, |text| {
            let bytes = text.parse().ok();
            options.maxbuffer = bytes
                .filter(|bytes| (10_000..=1 << 30).contains(bytes))
                .ok_or_else(|| {
                    let why = "the URL has no number of bytes for maxbuffer";
                    Invalid::new(
                        why,
                        "write what jute.maxbuffer is at the servers, like 4194304",
                    )
                })?;
            Ok(())
        })
    }),
    ("retention", |options| {
        DurationOr(&mut options.retention, USUAL_RETENTION)
    }),
    ("connect_timeout", |options| {
        DurationOr(&mut options.connect_timeout, USUAL_TIMEOUT)
    }),
    ("response_timeout", |options| {
        DurationOr(&mut options.response_timeout, USUAL_TIMEOUT)
    }),
];

fn invalid(what: &str) -> Invalid {
    let hint = "write it like zookeeper://host1,host2,host3/path";
    Invalid::new(format!("the URL of ZooKeeper {what}"), hint)
}

fn decoded(text: &str) -> Result<String, Invalid> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned)
        .map_err(|_| invalid("has something that is not UTF-8"))
}

/// A server with its port; IPv6 addresses stand in brackets.
fn server(text: &str) -> Result<String, Invalid> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_address = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    if host.is_empty() || (host.contains([':', '[', ']']) && !is_address) {
        return Err(invalid("names no host"));
    }
    let port = port.map_or(Ok(PORT), str::parse);
    match port {
        Ok(port @ 1..) => Ok(format!("{host}:{port}")),
        _ => Err(invalid("has something for a port that is none")),
    }
}

/// A path that ZooKeeper takes.
fn chroot(text: &str) -> Result<String, Invalid> {
    let path = decoded(text)?;
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(USUAL_CHROOT.to_owned());
    }
    let is_name = |name: &str| !matches!(name, "" | "." | "..");
    let is_path = path.split('/').skip(1).all(is_name) && !path.contains(char::is_control);
    if !is_path || path == "/zookeeper" || path.starts_with("/zookeeper/") {
        return Err(invalid(
            "has no path of a node, or that of ZooKeeper itself",
        ));
    }
    Ok(path.to_owned())
}

impl ZooKeeperOptions {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`Invalid`] for one that names no ZooKeeper, or with a parameter that there is not. It does not
    /// repeat what may be a part of a password.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        let rest = url
            .strip_prefix("zookeeper://")
            .ok_or_else(|| invalid("cannot be read"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if path.contains('@') || query.contains('@') {
            return Err(Invalid::new(
                "the URL of ZooKeeper cannot be read, and it has an @ after its first / or ?",
                "percent-encode special characters in user and password, and in the path: %2F for /, \
                 %3F for ?, %40 for @",
            ));
        }
        let (identity, servers) = match authority.rsplit_once('@') {
            Some((identity, servers)) => (Some(identity), servers),
            None => (None, authority),
        };
        let (user, password) = match identity.map(|text| text.split_once(':').unwrap_or((text, "")))
        {
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
            None => (None, None),
        };
        let mut options = Self {
            servers: servers.split(',').map(server).collect::<Result<_, _>>()?,
            chroot: chroot(path)?,
            user,
            password: password.filter(|password| !password.is_empty()),
            session_timeout: USUAL_SESSION,
            maxbuffer: USUAL_MAXBUFFER,
            retention: USUAL_RETENTION,
            connect_timeout: USUAL_TIMEOUT,
            response_timeout: USUAL_TIMEOUT,
        };
        Params::of_query(query)?.read_all(TABLE, &mut options)?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Invalid> {
        if self
            .user
            .as_ref()
            .is_some_and(|user| user.is_empty() || user.contains(':'))
        {
            return Err(invalid("has something for a user that is none"));
        }
        let second = Duration::from_secs(1);
        let bounds = second / 10..=60 * second;
        check_bounds(
            "session_timeout",
            self.session_timeout,
            bounds,
            "choose 100ms to 60s",
        )?;
        let bounds = 60 * second..=366 * DAY;
        check_bounds("retention", self.retention, bounds, "choose 1m to 366d")?;
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
        ] {
            check_bounds(
                name,
                value,
                second / 1000..=3600 * second,
                "choose 1ms to 1h",
            )?;
        }
        Ok(())
    }

    /// Adds credentials that do not stand in the URL.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be read, and for certificates: there is no TLS yet.
    pub(crate) fn with_access(mut self, access: &Access) -> Result<Self, StoreError> {
        if access.tls != TlsFiles::default() {
            let message = "connections to ZooKeeper cannot be encrypted yet";
            return Err(StoreError::new(ErrorKind::Invalid, message)
                .with_hint("leave out the certificates, and use a network that nobody reads"));
        }
        if let Some(user) = &access.user {
            self.user = Some(user.clone());
        }
        let file = access
            .password_file
            .as_deref()
            .map(read_password)
            .transpose()?;
        if let Some(password) = file.or_else(|| access.password.clone()) {
            self.password = Some(password);
        }
        if self.user.is_none() && self.password.is_some() {
            let message = "there is a password for ZooKeeper, and no user";
            return Err(StoreError::new(ErrorKind::Invalid, message)
                .with_hint("name the user: zookeeper://user@host/path"));
        }
        self.check()?;
        Ok(self)
    }

    /// The servers, as ZooKeeper's clients write them.
    pub(crate) fn hosts(&self) -> String {
        self.servers.join(",")
    }

    /// The user and the password, if there is a user.
    pub(crate) fn identity(&self) -> Option<(&str, &str)> {
        let password = self.password.as_deref().unwrap_or_default();
        self.user.as_deref().map(|user| (user, password))
    }

    /// The URL as people may see it. It reads back the same but for the password.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let mut url = "zookeeper://".to_owned();
        if let Some(user) = &self.user {
            let mut written = String::new();
            encode(user, &mut written);
            url += &written.replace('/', "%2F");
            url += self.password.as_ref().map_or("", |_| ":***");
            url.push('@');
        }
        let usual = format!(":{PORT}");
        let servers = self.servers.iter();
        let servers: Vec<_> = servers
            .map(|one| one.strip_suffix(&usual).unwrap_or(one))
            .collect();
        url += &servers.join(",");
        if self.chroot != USUAL_CHROOT {
            encode(&self.chroot, &mut url);
        }
        add_params(&mut url, TABLE, self);
        url
    }

    /// The URL without its password, for another process.
    pub(crate) fn url_for_others(&self) -> String {
        self.redacted_url().replace(":***@", "@")
    }
}

impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeperOptions")
            .field(&self.redacted_url())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_reads_back_the_same() {
        for (url, shown) in [
            ("zookeeper://h", "zookeeper://h"),
            ("zookeeper://h:2181/leasehold/", "zookeeper://h"),
            (
                "zookeeper://h,i:2182,[::1]:3/a/b",
                "zookeeper://h,i:2182,[::1]:3/a/b",
            ),
            ("zookeeper://u@h/a%20b", "zookeeper://u@h/a%20b"),
            ("zookeeper://u:secret@h", "zookeeper://u:***@h"),
            ("zookeeper://u%2F:se%40cret@h", "zookeeper://u%2F:***@h"),
            (
                "zookeeper://h?maxbuffer=4194304&session_timeout=10s&retention=24h",
                "zookeeper://h?session_timeout=10s&maxbuffer=4194304",
            ),
        ] {
            let options = ZooKeeperOptions::from_url(url).unwrap();
            assert_eq!(options.redacted_url(), shown, "{url}");
            let again = ZooKeeperOptions::from_url(shown).unwrap();
            assert_eq!(again.redacted_url(), shown);
            assert!(!format!("{options:?}").contains("secret"));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_not_repeated() {
        for (url, said) in [
            ("zookeeper://", "names no host"),
            ("zookeeper://h,", "names no host"),
            ("zookeeper://::1", "names no host"),
            ("zookeeper://h:0", "for a port"),
            ("zookeeper://h:port", "for a port"),
            ("zookeeper://h//a", "no path of a node"),
            ("zookeeper://h/../a", "no path of a node"),
            ("zookeeper://h/zookeeper/config", "no path of a node"),
            ("zookeeper://u:secret/1@h", "has an @ after"),
            (
                "zookeeper://u:secret@h?colour=red",
                "unknown parameter \"colour\"",
            ),
            ("zookeeper://:secret@h", "for a user"),
            ("zookeeper://h?maxbuffer=1", "no number of bytes"),
            (
                "zookeeper://h?session_timeout=1h",
                "session_timeout of 1h is out of bounds",
            ),
            (
                "zookeeper://h?retention=1s",
                "retention of 1s is out of bounds",
            ),
        ] {
            let refused = ZooKeeperOptions::from_url(url).unwrap_err();
            assert!(refused.message.contains(said), "{url}: {refused}");
            assert!(!refused.message.contains("secret"), "{refused}");
            assert!(refused.hint.is_some(), "{refused}");
        }
    }
}
