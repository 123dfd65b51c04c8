//! Options of a connection to Redis: address, login, prefix, time-outs and policies.

pub(crate) mod acknowledge;
mod address;
mod check;
mod client;
pub(crate) mod params;
pub(crate) mod restart;
pub(crate) mod sentinels;
mod url;

use std::path::PathBuf;
use std::time::Duration;

use leasehold_store::access::Access;
use leasehold_store::params::Field::{self, DurationOr, Pem, Refused, TextOr, YesNo};
use leasehold_store::params::{Param, USUAL_RETENTION, USUAL_TIMEOUT};
use leasehold_store::{AuditLimit, debug, setters};

use self::acknowledge::Acknowledge;
pub use self::address::{RedisAddress, RedisLayout};
use self::params::{
    OF_SENTINELS, OF_SOCKETS, not_acknowledged, not_quarantined, only_native, parse_db,
};
use self::restart::Restart;
use self::sentinels::Sentinels;

/// The shortest time for which an idle key keeps its last token.
pub(crate) const SHORTEST_RETENTION: Duration = Duration::from_secs(60);

/// What the names of all keys and channels of the native layout begin with.
const PREFIX: &str = "leasehold:";

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
///
/// # The parameters of a URL
/// `layout` (`native`, `classic`), `prefix`, `retention`, `audit` (an
/// [`AuditLimit`] such as `10000` or `24h`), `connect_timeout`,
/// `response_timeout` (durations such as `500ms`, `5s`, `10m`, `1h30m`, `7d`), `db`; with TLS
/// `ca`, `cert`, `key` (PEM files); with a socket `user` and `pass`; with Sentinels
/// `sentinel_user` and `sentinel_pass`, for the login at the Sentinels.
///
/// `acknowledge` sets which replicas and disks must have a grant before it counts: `none`, a
/// number of replicas, `majority` (of the replicas), `disk` or `disk:<replicas>`. The time
/// limit is `acknowledge_timeout` (1 s). It includes renewals, unless
/// `acknowledge_renewals=no`; see [`Acknowledge`].
///
/// `restart=quarantine` puts a server that may have lost data in a restart into quarantine,
/// with the parameters `max_ttl` (60 s) and `quarantine` (twice that); see [`Restart`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct RedisOptions {
    /// The address of the server.
    pub address: RedisAddress,
    /// The ACL user (`None` for `default`), the password and the certificates. A user without a
    /// password is refused at connect.
    pub access: Access,
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
}

/// The parameters of the URLs of all stores on Redis. One that depends on another stands behind it.
const OF_ALL: &[Param<RedisOptions>] = &[
    // Where the path of a URL says the same, it is shown there.
    ("db", |options| {
        let is_socket = matches!(options.address, RedisAddress::Unix(_));
        let shown = is_socket.then(|| options.db.to_string());
        Field::custom(shown, |text| parse_db(text).map(|it| options.db = it))
    }),
    ("layout", |options| {
        let shown = options.is_classic().then(|| "classic".to_owned());
        Field::custom(shown, |text| options.set_layout(text))
    }),
    ("prefix", |options| {
        let usual = if options.is_classic() { "" } else { PREFIX };
        TextOr(&mut options.prefix, usual)
    }),
    ("retention", |options| match options.layout {
        RedisLayout::Native => DurationOr(&mut options.retention, USUAL_RETENTION),
        RedisLayout::Classic => Refused(only_native("retention", "no tokens to remember")),
    }),
    ("audit", |options| Field::Audit(&mut options.audit)),
    ("connect_timeout", |options| {
        DurationOr(&mut options.connect_timeout, USUAL_TIMEOUT)
    }),
    ("response_timeout", |options| {
        DurationOr(&mut options.response_timeout, USUAL_TIMEOUT)
    }),
    ("acknowledge", |options| {
        let shown = options.acknowledge.map(|policy| policy.by.to_string());
        let read = |text: &str| acknowledge::parse(text).map(|it| options.acknowledge = it);
        Field::custom(shown, read)
    }),
    ("acknowledge_timeout", |options| {
        match &mut options.acknowledge {
            Some(policy) => DurationOr(&mut policy.timeout, acknowledge::USUAL_TIMEOUT),
            None => Refused(not_acknowledged()),
        }
    }),
    ("acknowledge_renewals", |options| {
        match &mut options.acknowledge {
            Some(policy) => YesNo(&mut policy.renewals, true),
            None => Refused(not_acknowledged()),
        }
    }),
    ("restart", |options| {
        let shown = options.restart.quarantine();
        let shown = shown.map(|_| "quarantine".to_owned());
        let read = |text: &str| restart::parse(text).map(|it| options.restart = it);
        Field::custom(shown, read)
    }),
    ("max_ttl", |options| match &mut options.restart {
        Restart::Quarantine(it) => DurationOr(&mut it.max_ttl, restart::USUAL_MAX_TTL),
        Restart::Trust => Refused(not_quarantined()),
    }),
    ("quarantine", |options| match &mut options.restart {
        Restart::Quarantine(it) => Field::Duration(&mut it.lasts),
        Restart::Trust => Refused(not_quarantined()),
    }),
    ("ca", |options| Pem(&mut options.access.tls.ca)),
    ("cert", |options| Pem(&mut options.access.tls.cert)),
    ("key", |options| Pem(&mut options.access.tls.key)),
];

impl Default for RedisOptions {
    fn default() -> Self {
        Self::tcp("127.0.0.1", 6379)
    }
}

impl RedisOptions {
    /// Makes options for a server with TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::tcp(host, port, false))
    }

    /// Makes options for a server with TLS. Needs the feature `tls-ring`.
    pub fn tls(host: impl Into<String>, port: u16) -> Self {
        Self::at(RedisAddress::tcp(host, port, true))
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
            access: Access::default(),
            db: 0,
            layout: RedisLayout::Native,
            prefix: PREFIX.to_owned(),
            retention: USUAL_RETENTION,
            connect_timeout: USUAL_TIMEOUT,
            response_timeout: USUAL_TIMEOUT,
            audit: None,
            acknowledge: None,
            restart: Restart::Trust,
        }
    }

    /// Sets user and password.
    pub fn credentials(mut self, username: Option<&str>, password: &str) -> Self {
        let (user, password) = (username.map(str::to_owned), Some(password.to_owned()));
        self.access.set_login(user, password);
        self
    }

    /// Adds credentials and certificates; they override those that are there.
    pub fn with_access(mut self, access: &Access) -> Self {
        self.access.replace(access);
        self
    }

    /// Selects the classic layout without a prefix: the key in Redis is the name of the lock.
    /// Open it with [`ClassicStore`](crate::ClassicStore).
    pub fn classic(mut self) -> Self {
        self.layout = RedisLayout::Classic;
        self.prefix = String::new();
        self
    }

    /// The parameters that the URL of such a server can have.
    pub(super) fn params(&self) -> [&'static [Param<Self>]; 2] {
        let own = match &self.address {
            RedisAddress::Tcp { .. } => &[],
            RedisAddress::Unix(_) => OF_SOCKETS,
            RedisAddress::Sentinel(_) => OF_SENTINELS,
        };
        [own, OF_ALL]
    }
}

setters! { RedisOptions {
    /// Selects a database.
    db(db: i64): db = db;
    /// Sets the prefix of all keys and channels.
    prefix(prefix: impl Into<String>): prefix = prefix.into();
    /// Sets how long an idle key of a cluster or a Redlock keeps its last token.
    retention(retention: Duration): retention = retention;
    /// Keeps an audit log of at least that size.
    audit(limit: AuditLimit): audit = Some(limit);
    /// Sets how long opening a connection may take.
    connect_timeout(timeout: Duration): connect_timeout = timeout;
    /// Sets how long an answer may take.
    response_timeout(timeout: Duration): response_timeout = timeout;
    /// Sets the acknowledgement policy: a grant counts only after it was acknowledged.
    acknowledge(policy: Acknowledge): acknowledge = Some(policy);
    /// Sets the restart policy: whether a restarted server is trusted or quarantined.
    restart(restart: Restart): restart = restart;
}}

debug!(RedisOptions; |it| url: it.redacted_url(), password_file: it.access.password_file);
