//! Options of a connection to Redis: address, login, prefix, time-outs and policies.

pub(crate) mod acknowledge;
pub(crate) mod params;
pub(crate) mod restart;
pub(crate) mod sentinels;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::AuditLimit;
use leasehold_store::params::check_bounds;

use self::acknowledge::Acknowledge;
use self::params::only_native;
use self::restart::Restart;
use self::sentinels::Sentinels;

/// The shortest time for which an idle key keeps its last token.
pub(crate) const SHORTEST_RETENTION: Duration = Duration::from_secs(60);

/// How long an idle key keeps its last token by default.
const USUAL_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How long connections and answers may take by default.
const USUAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What the names of all keys and channels of the native layout begin with.
const PREFIX: &str = "leasehold:";

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
    /// `docs/stores/classic.md`.
    Classic,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// TCP.
    Tcp {
        /// Name or IP address.
        host: String,
        /// Port; Redis uses 6379 by default.
        port: u16,
        /// Whether the connection is encrypted (feature `tls`).
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// The primary that Sentinels report.
    Sentinel(Sentinels),
}

/// Options for [`RedisStore::connect`](crate::RedisStore::connect). Plain data;
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
    /// The address of the server.
    pub address: RedisAddress,
    /// The ACL user; `None` for `default`. A user without a password is refused at connect.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// A file whose first line is the password; overrides `password`. It is read whenever a
    /// connection is opened.
    pub password_file: Option<PathBuf>,
    /// The number of the database.
    pub db: i64,
    /// The layout of a lock in Redis.
    pub layout: RedisLayout,
    /// The prefix of all keys and channels. Default `leasehold:`; empty in the classic layout.
    pub prefix: String,
    /// How long an idle key keeps its last token, in a cluster and with Redlock. A single server
    /// keeps no data of idle keys. Default 24 h; 1 min to 366 d.
    pub retention: Duration,
    /// How long opening a connection may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long an answer may take. Default 5 s.
    pub response_timeout: Duration,
    /// Keeps an audit log of this size. Default none. Actions of clients without it are not in
    /// the log.
    pub audit: Option<AuditLimit>,
    /// The acknowledgement policy: which replicas and disks must have a grant before it counts.
    /// Default none.
    pub acknowledge: Option<Acknowledge>,
    /// The restart policy: whether a restarted server is trusted or quarantined. Default trust.
    pub restart: Restart,
    /// Certificates to trust instead of the system's, a PEM file. It is read whenever a connection
    /// is opened.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate and its key, PEM files. They are read whenever a connection is
    /// opened.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl RedisAddress {
    /// Host and port, or the path.
    pub(crate) fn shown(&self) -> String {
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
    /// Makes options for a server with TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::Tcp {
            host: host.into(),
            port,
            tls: false,
        })
    }

    /// Makes options for a server with TLS. Needs the feature `tls`.
    pub fn tls(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::Tcp {
            host: host.into(),
            port,
            tls: true,
        })
    }

    /// Makes options for a server with a Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(RedisAddress::Unix(path.into()))
    }

    /// Makes options for the primary that these Sentinels watch.
    pub fn sentinels(sentinels: Sentinels) -> Self {
        Self::at(RedisAddress::Sentinel(sentinels))
    }

    fn at(address: RedisAddress) -> Self {
        Self {
            address,
            username: None,
            password: None,
            password_file: None,
            db: 0,
            layout: RedisLayout::Native,
            prefix: PREFIX.to_owned(),
            retention: USUAL_RETENTION,
            connect_timeout: USUAL_TIMEOUT,
            response_timeout: USUAL_TIMEOUT,
            audit: None,
            acknowledge: None,
            restart: Restart::Trust,
            ca_file: None,
            client_certificate: None,
        }
    }

    /// Sets user and password.
    #[must_use]
    pub fn credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.username = username.map(str::to_owned);
        self.password = Some(password.to_owned());
        self
    }

    /// Reads the password from the first line of a file, whenever a connection is opened. So the
    /// password may change.
    #[must_use]
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.password_file = Some(file.into());
        self
    }

    /// Selects a database.
    #[must_use]
    pub fn db(mut self, db: i64) -> Self {
        self.db = db;
        self
    }

    /// Selects the classic layout without a prefix: the key in Redis is the name of the lock.
    /// Open it with [`ClassicStore`](crate::ClassicStore).
    #[must_use]
    pub fn classic(mut self) -> Self {
        self.layout = RedisLayout::Classic;
        self.prefix = String::new();
        self
    }

    /// Sets the prefix of all keys and channels.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long an idle key of a cluster or a Redlock keeps its last token.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Keeps an audit log of at least that size.
    #[must_use]
    pub fn audit(mut self, limit: AuditLimit) -> Self {
        self.audit = Some(limit);
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

    /// Sets the acknowledgement policy: a grant counts only after it was acknowledged.
    #[must_use]
    pub fn acknowledge(mut self, policy: Acknowledge) -> Self {
        self.acknowledge = Some(policy);
        self
    }

    /// Sets the restart policy: whether a restarted server is trusted or quarantined.
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

    /// Sets the client certificate and its key.
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Invalid`] with the option and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        let day = Duration::from_secs(24 * 3600);
        let choose = "choose between 1 min and 366 d; 24 h is a good default";
        let bounds = SHORTEST_RETENTION..=366 * day;
        check_bounds("a retention", self.retention, bounds, choose)?;
        self.check_all_but_retention()
    }

    /// The same for a key that is used once, by the doctor, and need not be
    /// remembered.
    pub(crate) fn check_all_but_retention(&self) -> Result<(), Invalid> {
        let prefix = &self.prefix;
        let classic = self.is_classic();
        // The native scripts find the name of a lock behind the first `lock:`.
        let misleading = !classic && prefix.contains("lock:");
        if prefix.len() > 128 || misleading || prefix.chars().any(char::is_control) {
            return Err(Invalid::new(
                format!("the prefix {prefix:?} is not allowed"),
                "use at most 128 bytes, without control characters and without `lock:`",
            ));
        }
        if classic && self.acknowledge.is_some() {
            return Err(Invalid::new(
                "in the classic layout, grants do not wait for acknowledgements",
                "leave out acknowledge: locks of other libraries would not be acknowledged, and a \
                 fail-over could lose them",
            ));
        }
        if classic && self.audit.is_some() {
            return Err(only_native("audit", "no record of holders"));
        }
        if classic && self.restart != Restart::Trust {
            return Err(Invalid::new(
                "the classic layout has no quarantine after a restart",
                "leave out restart: other libraries would ignore the quarantine",
            ));
        }
        for (name, timeout) in [
            ("a connect_timeout", self.connect_timeout),
            ("a response_timeout", self.response_timeout),
        ] {
            let bounds = Duration::from_millis(10)..=Duration::from_secs(300);
            check_bounds(name, timeout, bounds, "choose between 10 ms and 5 min")?;
        }
        if let RedisAddress::Sentinel(sentinels) = &self.address {
            sentinels.check()?;
        }
        if let Some(policy) = &self.acknowledge {
            policy.check()?;
        }
        self.restart.check()?;
        if let Some((certificate, key)) = &self.client_certificate
            && (certificate.as_os_str().is_empty() || key.as_os_str().is_empty())
        {
            return Err(Invalid::plain(
                "the URL must have both cert and key, or neither",
            ));
        }
        if !self.is_encrypted() && (self.ca_file.is_some() || self.client_certificate.is_some()) {
            return Err(Invalid::new(
                "certificates are given, but the connection is not encrypted",
                "use rediss://",
            ));
        }
        Ok(())
    }

    pub(crate) fn is_classic(&self) -> bool {
        self.layout == RedisLayout::Classic
    }

    /// Whether the connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(
            self.address,
            RedisAddress::Tcp { tls: true, .. }
                | RedisAddress::Sentinel(Sentinels { tls: true, .. })
        )
    }

    /// Forgets the passwords.
    pub(crate) fn without_passwords(mut self) -> Self {
        (self.password, self.password_file) = (None, None);
        if let RedisAddress::Sentinel(sentinels) = &mut self.address {
            sentinels.password = None;
        }
        self
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.redacted_url())
            .field("password_file", &self.password_file)
            .finish()
    }
}
