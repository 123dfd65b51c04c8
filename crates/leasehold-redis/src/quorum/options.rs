//! Options of a set of independent servers (Redlock).

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use leasehold_core::{Invalid, SetTerms};
use leasehold_store::params::{Field, Param, add_params, check_bounds, names};
use leasehold_store::setters;

use crate::options::params::{of_query, only_native};
use crate::options::restart::{Restart, USUAL_MAX_TTL, check_times};
use crate::options::sentinels::discreet;
use crate::options::{RedisAddress, RedisOptions};
use crate::std_ext::fnv;

const USUAL_NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// The parameters that are the set's. Those of a server are for every server.
const PARAMS: &[Param<RedlockOptions>] = &[
    ("quorum", |options| {
        let shown = options.quorum.map(|quorum| quorum.to_string());
        Field::custom(shown, |text| {
            let wrong = || format!("quorum = {text:?} is not a number of servers");
            let quorum = text.parse().map_err(|_| Invalid::plain(wrong()))?;
            options.quorum = Some(quorum);
            Ok(())
        })
    }),
    ("max_ttl", |options| {
        Field::DurationOr(&mut options.max_ttl, USUAL_MAX_TTL)
    }),
    ("node_timeout", |options| {
        Field::DurationOr(&mut options.node_timeout, USUAL_NODE_TIMEOUT)
    }),
    ("quarantine", |options| {
        Field::Duration(&mut options.quarantine)
    }),
    ("repair", |options| Field::YesNo(&mut options.repair, true)),
    ("set", |options| Field::Text(&mut options.set)),
];

/// Those that the classic layout has not.
const NATIVE: [&str; 4] = ["max_ttl", "quarantine", "repair", "set"];

/// Options for [`RedlockStore::connect`](super::RedlockStore::connect). Plain
/// data; `Debug` hides the passwords.
///
/// ```
/// use leasehold::store::redis::RedlockOptions;
/// let options = RedlockOptions::from_url("redlock://:secret@a:1,b:2,c:3/?max_ttl=30s")?;
/// assert_eq!(options.servers.len(), 3);
/// assert_eq!(options.size()?.quorum(), 2);
/// assert!(!format!("{options:?}").contains("secret"));
///
/// use std::time::Duration;
/// use leasehold::store::redis::RedisOptions;
/// let server = |host| RedisOptions::tcp(host, 6379).credentials(None, "secret");
/// let options = RedlockOptions::new(["a", "b", "c"].map(server).into())
///     .max_ttl(Duration::from_secs(30))
///     .set("payments");
/// options.check()?;
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct RedlockOptions {
    /// The servers, 3 to 32, each with its own login and retention. All have the same prefix,
    /// layout and audit limit. The time limit of opening the store is that of the first.
    pub servers: Vec<RedisOptions>,
    /// How many servers must agree; the smallest majority by default.
    ///
    /// Any two quorums of *q* among *n* servers share 2*q* − *n* servers. All but one of these
    /// may have stepped their clocks, or lost data unnoticed, without two clients holding at the
    /// same time: with 4 of 5 up to two servers, with 3 of 5 none.
    pub quorum: Option<usize>,
    /// The longest TTL that a claim may have. Default 60 s; 100 ms to 24 h. All clients of the
    /// set must use the same value.
    pub max_ttl: Duration,
    /// How long one server's answer may take; never more than a quarter of the
    /// claim's TTL. Default 500 ms.
    pub node_timeout: Duration,
    /// How long a server that has restarted, or lost its data, does not vote. Default twice
    /// `max_ttl`, and never less. Zero turns the quarantine off: then exclusion is lost when a
    /// server loses its data.
    pub quarantine: Option<Duration>,
    /// Whether a renewal restores the claim at servers that no longer have it. Default yes. Never
    /// in the classic layout, which cannot distinguish a broken claim from a lost one.
    pub repair: bool,
    /// The name of the set of servers; all clients must use the same one. By default it is made
    /// from the addresses: set one if clients reach the servers by different names.
    pub set: Option<String>,
}

setters! { RedlockOptions {
    /// Sets how many servers must agree.
    quorum(quorum: usize): quorum = Some(quorum);
    /// Sets the longest TTL that a claim may have.
    max_ttl(max_ttl: Duration): max_ttl = max_ttl;
    /// Sets how long one server's answer may take.
    node_timeout(timeout: Duration): node_timeout = timeout;
    /// Sets how long a server that has restarted, or lost its data, does not vote.
    with_quarantine(quarantine: Duration): quarantine = Some(quarantine);
    /// Sets whether a renewal restores the claim at servers that no longer have it.
    repair(repair: bool): repair = repair;
    /// Sets the name of the set of servers.
    set(name: impl Into<String>): set = Some(name.into());
}}

impl RedlockOptions {
    /// Makes options for these servers, with default settings.
    pub fn new(servers: Vec<RedisOptions>) -> Self {
        Self {
            servers,
            quorum: None,
            max_ttl: USUAL_MAX_TTL,
            node_timeout: USUAL_NODE_TIMEOUT,
            quarantine: None,
            repair: true,
            set: None,
        }
    }

    /// Parses a URL:
    ///
    /// ```text
    /// redlock://[user:password@]host[:port],…[/db][?parameters]
    /// redlocks://…                                 the same with TLS
    /// ```
    ///
    /// Parameters: `quorum`, `max_ttl`, `node_timeout`, `quarantine` (durations such as `500ms`,
    /// `60s`, `2m`), `repair` (`yes`, `no`), `set`; and those of [`RedisOptions::from_url`],
    /// which apply to every server. With `layout=classic` there is no `quarantine`, `max_ttl`,
    /// `set` or `repair`.
    ///
    /// # Errors
    /// [`Invalid`] with the invalid part. Passwords are never repeated.
    pub fn from_url(url: &str) -> Result<Self, Invalid> {
        Self::read_url(url).map_err(|invalid| discreet(url, invalid))
    }

    fn read_url(url: &str) -> Result<Self, Invalid> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let server = match scheme {
            "redlock" => "redis",
            "redlocks" => "rediss",
            _ => {
                let why = "the URL scheme is not redlock: or redlocks:";
                let hint = "write redlock://host1,host2,host3, or redlocks:// with TLS";
                return Err(Invalid::new(why, hint));
            }
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (members, tail) = rest.split_at(end);
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut params = of_query(query)?;
        let said = NATIVE.into_iter().find(|it| params.get(it).is_some());
        let mut options = Self::new(Vec::new());
        params.read(PARAMS, &mut options)?;
        for member in members.split(',') {
            if member.is_empty() || member.ends_with('@') {
                let why = "a server in the URL has no host";
                let hint = "write redlock://host1:port,host2:port,host3:port";
                return Err(Invalid::new(why, hint));
            }
            let url = format!("{server}://{member}{path}");
            let (mut server, _) = RedisOptions::read_address(&url)?;
            server.read_params(params.clone(), names(PARAMS))?;
            options.servers.push(server);
        }
        if let Some(name) = said.filter(|_| options.is_classic()) {
            let why = "neither quarantine nor tombstones, as the other libraries know none";
            return Err(only_native(name, why));
        }
        options.check()?;
        Ok(options)
    }

    /// Returns whether the servers have the classic layout, which other libraries understand.
    #[must_use]
    pub fn is_classic(&self) -> bool {
        self.servers.first().is_some_and(RedisOptions::is_classic)
    }

    /// Returns the number of servers, and how many must agree.
    ///
    /// # Errors
    /// [`Invalid`] if the quorum is not possible.
    pub fn size(&self) -> Result<QuorumSize, Invalid> {
        QuorumSize::new(self.servers.len(), self.quorum)
    }

    /// Returns how long a server that may have lost data does not vote; zero in the classic
    /// layout.
    #[must_use]
    pub fn quarantine(&self) -> Duration {
        let usual = match self.is_classic() {
            true => Duration::ZERO,
            false => self.max_ttl.saturating_mul(2),
        };
        self.quarantine.unwrap_or(usual)
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Invalid`] with the option and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        self.size()?;
        let mut addresses: Vec<_> = self.servers.iter().map(address).collect();
        for server in &self.servers {
            server.check()?;
            if server.restart != Restart::Trust {
                return Err(Invalid::new(
                    "restart has no effect here: the servers of a set always have a quarantine",
                    "leave out restart; set max_ttl and quarantine for the set",
                ));
            }
            if matches!(server.address, RedisAddress::Sentinel(_)) || server.acknowledge.is_some() {
                let why = "a set has no Sentinels and no acknowledge: each member is one server";
                let hint = "leave them out: the majority of servers replaces them";
                return Err(Invalid::new(why, hint));
            }
            let first = &self.servers[0];
            let agreed = |it: &RedisOptions| (it.prefix.clone(), it.layout, it.audit);
            if agreed(server) != agreed(first) {
                let why = "all servers of a set must have the same prefix, layout and audit";
                return Err(Invalid::plain(why));
            }
        }
        addresses.sort_unstable();
        if let Some(twice) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            let why = format!("the server {} is named twice", twice[0]);
            return Err(Invalid::new(why, "each server has one vote"));
        }
        let bounds = Duration::from_millis(5)..=Duration::from_secs(30);
        let choose = "choose between 5 ms and 30 s";
        check_bounds("a node_timeout", self.node_timeout, bounds, choose)?;
        let twice = self.max_ttl.saturating_mul(2);
        // Zero turns it off.
        let on = Some(self.quarantine()).filter(|it| !it.is_zero());
        check_times(self.max_ttl, on.unwrap_or(twice))?;
        match &self.set {
            Some(set) if set.is_empty() || set.len() > 64 || set.chars().any(char::is_control) => {
                let why = "the name of a set must be 1 to 64 bytes, without control characters";
                Err(Invalid::plain(why))
            }
            _ => Ok(()),
        }
    }

    /// What all clients of the set must agree on.
    pub(crate) fn terms(&self) -> SetTerms {
        let name = self.set.clone().unwrap_or_else(|| {
            let mut addresses: Vec<_> = self.servers.iter().map(address).collect();
            addresses.sort_unstable();
            format!("{:016x}", fnv(addresses.join(",").as_bytes()))
        });
        let set = format!("{name} {}ms", self.max_ttl.as_millis());
        let quarantine = self.quarantine();
        SetTerms { set, quarantine }
    }

    /// Returns the URL of these options, without the passwords. Except for these, parsing it
    /// gives the same options.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.shown(RedisOptions::without_lone_users)
    }

    /// The URL by which others open the same store, with passwords that they have from elsewhere.
    pub(crate) fn url_for_others(&self) -> String {
        self.shown(|server| server.clone().without_passwords())
    }

    fn shown(&self, one: impl Fn(&RedisOptions) -> RedisOptions) -> String {
        let servers: Vec<_> = self.servers.iter().map(one).collect();
        let member = |server: &RedisOptions| server.shown_login() + &server.address.shown();
        let members: Vec<_> = servers.iter().map(member).collect();
        let around = |first: &RedisOptions| {
            let tls = if first.is_encrypted() { "s" } else { "" };
            (tls, format!("/{}{}", first.db, first.shown_params()))
        };
        let (tls, tail) = servers.first().map(around).unwrap_or_default();
        let mut url = format!("redlock{tls}://{}{tail}", members.join(","));
        add_params(&mut url, PARAMS, self);
        url
    }
}

/// How a server is called in messages, and in the name of the set.
pub(super) fn address(server: &RedisOptions) -> String {
    match &server.address {
        RedisAddress::Tcp { host, port, .. } if server.db == 0 => format!("{host}:{port}"),
        RedisAddress::Tcp { host, port, .. } => format!("{host}:{port}/{}", server.db),
        RedisAddress::Unix(_) | RedisAddress::Sentinel(_) => server.address.shown(),
    }
}
