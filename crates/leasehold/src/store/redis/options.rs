//! Where the server is, and how to talk to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Invalid;
use url::Url;

use super::acknowledge::{self, Acknowledge};
use super::restart::{self, Restart};
use super::sentinels::{self, Sentinels};

/// The query parameters of a URL.
const PARAMETERS: &str = "prefix, retention, connect_timeout, response_timeout, db; with TLS \
    ca, cert, key; with a socket user, pass; with Sentinels sentinel_user, sentinel_pass; with \
    replicas acknowledge, acknowledge_timeout, acknowledge_renewals; restart, and with \
    restart=quarantine max_ttl, quarantine";

/// The shortest time for which an idle key keeps its last token.
pub(super) const SHORTEST_RETENTION: Duration = Duration::from_secs(60);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// TCP.
    Tcp {
        /// Name or IP address.
        host: String,
        /// Port, 6379 by custom.
        port: u16,
        /// Whether the connection is encrypted (feature `tls`).
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// Wherever the Sentinels say that the primary is.
    Sentinel(Sentinels),
}

/// Options for [`RedisStore::connect`](super::RedisStore::connect). Plain data;
/// `Debug` hides the password.
///
/// ```
/// use leasehold::store::redis::RedisOptions;
/// let options = RedisOptions::from_url("redis://alice:secret@localhost/2?prefix=app:")?;
/// assert_eq!(options.db, 2);
/// assert_eq!(options.redacted_url(), "redis://alice:***@localhost:6379/2?prefix=app%3A");
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// Where the server listens.
    pub address: RedisAddress,
    /// The ACL user; `None` for `default`.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub db: i64,
    /// What the names of all keys and channels begin with. Default `leasehold:`.
    pub prefix: String,
    /// How long an idle key keeps its last token. Default 24 h; 1 min to 366 d.
    pub retention: Duration,
    /// How long opening a connection may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long an answer may take. Default 5 s.
    pub response_timeout: Duration,
    /// Who must have a grant before it counts; default nobody but the server.
    pub acknowledge: Option<Acknowledge>,
    /// What is thought of a server that has restarted; default that it remembers.
    pub restart: Restart,
    /// Certificates to trust instead of the system's, a PEM file.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate and its key, PEM files.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl RedisAddress {
    /// Host and port, or the path.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } => sentinels::address(host, *port),
            Self::Unix(path) => path.display().to_string(),
            Self::Sentinel(sentinels) => format!("the primary {:?}", sentinels.master),
        }
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self::tcp("127.0.0.1", 6379)
    }
}

impl RedisOptions {
    /// A server reached by TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::Tcp {
            host: host.into(),
            port,
            tls: false,
        })
    }

    /// A server reached by TLS. Needs the feature `tls`.
    pub fn tls(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::Tcp {
            host: host.into(),
            port,
            tls: true,
        })
    }

    /// A server reached by a Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(RedisAddress::Unix(path.into()))
    }

    /// The primary that these Sentinels watch, wherever it is.
    pub fn sentinels(sentinels: Sentinels) -> Self {
        Self::at(RedisAddress::Sentinel(sentinels))
    }

    fn at(address: RedisAddress) -> Self {
        Self {
            address,
            username: None,
            password: None,
            db: 0,
            prefix: "leasehold:".to_owned(),
            retention: Duration::from_secs(24 * 3600),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            acknowledge: None,
            restart: Restart::Trust,
            ca_file: None,
            client_certificate: None,
        }
    }

    /// Logs in.
    #[must_use]
    pub fn credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.username = username.map(str::to_owned);
        self.password = Some(password.to_owned());
        self
    }

    /// Selects a database.
    #[must_use]
    pub fn db(mut self, db: i64) -> Self {
        self.db = db;
        self
    }

    /// Sets what the names of all keys and channels begin with.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long an idle key keeps its last token.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how long opening a connection may take.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long an answer may take.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// A grant counts only once it was acknowledged as this policy says.
    #[must_use]
    pub fn acknowledge(mut self, policy: Acknowledge) -> Self {
        self.acknowledge = Some(policy);
        self
    }

    /// Sets what is thought of a server that has restarted.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Trusts the certificates in this PEM file instead of the system's.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows this certificate to the server.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Reads a URL:
    ///
    /// ```text
    /// redis://[user:password@]host[:port][/db][?parameters]
    /// rediss://…                                 the same with TLS
    /// valkey://…  valkeys://…                    the same
    /// redis+unix://[user:password@]/path[?parameters]
    /// redis-sentinel://[user:password@]h1[:port],h2,h3/name-of-the-primary[/db][?parameters]
    /// rediss-sentinel://…                        the same with TLS
    /// ```
    ///
    /// Parameters: `prefix`, `retention`, `connect_timeout`, `response_timeout`
    /// (durations such as `500ms`, `5s`, `10m`, `24h`, `7d`), `db`; with TLS `ca`,
    /// `cert`, `key` (PEM files); with a socket `user` and `pass`; with Sentinels
    /// `sentinel_user` and `sentinel_pass`, which log in at these, as `user` and
    /// `password` do at the servers. `acknowledge` says who must have a grant
    /// before it counts: `none`, a number of replicas, `majority` (of the
    /// replicas), `disk` or `disk:<replicas>`; within `acknowledge_timeout` (1 s),
    /// and for renewals too unless `acknowledge_renewals=no`; see [`Acknowledge`].
    /// `restart=quarantine` says that a server which has restarted may have
    /// forgotten who holds; with `max_ttl` (60 s) and `quarantine` (twice that);
    /// see [`Restart`].
    ///
    /// # Errors
    /// [`Invalid`], naming what cannot be read. The password is never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        let (hosts, url) = sentinels::split_hosts(url);
        let url = Url::parse(&url)
            .map_err(|error| Invalid::new(format!("the URL cannot be read: {error}"), EXAMPLE))?;
        let mut db = None;
        let mut options = match url.scheme() {
            "redis" | "valkey" => Self::tcp(host(&url)?, url.port().unwrap_or(6379)),
            "rediss" | "valkeys" => Self::tls(host(&url)?, url.port().unwrap_or(6379)),
            "redis+unix" | "unix" | "valkey+unix" => {
                if url.host_str().is_some_and(|host| !host.is_empty()) || url.path().len() < 2 {
                    return Err(Invalid::new(
                        "the URL names no socket",
                        "write redis+unix:///run/redis/redis.sock",
                    ));
                }
                Self::unix(decode("path", url.path())?)
            }
            "redis-sentinel" | "valkey-sentinel" | "rediss-sentinel" | "valkeys-sentinel" => {
                let tls = matches!(url.scheme(), "rediss-sentinel" | "valkeys-sentinel");
                let (sentinels, number) = Sentinels::from_url(&hosts, &url, tls)?;
                db = number;
                Self::sentinels(sentinels)
            }
            other => {
                return Err(Invalid::new(
                    format!("the scheme {other}: is not one of Redis"),
                    "use redis, rediss, redis+unix, redis-sentinel, valkey or valkeys",
                ));
            }
        };
        if hosts.len() > 1 && !matches!(options.address, RedisAddress::Sentinel(_)) {
            return Err(Invalid::new(
                format!(
                    "{}: is for one server, and the URL names several",
                    url.scheme()
                ),
                "for Sentinels write redis-sentinel://h1,h2,h3/mymaster",
            ));
        }
        if !url.username().is_empty() {
            options.username = Some(decode("user name", url.username())?);
        }
        options.password = url
            .password()
            .map(|password| decode("password", password))
            .transpose()?;
        if matches!(options.address, RedisAddress::Tcp { .. }) {
            let path = url.path().trim_start_matches('/');
            db = Some(path.to_owned()).filter(|path| !path.is_empty());
        }
        if let Some(db) = db {
            options.db = parse_db(&db)?;
        }
        let (mut certificate, mut key) = (None, None);
        let mut acknowledge = acknowledge::Said::default();
        let mut restart = restart::Said::default();
        let socket = matches!(options.address, RedisAddress::Unix(_));
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => options.prefix = value.into_owned(),
                "db" => options.db = parse_db(&value)?,
                "retention" => options.retention = parse_duration(&name, &value)?,
                "connect_timeout" => options.connect_timeout = parse_duration(&name, &value)?,
                "response_timeout" => options.response_timeout = parse_duration(&name, &value)?,
                "ca" => options.ca_file = Some(PathBuf::from(&*value)),
                "cert" => certificate = Some(PathBuf::from(&*value)),
                "user" if socket => options.username = Some(value.into_owned()),
                "pass" if socket => options.password = Some(value.into_owned()),
                "key" => key = Some(PathBuf::from(&*value)),
                "sentinel_user" | "sentinel_pass" if options.login_of_sentinels().is_some() => {
                    if let Some((user, password)) = options.login_of_sentinels() {
                        let place = if name == "sentinel_user" {
                            user
                        } else {
                            password
                        };
                        *place = Some(value.into_owned());
                    }
                }
                name if acknowledge.read(name, &value)? || restart.read(name, &value)? => {}
                other => {
                    return Err(Invalid::new(
                        format!("the URL has an unknown parameter {other:?}"),
                        format!("known are {PARAMETERS}"),
                    ));
                }
            }
        }
        options.acknowledge = acknowledge.policy()?;
        options.restart = restart.choice()?;
        options.client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Invalid::plain("cert and key belong together in the URL")),
        };
        options.check()?;
        Ok(options)
    }

    /// Refuses options that cannot work.
    ///
    /// # Errors
    /// [`Invalid`], naming the option and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        let prefix = &self.prefix;
        // The scripts find the name of a lock behind the first `lock:`.
        if prefix.len() > 128 || prefix.contains("lock:") || prefix.chars().any(char::is_control) {
            return Err(Invalid::new(
                format!("the prefix {prefix:?} cannot be used"),
                "at most 128 bytes, without control characters and without `lock:`",
            ));
        }
        let day = Duration::from_secs(24 * 3600);
        if self.retention < SHORTEST_RETENTION || self.retention > 366 * day {
            return Err(Invalid::new(
                format!("a retention of {:?} is out of bounds", self.retention),
                "choose between 1 min and 366 d; 24 h suits most",
            ));
        }
        for (name, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
        ] {
            if timeout < Duration::from_millis(10) || timeout > Duration::from_secs(300) {
                return Err(Invalid::new(
                    format!("a {name} of {timeout:?} is out of bounds"),
                    "choose between 10 ms and 5 min",
                ));
            }
        }
        if let RedisAddress::Sentinel(sentinels) = &self.address {
            sentinels.check()?;
        }
        if let Some(policy) = &self.acknowledge {
            policy.check()?;
        }
        self.restart.check()?;
        if !self.is_encrypted() && (self.ca_file.is_some() || self.client_certificate.is_some()) {
            return Err(Invalid::new(
                "certificates are given, but the connection is not encrypted",
                "use rediss://",
            ));
        }
        Ok(())
    }

    /// Whether the connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(
            self.address,
            RedisAddress::Tcp { tls: true, .. }
                | RedisAddress::Sentinel(Sentinels { tls: true, .. })
        )
    }

    fn login_of_sentinels(&mut self) -> Option<(&mut Option<String>, &mut Option<String>)> {
        match &mut self.address {
            RedisAddress::Sentinel(sentinels) => {
                Some((&mut sentinels.username, &mut sentinels.password))
            }
            _ => None,
        }
    }

    /// Forgets the passwords.
    pub(crate) fn without_passwords(mut self) -> Self {
        self.password = None;
        if let Some((_, password)) = self.login_of_sentinels() {
            *password = None;
        }
        self
    }

    /// The URL of these options, without the password: but for that it reads
    /// back the same.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let secret = self.password.as_ref().map(|_| "***");
        let begin = |kind: &str| {
            let mut url = format!(
                "redis{}{kind}://",
                if self.is_encrypted() { "s" } else { "" }
            );
            encode(self.username.as_deref().unwrap_or_default(), &mut url);
            if let Some(secret) = secret {
                url.push(':');
                url.push_str(secret);
            }
            if self.username.is_some() || secret.is_some() {
                url.push('@');
            }
            url
        };
        let mut url = match &self.address {
            RedisAddress::Tcp { host, port, .. } => {
                begin("") + &format!("{}/{}", sentinels::address(host, *port), self.db)
            }
            RedisAddress::Sentinel(sentinels) => {
                begin("-sentinel") + &format!("{}/{}", sentinels.show(), self.db)
            }
            RedisAddress::Unix(path) => {
                let mut url = "redis+unix://".to_owned();
                encode(&path.to_string_lossy(), &mut url);
                url + &format!("?db={}", self.db)
            }
        };
        let usual = Self::default();
        let mut add = |name: &str, value: &str| {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(name);
            url.push('=');
            encode(value, &mut url);
        };
        if matches!(self.address, RedisAddress::Unix(_)) {
            for (name, value) in [("user", self.username.as_deref()), ("pass", secret)] {
                if let Some(value) = value {
                    add(name, value);
                }
            }
        }
        if let RedisAddress::Sentinel(Sentinels {
            username, password, ..
        }) = &self.address
        {
            let hidden = password.as_ref().map(|_| "***");
            for (name, value) in [
                ("sentinel_user", username.as_deref()),
                ("sentinel_pass", hidden),
            ] {
                if let Some(value) = value {
                    add(name, value);
                }
            }
        }
        if self.prefix != usual.prefix {
            add("prefix", &self.prefix);
        }
        for (name, duration, usual) in [
            ("retention", self.retention, usual.retention),
            (
                "connect_timeout",
                self.connect_timeout,
                usual.connect_timeout,
            ),
            (
                "response_timeout",
                self.response_timeout,
                usual.response_timeout,
            ),
        ] {
            if duration != usual {
                add(name, &format!("{}ms", duration.as_millis()));
            }
        }
        let acknowledge = self.acknowledge.iter().flat_map(Acknowledge::parameters);
        for (name, value) in acknowledge.chain(self.restart.parameters()) {
            add(name, &value);
        }
        if let Some(ca) = &self.ca_file {
            add("ca", &ca.to_string_lossy());
        }
        if let Some((certificate, key)) = &self.client_certificate {
            add("cert", &certificate.to_string_lossy());
            add("key", &key.to_string_lossy());
        }
        url
    }
}

/// Writes a query parameter so that it reads back the same.
pub(super) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' | b'/' => {
                out.push(byte.into());
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.redacted_url())
            .field("retention", &self.retention)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("acknowledge", &self.acknowledge)
            .field("restart", &self.restart)
            .field("ca_file", &self.ca_file)
            .field("client_certificate", &self.client_certificate)
            .finish()
    }
}

const EXAMPLE: &str = "write redis://user:password@host:6379/0, with special characters in user \
    and password percent-encoded";

fn host(url: &Url) -> Result<String, Invalid> {
    match url.host_str() {
        None | Some("") => Ok("127.0.0.1".to_owned()),
        Some(host) => decode("host", host.trim_start_matches('[').trim_end_matches(']')),
    }
}

fn parse_db(text: &str) -> Result<i64, Invalid> {
    text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
        Invalid::new(
            format!("the database {text:?} is not a number"),
            "write redis://host/2 for database 2",
        )
    })
}

pub(super) fn parse_duration(name: &str, text: &str) -> Result<Duration, Invalid> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    number
        .zip(millis)
        .and_then(|(number, millis)| number.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Invalid::new(
                format!("{name} = {text:?} is not a duration"),
                "write a whole number and a unit: 500ms, 5s, 10m, 24h, 7d",
            )
        })
}

/// Undoes percent-encoding.
pub(super) fn decode(what: &str, text: &str) -> Result<String, Invalid> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            return Err(Invalid::new(
                format!("the {what} in the URL is not percent-encoded as it should be"),
                "write %25 for a percent sign",
            ));
        };
        out.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(out)
        .map_err(|_| Invalid::plain(format!("the {what} in the URL is not UTF-8")))
}
