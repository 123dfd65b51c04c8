//! Options of a store in PostgreSQL, and their URL.

use std::env::var_os;
use std::ffi::OsString;
use std::iter;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::access::Access;
use leasehold_store::params::Field::{self, TextOr};
use leasehold_store::params::{
    Param, Params, USUAL_RETENTION, USUAL_TIMEOUT, add_params, check_times, encode_name,
    not_encoded,
};
use leasehold_store::{StoreError, server_params, setters};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::hosts::{PORT, hosts_of, log_in, one_by_one, text_of_file};

const USUAL_SCHEMA: &str = "leasehold";
const USUAL_POOL: u32 = 8;
const MOST_CONNECTIONS: u32 = 100;
const MOST_STANDBYS: u32 = 100;

/// When a commit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Commit {
    /// As the server is set: by default when it is on the disk.
    #[default]
    Sync,
    /// At once. A crash of the server can undo the last grants: up to three times its
    /// `wal_writer_delay`.
    Async,
}

/// Whether the connection is encrypted, and who is believed to be the server. The names are those of
/// `psql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server can. Nobody finds out who the server is.
    #[default]
    Prefer,
    /// Always. If authorities are named (`ca`), the certificate has to be theirs, and for the host.
    Require,
    /// Always, with a certificate for the host, of the authorities that are named or the system's.
    VerifyFull,
}

const COMMITS: &[(&str, Commit)] = &[("sync", Commit::Sync), ("async", Commit::Async)];

const SSL_MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-full", SslMode::VerifyFull),
];

/// Options of a store in PostgreSQL. `Debug` hides passwords.
///
/// # The parameters of a URL
/// `schema` (default `leasehold`), `pool` (connections at most; default 8), `listen` (`off`, or the
/// URL of a way to the server that keeps sessions, past a pooler), `commit` (`sync`, `async`),
/// `acknowledge` (how many synchronous standbys must have a grant before it counts; default `none`:
/// as many as the server waits for),
/// `sslmode` (`disable`, `prefer`, `require`, `verify-full`) with `ca`, `cert` and `key` (PEM files),
/// `retention` (how long an idle key keeps its last token; default 24 h), `connect_timeout`,
/// `response_timeout` (5 s).
///
/// ```
/// use leasehold::Access;
/// use leasehold::store::postgres::{PostgresOptions, SslMode};
/// let login = Access::default().user("app").password_file("/run/secrets/pg");
/// let options = PostgresOptions::new([("pg1", 5432), ("pg2", 5432)], "shop")
///     .schema("locks")
///     .sslmode(SslMode::VerifyFull)
///     .access(login);
/// let url = "postgres://pg1,pg2/shop?schema=locks&sslmode=verify-full";
/// assert_eq!(options.redacted_url(), url);
/// ```
#[derive(Clone)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct PostgresOptions {
    /// Hosts, user, password and database.
    pub(crate) config: Config,
    /// The schema, which `leasehold init` makes.
    pub schema: String,
    /// How many connections there are at most, beside the one that listens.
    pub pool: u32,
    /// Another way to the server for the session that listens; `Some(None)` for no such session.
    pub(crate) listen: Option<Option<Config>>,
    /// When a commit counts.
    pub commit: Commit,
    /// How many synchronous standbys must have each grant before it counts; zero for as many as the
    /// server waits for.
    pub acknowledge: u32,
    /// Whether the connection is encrypted (feature `tls-ring`).
    pub sslmode: SslMode,
    /// Certificates, and a login that is looked up whenever a connection is opened.
    pub access: Access,
    /// How long an idle key keeps its last token.
    pub retention: Duration,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub response_timeout: Duration,
}

const TABLE: &[Param<PostgresOptions>] = server_params![
    ("schema", |options| {
        TextOr(&mut options.schema, USUAL_SCHEMA)
    }),
    ("pool", |options| {
        let shown = (options.pool != USUAL_POOL).then(|| options.pool.to_string());
        Field::custom(shown, |text| {
            options.pool = text.parse().map_err(|_| no_pool())?;
            Ok(())
        })
    }),
    ("listen", |options| {
        let at = options.listen.as_ref();
        let shown = at.map(|at| at.as_ref().map_or_else(|| "off".to_owned(), shown));
        Field::custom(shown, |text| {
            options.listen = Some(match text {
                "off" => None,
                url if url.contains('?') => {
                    let why = "the URL of PostgreSQL for listen has parameters";
                    let hint = "leave them out: those of the store apply";
                    return Err(Invalid::new(why, hint));
                }
                url => Some(parse(url)?),
            });
            Ok(())
        })
    }),
    ("commit", |options| {
        let hint = "write commit=sync or commit=async";
        one_of(&mut options.commit, COMMITS, "commit", hint)
    }),
    ("acknowledge", |options| {
        let shown = (options.acknowledge != 0).then(|| options.acknowledge.to_string());
        Field::custom(shown, |text| {
            options.acknowledge = match (text, text.parse::<u32>()) {
                ("none", _) => 0,
                (_, Ok(count @ 1..)) => count,
                _ => return Err(no_standbys(text)),
            };
            Ok(())
        })
    }),
    ("sslmode", |options| {
        let hint = "write disable, prefer, require or verify-full";
        one_of(&mut options.sslmode, SSL_MODES, "sslmode", hint)
    }),
];

/// A parameter with one of these values, by their names.
fn one_of<'a, T: Copy + Default + PartialEq>(
    field: &'a mut T,
    values: &'static [(&'static str, T)],
    name: &'static str,
    hint: &'static str,
) -> Field<'a> {
    let now = values.iter().find(|(_, value)| *value == *field);
    let shown = now.filter(|(_, value)| *value != T::default());
    Field::custom(shown.map(|(name, _)| (*name).to_owned()), move |text| {
        let found = values.iter().find(|(name, _)| *name == text);
        let unknown = || Invalid::new(format!("the URL has an unknown value for {name}"), hint);
        *field = found.ok_or_else(unknown)?.1;
        Ok(())
    })
}

fn invalid(what: &str) -> Invalid {
    let hint = "write it like postgres://user@host/database";
    Invalid::new(format!("the URL of PostgreSQL {what}"), hint)
}

fn no_pool() -> Invalid {
    let why = "the URL has no number of connections for pool";
    Invalid::new(why, format!("choose 1 to {MOST_CONNECTIONS}"))
}

fn no_standbys(text: &str) -> Invalid {
    let why = format!("acknowledge = {text:?} is not a number of standbys");
    Invalid::new(why, format!("write none, or 1 to {MOST_STANDBYS}"))
}

/// The part of a URL that names servers, user and database. A refusal does not repeat it: it may have
/// a password.
fn parse(url: &str) -> Result<Config, Invalid> {
    if url.matches('@').count() > 1 {
        // A part of a password would be taken for a host, and shown.
        return Err(not_encoded("the URL of PostgreSQL has more than one @"));
    }
    // The protocol has no zero byte: the client would take it for an outage.
    let has_zero = url.contains("%00") || url.contains('\0');
    let read = url.parse::<Config>().ok().filter(|_| !has_zero);
    let config = read.ok_or_else(|| invalid("cannot be read"))?;
    check_host(&config).map(|()| config)
}

/// Before all else of a URL: what follows may be of a password then.
fn check_host(config: &Config) -> Result<(), Invalid> {
    let hosts = config.get_hosts();
    if hosts.is_empty() || hosts.contains(&Host::Tcp(String::new())) {
        return Err(invalid("names no host"));
    }
    Ok(())
}

/// The servers, the user and the database as a URL, with `***` in the place of the password.
fn shown(config: &Config) -> String {
    let mut url = "postgres://".to_owned();
    if let Some(user) = config.get_user() {
        encode_name(user, &mut url);
        url += config.get_password().map_or("", |_| ":***");
        url.push('@');
    }
    for (place, (host, port)) in hosts_of(config).enumerate() {
        if place > 0 {
            url.push(',');
        }
        match host {
            Host::Tcp(name) if name.contains(':') => url += &format!("[{name}]"),
            Host::Tcp(name) => encode_name(name, &mut url),
            Host::Unix(path) => encode_name(&path.to_string_lossy(), &mut url),
        }
        if port != PORT {
            url += &format!(":{port}");
        }
    }
    if let Some(database) = config.get_dbname() {
        url.push('/');
        encode_name(database, &mut url);
    }
    url
}

/// What is refused may be a part of a password that is not encoded: then there is an @ behind the first
/// / or ?, and it must not be shown.
fn discreet(url: &str, invalid: Invalid) -> Invalid {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let behind = rest.find(['/', '?']).map(|at| &rest[at..]);
    if !behind.is_some_and(|behind| behind.contains('@')) {
        return invalid;
    }
    not_encoded("the URL of PostgreSQL cannot be read, and it has an @ after its first / or ?")
}

setters! { PostgresOptions {
    /// Sets the schema, which `leasehold init` makes.
    schema(schema: impl Into<String>): schema = schema.into();
    /// Sets how many connections there are at most, beside the one that listens.
    pool(connections: u32): pool = connections;
    /// Sets the way to the server for the session that listens, past a pooler: that of other options,
    /// with this login if they have none. `None`: no such session.
    listen(at: Option<Self>): listen = Some(at.map(|at| at.config));
    /// Sets when a commit counts.
    commit(commit: Commit): commit = commit;
    /// Sets how many synchronous standbys must have each grant before it counts.
    acknowledge(standbys: u32): acknowledge = standbys;
    /// Sets whether the connection is encrypted.
    sslmode(mode: SslMode): sslmode = mode;
    /// Sets certificates and login. What the client is given overrides them.
    access(access: Access): access = access;
    /// Sets how long an idle key keeps its last token.
    retention(retention: Duration): retention = retention;
    /// Sets how long opening a connection may take.
    connect_timeout(timeout: Duration): connect_timeout = timeout;
    /// Sets how long an answer may take.
    response_timeout(timeout: Duration): response_timeout = timeout;
}}

impl PostgresOptions {
    /// Makes options for a database at the first of these servers that takes writes: hosts, or
    /// directories of Unix sockets, each with its port.
    pub fn new<H: AsRef<str>>(
        servers: impl IntoIterator<Item = (H, u16)>,
        database: impl Into<String>,
    ) -> Self {
        let mut config = Config::new();
        for (host, port) in servers {
            config.host(host.as_ref()).port(port);
        }
        config.dbname(database);
        Self {
            config,
            schema: USUAL_SCHEMA.to_owned(),
            pool: USUAL_POOL,
            listen: None,
            commit: Commit::Sync,
            acknowledge: 0,
            sslmode: SslMode::default(),
            access: Access::default(),
            retention: USUAL_RETENTION,
            connect_timeout: USUAL_TIMEOUT,
            response_timeout: USUAL_TIMEOUT,
        }
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// [`Invalid`] for one that names no PostgreSQL, or with a parameter that there is not.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (servers, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self {
            config: parse(servers)?,
            ..Self::new([] as [(&str, u16); 0], "")
        };
        Params::of_query(query)?.read_all(TABLE, &mut options)?;
        options.check()?;
        Ok(options)
    }

    /// To the server: that of statements, and that of the session that listens.
    fn ways(&self) -> impl Iterator<Item = &Config> {
        iter::once(&self.config).chain(self.listen.iter().flatten())
    }

    /// Whether a URL of them contains a password.
    pub(crate) fn has_password(&self) -> bool {
        self.ways().any(|way| way.get_password().is_some())
    }

    fn check(&self) -> Result<(), Invalid> {
        self.ways().try_for_each(check_host)?;
        if !(1..=MOST_CONNECTIONS).contains(&self.pool) {
            return Err(no_pool());
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let name = &*self.schema;
        let begins = name.starts_with(|c: char| plain(c) && !c.is_ascii_digit());
        if !begins || name.starts_with("pg_") || !name.chars().all(plain) || name.len() > 63 {
            return Err(Invalid::new(
                "the URL has no name of a schema for schema",
                "use small letters, digits and underscores, and begin with a letter, but not with pg_",
            ));
        }
        if self.acknowledge > MOST_STANDBYS {
            return Err(no_standbys(&self.acknowledge.to_string()));
        }
        if self.acknowledge > 0 && self.commit == Commit::Async {
            let why = "commit=async waits for no disk, and acknowledge for those of standbys";
            return Err(Invalid::new(why, "leave out one of the two"));
        }
        check_times(self.retention, self.connect_timeout, self.response_timeout)
    }

    /// Adds credentials that do not stand in the URL: those of `access`, else those that `psql`
    /// would use: `PGPASSWORD`, and the file that `PGPASSFILE` names or `~/.pgpass`.
    ///
    /// # Errors
    /// `Invalid` for a password file that cannot be read, and for what cannot be together.
    pub(crate) fn with_access(mut self, access: &Access) -> Result<Self, StoreError> {
        self.access.replace(access);
        self.access.check()?;
        self.access.tls.certificate()?;
        self.check()?;
        let has_none = self.config.get_password().is_none() && !self.access.may_change();
        let is_wanted = |password: &OsString| has_none && !password.is_empty();
        let of_psql = || var_os("PGPASSWORD").filter(is_wanted);
        let password = self.access.password.clone().map(OsString::from);
        let password = password.or_else(of_psql).map(OsString::into_vec);
        log_in(&mut self.config, self.access.user.as_deref(), password);
        Ok(self)
    }

    /// The URL as people may see it. It reads back the same but for the password.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let mut url = shown(&self.config);
        add_params(&mut url, TABLE, self);
        url
    }

    /// The URL without its password, for another process.
    pub(crate) fn url_for_others(&self) -> String {
        let url = self.redacted_url().replace(":***@", "@");
        // That of `listen` is within a parameter.
        url.replace("%3A***%40", "%40")
    }

    /// The schema as statements have it: its name may be a word of SQL.
    pub(crate) fn quoted_schema(&self) -> String {
        match &*self.schema {
            USUAL_SCHEMA => USUAL_SCHEMA.to_owned(),
            other => format!("\"{other}\""),
        }
    }

    /// When the commit of a step counts, as the functions of the schema have it.
    pub(crate) fn commit_when(&self) -> i32 {
        match self.commit {
            Commit::Async => -1,
            Commit::Sync => i32::try_from(self.acknowledge).unwrap_or(i32::MAX),
        }
    }

    /// Each of the hosts for the connection that is opened next: with its login, unless the session that
    /// listens has its own, or with the password that the file of passwords has for the host.
    ///
    /// # Errors
    /// Those of [`Access::login`].
    pub(crate) async fn each_host(&self, config: &Config) -> Result<Vec<Config>, StoreError> {
        let mut config = config.clone();
        let is_own = config.get_password() != self.config.get_password();
        let mut passwords = String::new();
        if self.access.may_change() && !is_own {
            let login = self.access.login(self.connect_timeout).await?;
            let is_ours = config.get_user() == self.config.get_user();
            let user = login.user.as_deref().filter(|_| is_ours);
            log_in(&mut config, user, login.password);
        } else if config.get_password().is_none() {
            passwords = text_of_file().unwrap_or_default();
        }
        Ok(one_by_one(&config, &passwords))
    }

    /// Where the session that listens goes; `None` if there is none.
    pub(crate) fn listens_at(&self) -> Option<Config> {
        let ours = &self.config;
        let mut at = self.listen.clone().unwrap_or_else(|| Some(ours.clone()))?;
        let user = ours.get_user().filter(|_| at.get_user().is_none());
        let password = ours.get_password();
        let password = password.filter(|_| at.get_password().is_none());
        log_in(&mut at, user, password);
        Some(at)
    }
}

leasehold_store::debug!(PostgresOptions; |it| url: it.redacted_url());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_reads_back_the_same() {
        for (url, shown) in [
            ("postgres://h/d", "postgres://h/d"),
            ("postgresql://u@h:5432", "postgres://u@h"),
            ("postgres://u:p%2Fw@h:1,i:2/d", "postgres://u:***@h:1,i:2/d"),
            ("postgres://u:p/w@h/d", "postgres://u:***@h/d"),
            (
                "postgres://%2Frun%2Fpg/d%2F1",
                "postgres://%2Frun%2Fpg/d%2F1",
            ),
            (
                "postgres://h/d?pool=8&schema=locks&commit=async&retention=2h&listen=off",
                "postgres://h/d?schema=locks&listen=off&commit=async&retention=2h",
            ),
            (
                "postgres://h/d?acknowledge=2",
                "postgres://h/d?acknowledge=2",
            ),
            ("postgres://h/d?acknowledge=none", "postgres://h/d"),
            (
                "postgres://h:6432/d?listen=postgres://u:secret@i/d",
                "postgres://h:6432/d?listen=postgres%3A//u%3A***%40i/d",
            ),
        ] {
            let options = PostgresOptions::from_url(url).unwrap();
            assert_eq!(options.redacted_url(), shown, "{url}");
            let again = PostgresOptions::from_url(&options.redacted_url()).unwrap();
            assert_eq!(again.redacted_url(), shown);
            assert!(!format!("{options:?}").contains("secret"));
            let others = options.url_for_others();
            assert!(!others.contains("***"), "{others}");
            assert!(PostgresOptions::from_url(&others).is_ok(), "{others}");
        }
    }

    /// Whoever may read the URL has it.
    #[test]
    fn a_password_is_found_wherever_it_stands() {
        for (url, has_one) in [
            ("postgres://u@h/d", false),
            ("postgres://u:secret@h/d", true),
            ("postgres://u@h/d?listen=off", false),
            ("postgres://u@h/d?listen=postgres://u@i/d", false),
            ("postgres://u@h/d?listen=postgres://u:secret@i/d", true),
        ] {
            let options = PostgresOptions::from_url(url).unwrap();
            assert_eq!(options.has_password(), has_one, "{url}");
        }
    }

    /// As an embedder sets them, they are in the URL that is shown.
    #[test]
    fn what_is_set_is_shown() {
        let minute = Duration::from_secs(60);
        let options = PostgresOptions::new([("h", 5432), ("/run/pg", 5433)], "d")
            .pool(3)
            .listen(Some(PostgresOptions::new([("i", 5432)], "d")))
            .commit(Commit::Async)
            .sslmode(SslMode::VerifyFull)
            .retention(60 * minute)
            .connect_timeout(minute)
            .response_timeout(2 * minute);
        let shown = "postgres://h,%2Frun%2Fpg:5433/d?pool=3&listen=postgres%3A//i/d&commit=async\
            &sslmode=verify-full&retention=1h&connect_timeout=1m&response_timeout=2m";
        assert_eq!(options.redacted_url(), shown);
        let again = PostgresOptions::from_url(shown).unwrap();
        assert_eq!(again.config, options.config);
        let options = options.listen(None).commit(Commit::Sync).acknowledge(2);
        assert!(options.redacted_url().contains("listen=off&acknowledge=2"));
        // What only a URL was checked for is refused when it is opened.
        let nowhere = PostgresOptions::new([] as [(&str, u16); 0], "d");
        for (options, said) in [
            (options.clone().pool(0), "no number of connections"),
            (options.clone().acknowledge(101), "\"101\" is not a number"),
            (options.schema("My Locks"), "no name of a schema"),
            (nowhere, "names no host"),
        ] {
            let refused = options.with_access(&Access::default()).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_not_repeated() {
        for (url, said) in [
            (
                "postgres://u:secret@h/d?colour=red",
                "unknown parameter \"colour\"",
            ),
            ("postgres://u:secret@h/d?pool=0", "no number of connections"),
            ("postgres://h/d?schema=My%20Locks", "no name of a schema"),
            ("postgres://h/d?schema=pg_locks", "no name of a schema"),
            ("postgres://h/d?commit=maybe", "unknown value for commit"),
            ("postgres://h/d?acknowledge=0", "\"0\" is not a number"),
            ("postgres://h/d?acknowledge=all", "\"all\" is not a number"),
            (
                "postgres://h/d?acknowledge=1&commit=async",
                "waits for no disk",
            ),
            (
                "postgres://h/d?retention=1s",
                "retention of 1s is out of bounds",
            ),
            ("postgres://h/d?listen=redis://u:secret@h", "has an @ after"),
            (
                "postgres://h/d?listen=postgres://h/d%3Foptions=x",
                "has parameters",
            ),
            ("postgres://u:se@secret@h/d", "more than one @"),
            ("postgres://u:se/secret@h/d@b", "has an @ after"),
            ("postgres://", "names no host"),
            ("postgres://://", "names no host"),
            ("postgres://u:secret@h:port/d", "cannot be read"),
            ("postgres://u%00:secret@h/d", "cannot be read"),
        ] {
            let refused = PostgresOptions::from_url(url).unwrap_err();
            assert!(refused.message.contains(said), "{url}: {refused}");
            assert!(!refused.message.contains("secret"), "{refused}");
            assert!(refused.hint.is_some(), "{refused}");
        }
    }
}
