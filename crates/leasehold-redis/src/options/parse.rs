//! Options from a URL.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Invalid;
use url::{Host, Url};

use super::sentinels::{self, Sentinels};
use super::{RedisAddress, RedisLayout, RedisOptions};
use super::{acknowledge, restart};

/// The query parameters of a URL.
const PARAMETERS: &str = "layout, prefix, retention, connect_timeout, response_timeout, db; with \
    TLS ca, cert, key; with a socket user, pass; with Sentinels sentinel_user, sentinel_pass; with \
    replicas acknowledge, acknowledge_timeout, acknowledge_renewals; restart, and with \
    restart=quarantine max_ttl, quarantine";

impl RedisOptions {
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
    /// Parameters: `layout` (`native`, `classic`), `prefix`, `retention`,
    /// `connect_timeout`, `response_timeout` (durations such as `500ms`, `5s`,
    /// `10m`, `24h`, `7d`), `db`; with TLS `ca`,
    /// `cert`, `key` (PEM files); with a socket `user` and `pass`; with Sentinels
    /// `sentinel_user` and `sentinel_pass`, which log in at these, as `user` and
    /// `password` do at the servers. `acknowledge` says who must have a grant
    /// before it counts: `none`, a number of replicas, `majority` (of the
    /// replicas), `disk` or `disk:<replicas>`; within `acknowledge_timeout` (1 s),
    /// and for renewals too unless `acknowledge_renewals=no`; see
    /// [`Acknowledge`](crate::Acknowledge).
    /// `restart=quarantine` says that a server which has restarted may have
    /// forgotten who holds; with `max_ttl` (60 s) and `quarantine` (twice that);
    /// see [`Restart`](crate::Restart).
    ///
    /// # Errors
    /// [`Invalid`], naming what cannot be read. The password is never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| sentinels::discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (hosts, url) = sentinels::split_hosts(url);
        let url = Url::parse(&url)
            .map_err(|error| Invalid::new(format!("the URL cannot be read: {error}"), EXAMPLE))?;
        if url.fragment().is_some() {
            return Err(Invalid::new(
                "there is a # in the URL, and what follows it would be left out",
                "write %23 for a # in user, password or parameters",
            ));
        }
        let mut db = None;
        let mut options = match url.scheme() {
            "redis" | "valkey" => Self::tcp(host(&url)?, url.port().unwrap_or(6379)),
            "rediss" | "valkeys" => Self::tls(host(&url)?, url.port().unwrap_or(6379)),
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
                    return Err(Invalid::plain("the path of the socket holds a zero byte"));
                }
                Self::unix(path)
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
        let (mut prefix, mut retention) = (None, None);
        let mut acknowledge = acknowledge::Said::default();
        let mut restart = restart::Said::default();
        let socket = matches!(options.address, RedisAddress::Unix(_));
        for (name, value) in url.query_pairs() {
            match &*name {
                "layout" => options.layout = parse_layout(&value)?,
                "prefix" => prefix = Some(value.into_owned()),
                "db" => options.db = parse_db(&value)?,
                "retention" => retention = Some(parse_duration(&name, &value)?),
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
        if options.layout == RedisLayout::Classic {
            options.prefix = prefix.unwrap_or_default();
            if retention.is_some() {
                return Err(only_native("retention", "no tokens to remember"));
            }
        } else {
            options.prefix = prefix.unwrap_or(options.prefix);
            options.retention = retention.unwrap_or(options.retention);
        }
        options.client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Invalid::plain("cert and key belong together in the URL")),
        };
        options.check()?;
        Ok(options)
    }
}

const EXAMPLE: &str = "write redis://user:password@host:6379/0, with special characters in user \
    and password percent-encoded";

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

/// A host as it is connected to. What would end it in a URL is in no host's name.
pub(crate) fn host_name(host: &Host<&str>) -> Result<String, Invalid> {
    let Host::Domain(name) = host else {
        let text = host.to_string();
        return Ok(text.trim_matches(['[', ']']).to_owned());
    };
    let name = decode("host", name)?;
    let odd = |c: char| c.is_control() || c.is_whitespace() || "/?#@,:[]%\\<>^|".contains(c);
    if name.contains(odd) {
        return Err(Invalid::new(
            "the host in the URL is not the name of one",
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
            format!("the layout {text:?} is not known"),
            "write layout=classic for locks that other libraries share, or leave it out",
        )),
    }
}

/// A parameter that means nothing in the classic layout, which has `why`.
pub(crate) fn only_native(name: &str, why: &str) -> Invalid {
    Invalid::new(
        format!("{name} has no meaning with layout=classic, which has {why}"),
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

pub(crate) fn parse_duration(name: &str, text: &str) -> Result<Duration, Invalid> {
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
