//! Parses options from a URL.

use std::path::PathBuf;

use leasehold_core::Invalid;
use url::{Host, Url};

use super::acknowledge::Acknowledge;
use super::params::Params;
use super::restart::Restart;
use super::sentinels::{self, Sentinels};
use super::{RedisAddress, RedisLayout, RedisOptions};

/// The query parameters of a URL.
const PARAMETERS: &str = "layout, prefix, retention, audit, connect_timeout, response_timeout, db; with \
    TLS ca, cert, key; with a socket user, pass; with Sentinels sentinel_user, sentinel_pass; with \
    replicas acknowledge, acknowledge_timeout, acknowledge_renewals; restart, and with \
    restart=quarantine max_ttl, quarantine";

impl RedisOptions {
    /// Parses a URL:
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
    /// Parameters: `layout` (`native`, `classic`), `prefix`, `retention`, `audit` (an
    /// [`AuditLimit`](leasehold_store::AuditLimit) such as `10000` or `24h`), `connect_timeout`,
    /// `response_timeout` (durations such as `500ms`, `5s`, `10m`, `24h`, `7d`), `db`; with TLS
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
    ///
    /// # Errors
    /// [`Invalid`] with the invalid part. The password is never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| sentinels::discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (hosts, url) = sentinels::split_hosts(url);
        let url = Url::parse(&url)
            .map_err(|error| Invalid::new(format!("the URL cannot be parsed: {error}"), EXAMPLE))?;
        if url.fragment().is_some() {
            return Err(Invalid::new(
                "the URL contains a #, and everything after it would be ignored",
                "write %23 for a # in user, password or parameters",
            ));
        }
        let (address, in_path) = address(&url, &hosts)?;
        let mut options = Self::at(address);
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
        let mut params = Params::of(url.query().unwrap_or_default());
        if let Some(db) = params.take("db").or(in_path) {
            options.db = parse_db(&db)?;
        }
        options.read_params(&mut params)?;
        params.check_none_left(PARAMETERS)?;
        options.check()?;
        Ok(options)
    }

    fn read_params(&mut self, params: &mut Params) -> Result<(), Invalid> {
        match &mut self.address {
            RedisAddress::Unix(_) => {
                self.username = params.take("user").or_else(|| self.username.take());
                self.password = params.take("pass").or_else(|| self.password.take());
            }
            RedisAddress::Sentinel(sentinels) => {
                sentinels.username = params.take("sentinel_user");
                sentinels.password = params.take("sentinel_pass");
            }
            RedisAddress::Tcp { .. } => {}
        }
        if let Some(layout) = params.take("layout") {
            self.layout = parse_layout(&layout)?;
        }
        let retention = params.duration("retention")?;
        if self.layout == RedisLayout::Classic {
            self.prefix = String::new();
            if retention.is_some() {
                return Err(only_native("retention", "no tokens to remember"));
            }
        }
        self.prefix = params.take("prefix").unwrap_or_else(|| self.prefix.clone());
        self.retention = retention.unwrap_or(self.retention);
        for (name, timeout) in [
            ("connect_timeout", &mut self.connect_timeout),
            ("response_timeout", &mut self.response_timeout),
        ] {
            *timeout = params.duration(name)?.unwrap_or(*timeout);
        }
        let audit = params.take("audit");
        self.audit = audit.map(|limit| limit.parse()).transpose()?;
        self.acknowledge = Acknowledge::read(params)?;
        self.restart = Restart::read(params)?;
        self.ca_file = params.take("ca").map(PathBuf::from);
        self.client_certificate = match (params.take("cert"), params.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => {
                return Err(Invalid::plain(
                    "the URL must have both cert and key, or neither",
                ));
            }
        };
        Ok(())
    }
}

/// Where the server is, and what the path of the URL says of the database.
fn address(url: &Url, hosts: &[&str]) -> Result<(RedisAddress, Option<String>), Invalid> {
    let scheme = url.scheme();
    let tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
    match scheme {
        "redis" | "valkey" | "rediss" | "valkeys" => {
            let (host, port) = (host(url)?, url.port().unwrap_or(6379));
            let db = url.path().trim_start_matches('/').to_owned();
            let address = RedisAddress::Tcp { host, port, tls };
            Ok((address, Some(db).filter(|db| !db.is_empty())))
        }
        "redis+unix" | "unix" | "valkey+unix" => {
            let host = url.host_str().is_some_and(|host| !host.is_empty());
            if host || !url.path().starts_with('/') || url.path().len() < 2 {
                return Err(Invalid::new(
                    "the URL names no socket",
                    "write redis+unix:///run/redis/redis.sock",
                ));
            }
            let path = decode("path", url.path())?;
            if path.contains('\0') {
                return Err(Invalid::plain(
                    "the path of the socket contains a zero byte",
                ));
            }
            Ok((RedisAddress::Unix(path.into()), None))
        }
        "redis-sentinel" | "valkey-sentinel" | "rediss-sentinel" | "valkeys-sentinel" => {
            let (sentinels, db) = Sentinels::from_url(hosts, url, tls)?;
            Ok((RedisAddress::Sentinel(sentinels), db))
        }
        other => Err(Invalid::new(
            format!("{other}: is not a URL scheme of Redis"),
            "use redis, rediss, redis+unix, redis-sentinel, valkey or valkeys",
        )),
    }
}

const EXAMPLE: &str = "write redis://user:password@host:6379/0; percent-encode special characters \
 in user and password";

fn host(url: &Url) -> Result<String, Invalid> {
    match url.host() {
        // Meant for a machine whose name a variable should have held, it would lead to
        // another server on each.
        None | Some(Host::Domain("")) => Err(Invalid::new(
            "the URL names no host",
            "write redis://127.0.0.1/ for a server on this machine",
        )),
        Some(host) => host_name(&host),
    }
}

/// Returns the host name to connect to. Characters that would end it in a URL are refused.
pub(crate) fn host_name(host: &Host<&str>) -> Result<String, Invalid> {
    let Host::Domain(name) = host else {
        let text = host.to_string();
        return Ok(text.trim_matches(['[', ']']).to_owned());
    };
    let name = decode("host", name)?;
    let odd = |c: char| c.is_control() || c.is_whitespace() || "/?#@,:[]%\\<>^|".contains(c);
    if name.contains(odd) {
        return Err(Invalid::new(
            "the host in the URL is not a valid host name",
            EXAMPLE,
        ));
    }
    Ok(name)
}

fn parse_layout(text: &str) -> Result<RedisLayout, Invalid> {
    match text {
        "native" => Ok(RedisLayout::Native),
        "classic" => Ok(RedisLayout::Classic),
        _ => Err(Invalid::new(
            format!("unknown layout {text:?}"),
            "write layout=classic for locks that other libraries share, or leave it out",
        )),
    }
}

/// A parameter that means nothing in the classic layout, which has `why`.
pub(crate) fn only_native(name: &str, why: &str) -> Invalid {
    Invalid::new(
        format!("{name} has no effect with layout=classic, which has {why}"),
        "leave it out",
    )
}

fn parse_db(text: &str) -> Result<i64, Invalid> {
    text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
        Invalid::new(
            format!("the database {text:?} is not a number"),
            "write redis://host/2 for database 2",
        )
    })
}

/// Undoes percent-encoding.
pub(crate) fn decode(what: &str, text: &str) -> Result<String, Invalid> {
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
                format!("the {what} in the URL has invalid percent-encoding"),
                "write %25 for a percent sign",
            ));
        };
        out.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(out)
        .map_err(|_| Invalid::plain(format!("the {what} in the URL is not UTF-8")))
}
