//! Options of a store in ZooKeeper, and their URL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::access::Access;
use leasehold_store::params::Field::{self, DurationOr};
use leasehold_store::params::{
    Param, Params, USUAL_RETENTION, USUAL_TIMEOUT, add_params, check_bounds, check_times, encode,
    encode_name, not_encoded,
};
use leasehold_store::sync::{Mutex, timeout};
use leasehold_store::{ErrorKind, StoreError, server_params, setters};
use percent_encoding::percent_decode_str;
use tokio::net::lookup_host;
use tokio::task::JoinSet;

const PORT: u16 = 2181;
/// That of ZooKeeper's guide to TLS.
const SECURE_PORT: u16 = 2281;
const USUAL_CHROOT: &str = "/leasehold";
/// The usual `jute.maxbuffer`.
const USUAL_MAXBUFFER: usize = 0xf_ffff;
const USUAL_SESSION: Duration = Duration::from_secs(6);

/// Options of a store in ZooKeeper. `Debug` hides the password.
///
/// # The parameters of a URL
/// `session_timeout` (how long a client that has died counts as listening; default 6 s, within the
/// bounds of the servers), `maxbuffer` (bytes; as `jute.maxbuffer` of the servers; default 1 MiB),
/// `retention` (how long an idle key keeps its last token; default 24 h), `connect_timeout`,
/// `response_timeout` (5 s); with `zookeeper+tls://` `ca`, `cert` and `key` (PEM files).
///
/// ```
/// use leasehold::Access;
/// use leasehold::store::zookeeper::ZooKeeperOptions;
/// let options = ZooKeeperOptions::new([("zk1", 2281), ("zk2", 2281), ("zk3", 2281)])
///     .tls(true)
///     .chroot("/locks")
///     .access(Access::default().user("app").password("secret"));
/// assert_eq!(options.redacted_url(), "zookeeper+tls://app:***@zk1,zk2,zk3/locks");
/// ```
#[derive(Clone)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct ZooKeeperOptions {
    /// The servers, each with its port.
    pub(crate) servers: Vec<String>,
    /// The node under which all others are.
    pub chroot: String,
    /// The user, the password and the certificates, looked up for each session.
    pub access: Access,
    /// Whether connections are encrypted (feature `tls-ring`).
    pub(crate) encrypted: bool,
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

/// The way of a session to the servers.
pub(crate) struct Route {
    pub(crate) hosts: String,
    /// The scheme and the secret with which the client crate logs in.
    pub(crate) login: Option<(&'static str, Vec<u8>)>,
    /// Why the last connection has failed, if TLS is the reason.
    pub(crate) failed: Arc<Mutex<Option<StoreError>>>,
    /// Those of a tunnel. It takes no new connections when they are dropped; those that are open end with
    /// the session.
    pub(crate) ports: JoinSet<()>,
}

const TABLE: &[Param<ZooKeeperOptions>] = server_params![
    ("session_timeout", |options| {
        DurationOr(&mut options.session_timeout, USUAL_SESSION)
    }),
    ("maxbuffer", |options| {
        let shown = (options.maxbuffer != USUAL_MAXBUFFER).then(|| options.maxbuffer.to_string());
        Field::custom(shown, |text| {
            options.maxbuffer = text.parse().map_err(|_| no_maxbuffer())?;
            Ok(())
        })
    }),
];

const PLAIN: &str = "zookeeper://";
const ENCRYPTED: &str = "zookeeper+tls://";

fn usual_port(encrypted: bool) -> u16 {
    if encrypted { SECURE_PORT } else { PORT }
}

fn invalid(what: &str) -> Invalid {
    let hint = "write it like zookeeper://host1,host2,host3/path";
    Invalid::new(format!("the URL of ZooKeeper {what}"), hint)
}

fn no_maxbuffer() -> Invalid {
    let why = "the URL has no number of bytes for maxbuffer";
    let hint = "write what jute.maxbuffer is at the servers, like 4194304";
    Invalid::new(why, hint)
}

fn decoded(text: &str) -> Result<String, Invalid> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned)
        .map_err(|_| invalid("has something that is not UTF-8"))
}

/// A server with its port; IPv6 addresses stand in brackets.
fn server(text: &str, usual: u16) -> Result<String, Invalid> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_address = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    if host.is_empty() || (host.contains([':', '[', ']']) && !is_address) {
        return Err(invalid("names no host"));
    }
    match port.map_or(Ok(usual), str::parse) {
        Ok(port @ 1..) => Ok(format!("{host}:{port}")),
        _ => Err(invalid("has something for a port that is none")),
    }
}

/// A server, with each of its addresses: the client crate may spend all of the time for a name on the
/// first. One that has a single address, or none just now, is looked up by that crate whenever it
/// connects.
fn endpoints_of(server: &str, found: impl Iterator<Item = SocketAddr>) -> Vec<(String, String)> {
    let mut found: Vec<_> = found.map(|address| address.to_string()).collect();
    found.dedup();
    if found.len() < 2 {
        found = vec![server.to_owned()];
    }
    let endpoint = |address| (server.to_owned(), address);
    found.into_iter().map(endpoint).collect()
}

/// ZooKeeper takes what follows the first colon for the password.
fn is_no_user(user: &str) -> bool {
    user.is_empty() || user.contains(':')
}

/// Refuses a path that ZooKeeper does not take.
fn check_chroot(path: &str) -> Result<(), Invalid> {
    let is_name = |name: &str| !matches!(name, "" | "." | "..");
    let names = path.strip_prefix('/');
    let is_path = names.is_some_and(|names| names.split('/').all(is_name));
    let own = path == "/zookeeper" || path.starts_with("/zookeeper/");
    if !is_path || own || path.contains(char::is_control) {
        let what = "has no path of a node, or that of ZooKeeper itself";
        return Err(invalid(what));
    }
    Ok(())
}

setters! { ZooKeeperOptions {
    /// Sets the node under which all others are.
    chroot(path: impl Into<String>): chroot = path.into();
    /// Sets user, password and certificates. What the client is given overrides them.
    access(access: Access): access = access;
    /// Sets whether connections are encrypted (feature `tls-ring`).
    tls(tls: bool): encrypted = tls;
    /// Sets how long a client that has died counts as listening.
    session_timeout(timeout: Duration): session_timeout = timeout;
    /// Sets the largest request that the servers take, in bytes.
    maxbuffer(bytes: usize): maxbuffer = bytes;
    /// Sets how long an idle key keeps its last token.
    retention(retention: Duration): retention = retention;
    /// Sets how long opening a session may take.
    connect_timeout(timeout: Duration): connect_timeout = timeout;
    /// Sets how long an answer may take.
    response_timeout(timeout: Duration): response_timeout = timeout;
}}

impl ZooKeeperOptions {
    /// Makes options for these servers, each with its port.
    pub fn new<H: AsRef<str>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        let written = |(host, port): (H, u16)| match host.as_ref() {
            host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        };
        Self {
            servers: servers.into_iter().map(written).collect(),
            chroot: USUAL_CHROOT.to_owned(),
            access: Access::default(),
            encrypted: false,
            session_timeout: USUAL_SESSION,
            maxbuffer: USUAL_MAXBUFFER,
            retention: USUAL_RETENTION,
            connect_timeout: USUAL_TIMEOUT,
            response_timeout: USUAL_TIMEOUT,
        }
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// [`Invalid`] for one that names no ZooKeeper, or with a parameter that there is not. It does not
    /// repeat what may be a part of a password.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        let encrypted = url.strip_prefix(ENCRYPTED);
        let rest = encrypted.or_else(|| url.strip_prefix(PLAIN));
        let rest = rest.ok_or_else(|| invalid("cannot be read"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if path.contains('@') || query.contains('@') {
            let why = "the URL of ZooKeeper cannot be read, and it has an @ after its first / or ?";
            return Err(not_encoded(why));
        }
        let mut options = Self::new([] as [(&str, u16); 0]).tls(encrypted.is_some());
        let mut servers = authority;
        if let Some((identity, after)) = authority.rsplit_once('@') {
            let (user, password) = identity.split_once(':').unwrap_or((identity, ""));
            let (user, password) = (decoded(user)?, decoded(password)?);
            let password = Some(password).filter(|password| !password.is_empty());
            options.access.set_login(Some(user), password);
            servers = after;
        }
        let read = |text| server(text, usual_port(options.encrypted));
        options.servers = servers.split(',').map(read).collect::<Result<_, _>>()?;
        let path = decoded(path)?;
        match path.trim_end_matches('/') {
            "" => {}
            path => path.clone_into(&mut options.chroot),
        }
        Params::of_query(query)?.read_all(TABLE, &mut options)?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.servers.is_empty() {
            return Err(invalid("names no host"));
        }
        let mut servers = self.servers.iter();
        servers.try_for_each(|text| server(text, PORT).map(drop))?;
        check_chroot(&self.chroot)?;
        if !(10_000..=1 << 30).contains(&self.maxbuffer) {
            return Err(no_maxbuffer());
        }
        if self.access.user.as_deref().is_some_and(is_no_user) {
            return Err(invalid("has something for a user that is none"));
        }
        if !self.encrypted && !self.access.tls.is_default() {
            let why = "certificates are given, but the connection is not encrypted";
            let hint = "use zookeeper+tls://, and the servers' secureClientPort";
            return Err(Invalid::new(why, hint));
        }
        let second = Duration::from_secs(1);
        let bounds = second / 10..=60 * second;
        let (timeout, hint) = (self.session_timeout, "choose 100ms to 60s");
        check_bounds("session_timeout", timeout, bounds, hint)?;
        check_times(self.retention, self.connect_timeout, self.response_timeout)
    }

    /// Adds credentials that do not stand in the URL.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be read, and for what cannot be together.
    pub(crate) fn with_access(mut self, access: &Access) -> Result<Self, StoreError> {
        self.access.replace(access);
        self.access.check()?;
        let given = &self.access;
        if given.user.is_none() && given.has_password() && given.credentials.is_none() {
            let message = "there is a password for ZooKeeper, and no user";
            return Err(Invalid::new(message, "name the user: zookeeper://user@host/path").into());
        }
        self.check()?;
        // Both may stand in different places.
        self.access.tls.certificate()?;
        Ok(self)
    }

    /// The servers, as ZooKeeper's clients write them.
    pub(crate) fn hosts(&self) -> String {
        self.servers.join(",")
    }

    /// The user and the password of the session that is opened next, if there is a user.
    ///
    /// # Errors
    /// Those of [`Access::login`], and for a provider that names no user.
    pub(crate) async fn identity(&self) -> Result<Option<String>, StoreError> {
        let login = self.access.login(self.connect_timeout).await?;
        let is_provided = self.access.credentials.is_some();
        if login.user.as_deref().map_or(is_provided, is_no_user) {
            let why = "the credentials provider has named no user, or one with a colon";
            return Err(StoreError::new(ErrorKind::Unavailable, why)
                .with_hint("look at what your application provides as credentials"));
        }
        let password = login.password.unwrap_or_default();
        Ok(login.user.map(|user| format!("{user}:{password}")))
    }

    /// What comes of this for each server, in any order: all are asked at once.
    pub(crate) async fn of_each<F>(&self, ask: impl Fn(String) -> F) -> Vec<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut asked: JoinSet<_> = self.servers.iter().cloned().map(ask).collect();
        let mut all = Vec::new();
        while let Some(one) = asked.join_next().await {
            all.extend(one);
        }
        all
    }

    /// The servers, each with where to connect to. Finding that takes at most half of the time to
    /// connect.
    pub(crate) async fn endpoints(&self) -> Vec<(String, String)> {
        let limit = self.connect_timeout / 2;
        let find = move |server: String| async move {
            let found = timeout(limit, lookup_host(server.clone())).await;
            endpoints_of(&server, found.into_iter().flatten().flatten())
        };
        self.of_each(find).await.concat()
    }

    /// The way to these [endpoints](Self::endpoints) without TLS.
    ///
    /// # Errors
    /// Those of [`identity`](Self::identity).
    pub(crate) async fn route(&self, to: Vec<(String, String)>) -> Result<Route, StoreError> {
        let identity = self.identity().await?;
        let addresses: Vec<_> = to.into_iter().map(|(_, address)| address).collect();
        Ok(Route {
            hosts: addresses.join(","),
            login: identity.map(|identity| ("digest", identity.into_bytes())),
            failed: Arc::default(),
            ports: JoinSet::new(),
        })
    }

    /// Whether a URL of them contains a password.
    pub(crate) fn has_password(&self) -> bool {
        self.access.password.is_some()
    }

    /// Whether the servers know the client by a user or a certificate.
    pub(crate) fn has_identity(&self) -> bool {
        self.access.user.is_some()
            || self.access.credentials.is_some()
            || self.access.tls.cert.is_some()
    }

    /// The URL as people may see it. It reads back the same but for the password.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let mut url = if self.encrypted { ENCRYPTED } else { PLAIN }.to_owned();
        if let Some(user) = &self.access.user {
            encode_name(user, &mut url);
            url += self.access.password.as_ref().map_or("", |_| ":***");
            url.push('@');
        }
        let usual = format!(":{}", usual_port(self.encrypted));
        let shown = |one: &String| one.strip_suffix(&usual).unwrap_or(one).to_owned();
        let servers: Vec<_> = self.servers.iter().map(shown).collect();
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

leasehold_store::debug!(ZooKeeperOptions; |it| url: it.redacted_url());

#[cfg(test)]
mod tests;
