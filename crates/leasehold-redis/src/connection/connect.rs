//! Opening a connection, and looking at what is at its other end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo, Value};

use super::client::{client, client_at, ours, unusable, with_password_of};
use super::dial::dial;
use super::finder::Named;
use super::primary::Search;
use super::rights::{self, Findings, Lack, Question, Rights, Said};
use crate::connection::demand::Demand;
use crate::connection::gate::Gate;
use crate::options::acknowledge::Acknowledge;
use crate::options::restart::Restart;
use crate::options::{RedisAddress, RedisLayout, RedisOptions};
use crate::refusal;

/// A server, and how to connect to it.
pub(crate) struct Target {
    place: Place,
    pub(crate) prefix: String,
    pub(crate) retention: Duration,
    pub(crate) redacted: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) acknowledge: Option<Acknowledge>,
    /// Where the password stands, which may change.
    password_file: Option<PathBuf>,
    layout: RedisLayout,
    pub(crate) restart: Restart,
    cluster: AtomicBool,
    /// Where pushes would be heard: asked for at connect, if anybody wants to know.
    channel: Option<String>,
    /// Whether it keeps votes instead of locks.
    votes: bool,
    said: Arc<Said>,
}

enum Place {
    /// Always the same address.
    Fixed(Box<Client>),
    /// Wherever the Sentinels say.
    Sought(Arc<Search>),
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// What all tasks share, pushes included.
    Shared,
    /// Something else, on which nothing is heard.
    Beside,
}

/// A connection, and what is at its other end.
pub(crate) struct Opened {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) server: Server,
}

/// One process of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    pub(crate) is_primary: bool,
    /// Another each time the server is started.
    pub(crate) run_id: String,
    /// What must be acknowledged, if anything must.
    pub(crate) demand: Option<Demand>,
    /// What gated scripts are told, where a client asks for them.
    pub(crate) gate: Option<Gate>,
    /// What a Sentinel said about it.
    pub(crate) named: Option<Named>,
    /// What it lets us do.
    pub(crate) rights: Rights,
}

impl Target {
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        options.check_all_but_retention()?;
        let address = match &options.address {
            RedisAddress::Tcp { host, port, .. } => {
                let address = (host.clone(), *port);
                return Ok(Self::at(
                    Place::Fixed(Box::new(client_at(&address, options)?)),
                    options,
                ));
            }
            RedisAddress::Sentinel(sentinels) => {
                // Whatever cannot work should fail now, not when it is needed.
                for node in &sentinels.nodes {
                    client_at(node, options)?;
                }
                let search = Search::new(sentinels.clone(), options);
                return Ok(Self::at(Place::Sought(Arc::new(search)), options));
            }
            RedisAddress::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        Ok(Self::at(
            Place::Fixed(Box::new(client(address, options)?)),
            options,
        ))
    }

    /// Uses the address, the login and the certificates of a client brought along.
    pub(crate) fn of_client(client: &Client, options: &RedisOptions) -> Result<Self, StoreError> {
        let info = ours(client.get_connection_info(), options.response_timeout);
        let client = Client::open(info).map_err(unusable)?;
        Ok(Self::at(Place::Fixed(Box::new(client)), options))
    }

    fn at(place: Place, options: &RedisOptions) -> Self {
        Self {
            place,
            prefix: options.prefix.clone(),
            retention: options.retention,
            redacted: options.redacted_url(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
            acknowledge: options.acknowledge,
            password_file: options.password_file.clone(),
            layout: options.layout,
            restart: options.restart,
            cluster: AtomicBool::new(false),
            channel: None,
            votes: false,
            said: Arc::default(),
        }
    }

    /// The same, and it is found out whether pushes are heard on this channel.
    pub(crate) fn hearing(mut self, channel: &str) -> Self {
        // In the classic layout nobody is told anything.
        self.channel = (!self.is_classic()).then(|| channel.to_owned());
        self
    }

    fn is_classic(&self) -> bool {
        self.layout == RedisLayout::Classic
    }

    /// The same for a server that keeps votes.
    pub(crate) fn of_votes(mut self) -> Self {
        // A vote of the classic layout is a lock like any other.
        self.votes = !self.is_classic();
        self
    }

    /// The same, and what was said already is not said again.
    pub(crate) fn saying(mut self, said: &Arc<Said>) -> Self {
        self.said = Arc::clone(said);
        self
    }

    /// How the primary is found, where it has to be.
    pub(crate) fn search(&self) -> Option<&Arc<Search>> {
        match &self.place {
            Place::Fixed(_) => None,
            Place::Sought(search) => Some(search),
        }
    }

    /// Whether the server was found to be part of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster.load(Ordering::Acquire)
    }

    /// Opens a connection to where the locks are kept now.
    pub(crate) async fn connect(
        &self,
        pushes: impl AsyncPushSender + Clone,
    ) -> Result<Opened, StoreError> {
        match &self.place {
            Place::Fixed(client) => self.open_at(client, pushes, Use::Shared).await,
            Place::Sought(search) => search.connect(self, pushes, Use::Shared).await,
        }
    }

    /// Opens a further connection to a server, on which nothing is heard.
    pub(crate) async fn open_beside(&self, server: &Server) -> Result<Opened, StoreError> {
        let deaf = |_: PushInfo| Ok::<(), ()>(());
        match (&self.place, &server.named) {
            (Place::Fixed(client), _) => self.open_at(client, deaf, Use::Beside).await,
            (Place::Sought(search), Some(named)) => {
                search.open(self, named, deaf, Use::Beside).await
            }
            (Place::Sought(search), None) => search.connect(self, deaf, Use::Beside).await,
        }
    }

    /// Opens a connection to one server and looks at it.
    pub(crate) async fn open_at(
        &self,
        client: &Client,
        pushes: impl AsyncPushSender,
        purpose: Use,
    ) -> Result<Opened, StoreError> {
        let (mut connection, resp3) = self.reach(client, pushes).await?;
        let question = self.question(resp3, purpose);
        let found = rights::find(&mut connection, &question).await?;
        let address = client.get_connection_info().addr();
        let server = self.look_at(&mut connection, found, address).await?;
        Ok(Opened { connection, server })
    }

    /// What is found out of a server.
    fn question(&self, resp3: bool, purpose: Use) -> Question<'_> {
        let channel = self.channel.as_deref();
        Question {
            prefix: &self.prefix,
            commands: match (self.is_classic(), self.votes) {
                // Its keys may be anybody's: none is safe to try commands on.
                (true, _) => &[],
                (false, true) => rights::OF_VOTES,
                (false, false) => rights::OF_LOCKS,
            },
            does_without: self.is_classic(),
            resp3,
            channel: channel.filter(|_| purpose == Use::Shared),
        }
    }

    /// Opens a connection, whatever is at its other end, and finds out what it is.
    pub(crate) async fn find_out(&self) -> Result<(MultiplexedConnection, Findings), StoreError> {
        let deaf = |_: PushInfo| Ok::<(), ()>(());
        let (mut connection, resp3) = match &self.place {
            Place::Fixed(client) => self.reach(client, deaf).await?,
            Place::Sought(search) => {
                let opened = search.connect(self, deaf, Use::Shared).await?;
                let rights = &opened.server.rights;
                (opened.connection, !rights.lacks.contains(&Lack::Resp3))
            }
        };
        let question = self.question(resp3, Use::Shared);
        let found = rights::find(&mut connection, &question).await?;
        Ok((connection, found))
    }

    /// Opens a connection, and says whether it speaks RESP3. One that does not hears
    /// nothing, and its end is noticed with the next request.
    async fn reach(
        &self,
        client: &Client,
        pushes: impl AsyncPushSender,
    ) -> Result<(MultiplexedConnection, bool), StoreError> {
        let client = match &self.password_file {
            Some(file) => &with_password_of(client, file)?,
            None => client,
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.response_timeout));
        let hearing = config.clone().set_push_sender(pushes);
        let login = client.get_connection_info().redis_settings().password();
        let login = login.is_some();
        let error = match dial(client, hearing, self.connect_timeout).await {
            Ok(connection) => return Ok((connection, true)),
            Err(error) if refusal::is_without_resp3(&error, login) => error,
            Err(error) => return Err(self.not_opened(client, error)),
        };
        tracing::debug!(url = %self.redacted, %error, "no RESP3 here");
        let info = client.get_connection_info();
        let older = info.redis_settings().clone();
        let older = older.set_protocol(ProtocolVersion::RESP2);
        let client = Client::open(info.clone().set_redis_settings(older)).map_err(unusable)?;
        let opened = dial(&client, config, self.connect_timeout).await;
        let connection = opened.map_err(|error| self.not_opened(&client, error))?;
        Ok((connection, false))
    }

    /// Why there is no connection, with the address that was tried.
    fn not_opened(&self, client: &Client, error: redis::RedisError) -> StoreError {
        let cause = refusal::of_opening(error, self.connect_timeout);
        let address = client.get_connection_info().addr();
        let message = format!("cannot connect to {address}: {cause}");
        cause.with_message(message)
    }

    /// Judges a server by what was found out of it.
    async fn look_at(
        &self,
        connection: &mut MultiplexedConnection,
        Findings { info, rights }: Findings,
        address: &ConnectionAddr,
    ) -> Result<Server, StoreError> {
        let field = |name: &str| info.get(name).map_or("", String::as_str);
        self.cluster
            .store(field("cluster_enabled") == "1", Ordering::Release);
        check_version(field("redis_version"))?;
        if field("loading") == "1" {
            return Err(StoreError::new(
                ErrorKind::Unavailable,
                format!("the server at {address} is still reading its data (LOADING)"),
            )
            .with_hint("wait until it has started"));
        }
        let is_primary = field("role") != "slave";
        // Whoever seeks the primary asks elsewhere, and in a cluster a replica says
        // itself who has the key; others connect to what they name.
        let alone = self.search().is_none() && !self.is_cluster();
        if !is_primary && field("slave_read_only") != "0" && alone {
            return Err(
                StoreError::new(ErrorKind::Refused, "the server is a read-only replica")
                    .with_hint("connect to the primary; after a fail-over, to the new one"),
            );
        }
        let rights = rights?;
        self.said.say(&rights, &self.redacted, &self.prefix);
        // Its length stands in one byte of the mark.
        if self.votes && !matches!(field("run_id").len(), 1..=255) {
            return Err(rights::no_run_id("its restarts would go unnoticed"));
        }
        let policy = field("maxmemory_policy");
        if field("maxmemory") != "0" && !matches!(policy, "" | "noeviction") {
            tracing::warn!(
                url = %self.redacted,
                maxmemory_policy = policy,
                "this server may evict locks when its memory is full, and grant them twice; \
                 set maxmemory-policy to noeviction, or keep locks on a server of their own"
            );
        }
        let connected = field("connected_slaves").parse().unwrap_or(0);
        if self.acknowledge.is_some() && (field("run_id").is_empty() || field("role").is_empty()) {
            let why = "what it acknowledges could be another server's";
            return Err(rights::no_run_id(why));
        }
        let demand = self.acknowledge.map(|policy| policy.demand(connected));
        if let Some(demand) = demand.filter(|_| is_primary) {
            demand.probe(connection, &info).await?;
        }
        let run_id = field("run_id");
        Ok(Server {
            is_primary,
            gate: self.gate(run_id)?,
            run_id: run_id.to_owned(),
            demand,
            named: None,
            rights: Rights {
                // On a cluster it counts those at one node only, and who does not say
                // may be part of one.
                counts: rights.counts && field("cluster_enabled") == "0",
                ..rights
            },
        })
    }
}

impl Target {
    /// What gated scripts are told on a server that runs as `run_id`.
    fn gate(&self, run_id: &str) -> Result<Option<Gate>, StoreError> {
        let Some(quarantine) = self.restart.quarantine() else {
            return Ok(None);
        };
        if self.is_cluster() {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                "restart=quarantine cannot be had of this server: it is a node of a cluster",
            )
            .with_hint("leave out restart; docs/stores/cluster.md says what a fail-over forgets"));
        }
        if run_id.is_empty() || run_id.len() > 255 {
            return Err(rights::no_run_id("restart=quarantine rests on it"));
        }
        Ok(Some(Gate::new(&self.prefix, run_id, &quarantine.terms())))
    }
}

/// An answer that is text.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn check_version(version: &str) -> Result<(), StoreError> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let known = (parts.next().flatten(), parts.next().flatten());
    match known {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => Err(StoreError::new(
            ErrorKind::Refused,
            format!("the server is Redis {version}; 6.2 or later is needed"),
        )
        .with_hint("upgrade it, or use Valkey")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for known in ["6.2.0", "7.0.15", "8.4.0", "10.0", "", "unknown"] {
            assert!(check_version(known).is_ok(), "{known}");
        }
        for old in ["6.0.16", "5.0.7", "2.8"] {
            let refused = check_version(old).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused);
            assert_eq!(
                refused.to_string(),
                format!("the server is Redis {old}; 6.2 or later is needed")
            );
        }
    }
}
