//! Options from a URL, and back, without the passwords.

use leasehold_core::Invalid;
use leasehold_store::access::Access;
use leasehold_store::params::{Params, add_params, encode, encode_name, names};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::params::{of_query, parse_db};
use super::sentinels::{self, Sentinels};
use super::{RedisAddress, RedisOptions};

/// What stands for a secret.
const HIDDEN: &str = "***";

const EXAMPLE: &str =
    "percent-encode user and password: redis://U:P@host:6379/0 or redis+unix:///path?user=U&pass=P";

impl RedisOptions {
    /// Parses a URL:
    ///
    /// ```text
    /// redis://[user:password@]host[:port][/db][?parameters]
    /// rediss://…                                 the same with TLS
    /// valkey://…  valkeys://…                    the same
    /// redis+unix:///path[?parameters]            with the login as user= and pass=
    /// redis-sentinel://[user:password@]h1[:port],h2,h3/name-of-the-primary[/db][?parameters]
    /// rediss-sentinel://…                        the same with TLS
    /// ```
    ///
    /// The parameters are listed at [`RedisOptions`].
    ///
    /// # Errors
    /// [`Invalid`] with the invalid part. The password is never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| sentinels::discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (mut options, params) = Self::read_address(url)?;
        options.read_params(params, [])?;
        Ok(options)
    }

    /// Reads all but the parameters.
    pub(crate) fn read_address(url: &str) -> Result<(Self, Params), Invalid> {
        let (hosts, url) = sentinels::split_hosts(url);
        let url = Url::parse(&url)
            .map_err(|error| Invalid::new(format!("the URL cannot be parsed: {error}"), EXAMPLE))?;
        if url.fragment().is_some() {
            let why = "the URL contains a #, and everything after it would be ignored";
            let hint = "write %23 for a # in user, password or parameters";
            return Err(Invalid::new(why, hint));
        }
        let (address, in_path) = address(&url, &hosts)?;
        let mut options = Self::at(address);
        if hosts.len() > 1 && !matches!(options.address, RedisAddress::Sentinel(_)) {
            let scheme = url.scheme();
            let why = format!("{scheme}: is for one server, and the URL names several");
            let hint = "for Sentinels write redis-sentinel://h1,h2,h3/mymaster";
            return Err(Invalid::new(why, hint));
        }
        if !url.username().is_empty() {
            options.access.user = Some(decode("user name", url.username())?);
        }
        if let Some(password) = url.password() {
            options.access.password = Some(decode("password", password)?);
        }
        if !in_path.is_empty() {
            options.db = parse_db(in_path)?;
        }
        Ok((options, of_query(url.query().unwrap_or_default())?))
    }

    /// Reads the parameters, and checks the whole. There may be others, which were read already.
    pub(crate) fn read_params(
        &mut self,
        mut params: Params,
        others: impl IntoIterator<Item = &'static str>,
    ) -> Result<(), Invalid> {
        let (tables, in_path) = (self.params(), self.db);
        for table in tables {
            params.read(table, self)?;
        }
        if in_path != 0 && in_path != self.db {
            let why = format!("the URL names the databases {in_path} and {}", self.db);
            return Err(Invalid::new(why, "leave one of them out"));
        }
        let known = others.into_iter().chain(tables.into_iter().flat_map(names));
        params.check_none_left(known)?;
        self.check()
    }

    /// The URL of these options, without the password: but for that it reads
    /// back the same. A user name that stands alone is hidden too: it may be the password.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.without_lone_users().shown()
    }

    /// The URL by which others open the same store, with passwords that they have from elsewhere.
    pub(crate) fn url_for_others(&self) -> String {
        self.clone().without_passwords().shown()
    }

    /// Names without a password are hidden.
    pub(crate) fn without_lone_users(&self) -> Self {
        let mut shown = self.clone();
        let hide = |user: &mut Option<String>| *user = user.take().map(|_| HIDDEN.to_owned());
        if !self.access.has_password() {
            hide(&mut shown.access.user);
        }
        if let RedisAddress::Sentinel(sentinels) = &mut shown.address
            && sentinels.password.is_none()
        {
            hide(&mut sentinels.username);
        }
        shown
    }

    fn shown(&self) -> String {
        let tls = if self.is_encrypted() { "s" } else { "" };
        let (login, params) = (self.shown_login(), self.shown_params());
        let (kind, place) = match &self.address {
            RedisAddress::Tcp { .. } => ("", self.address.shown()),
            RedisAddress::Sentinel(sentinels) => ("-sentinel", sentinels.show()),
            RedisAddress::Unix(path) => {
                let mut url = "redis+unix://".to_owned();
                let path = path.to_string_lossy();
                match path.strip_prefix('/') {
                    // Else they would be gone through when it is read.
                    Some(rest) if path.split('/').any(|part| matches!(part, "." | "..")) => {
                        url.push('/');
                        encode_name(rest, &mut url);
                    }
                    _ => encode(&path, &mut url),
                }
                return url + &params;
            }
        };
        format!("redis{tls}{kind}://{login}{place}/{}{params}", self.db)
    }

    /// User and password, as they stand before a host.
    pub(crate) fn shown_login(&self) -> String {
        let mut login = String::new();
        let Access { user, password, .. } = &self.access;
        encode_name(user.as_deref().unwrap_or_default(), &mut login);
        if password.is_some() {
            login.push(':');
            login.push_str(HIDDEN);
        }
        if user.is_some() || password.is_some() {
            login.push('@');
        }
        login
    }

    /// The parameters, behind a `?` if there are any.
    pub(crate) fn shown_params(&self) -> String {
        let mut params = String::new();
        for table in self.params() {
            add_params(&mut params, table, self);
        }
        params
    }
}

/// Where the server is, and what the path of the URL says of the database.
fn address<'a>(url: &'a Url, hosts: &[&str]) -> Result<(RedisAddress, &'a str), Invalid> {
    let scheme = url.scheme();
    let tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
    match scheme {
        "redis" | "valkey" | "rediss" | "valkeys" => {
            let (host, port) = (host_name(url, no_host)?, url.port().unwrap_or(6379));
            let db = url.path().trim_start_matches('/');
            Ok((RedisAddress::Tcp { host, port, tls }, db))
        }
        "redis+unix" | "unix" | "valkey+unix" => {
            let host = url.host_str().is_some_and(|host| !host.is_empty());
            if host || !url.path().starts_with('/') || url.path().len() < 2 {
                let why = "the URL names no socket";
                let hint = "write redis+unix:///run/redis/redis.sock";
                return Err(Invalid::new(why, hint));
            }
            let path = decode("path", url.path())?;
            if path.contains('\0') {
                let why = "the path of the socket contains a zero byte";
                return Err(Invalid::plain(why));
            }
            Ok((RedisAddress::Unix(path.into()), ""))
        }
        "redis-sentinel" | "valkey-sentinel" | "rediss-sentinel" | "valkeys-sentinel" => {
            let (mut sentinels, db) = Sentinels::from_url(hosts, url)?;
            sentinels.tls = tls;
            Ok((RedisAddress::Sentinel(sentinels), db))
        }
        other => Err(Invalid::new(
            format!("{other}: is not a URL scheme of Redis"),
            "use redis, rediss, redis+unix, redis-sentinel, valkey or valkeys",
        )),
    }
}

/// Meant for a machine whose name a variable should have held, it would lead to another server on
/// each.
pub(super) fn no_host() -> Invalid {
    let hint = "write redis://127.0.0.1/ for a server on this machine";
    Invalid::new("the URL names no host", hint)
}

/// Returns the host name to connect to, or why one that is missing is refused. So are characters
/// that would end it in a URL.
pub(super) fn host_name(url: &Url, missing: impl FnOnce() -> Invalid) -> Result<String, Invalid> {
    let name = match url.host() {
        None | Some(Host::Domain("")) => return Err(missing()),
        Some(Host::Domain(name)) => decode("host", name)?,
        Some(address) => return Ok(address.to_string().trim_matches(['[', ']']).to_owned()),
    };
    let odd = |c: char| c.is_control() || c.is_whitespace() || "/?#@,:[]%\\<>^|".contains(c);
    if name.contains(odd) {
        let why = "the host in the URL is not a valid host name";
        return Err(Invalid::new(why, EXAMPLE));
    }
    Ok(name)
}

/// Undoes percent-encoding.
pub(super) fn decode(what: &str, text: &str) -> Result<String, Invalid> {
    let is_hex = |code: &str| {
        let code = code.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_hex) {
        let why = format!("the {what} in the URL has invalid percent-encoding");
        return Err(Invalid::new(why, "write %25 for a percent sign"));
    }
    let wrong = |_| Invalid::plain(format!("the {what} in the URL is not UTF-8"));
    let decoded = percent_decode_str(text).decode_utf8().map_err(wrong)?;
    Ok(decoded.into_owned())
}
