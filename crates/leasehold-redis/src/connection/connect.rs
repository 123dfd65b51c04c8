//! Opening a connection to a server, or to the primary that Sentinels name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo};

use super::client::{client, client_at, ours, unusable, with_password_of};
use super::dial::{dial, first_answer};
use super::multiplexed::Signals;
use super::primary::Search;
use super::rights::{self, Findings, Question, ReportedMissing};
use super::sentinel::{Address, Named};
use super::server::Server;
use crate::options::{RedisAddress, RedisLayout, RedisOptions};
use crate::refusal;

/// A server, and how to connect to it.
pub(crate) struct Target {
    pub(crate) options: RedisOptions,
    /// The URL, without the password.
    pub(crate) redacted: String,
    place: Place,
    /// Whether the server was found to be part of a cluster.
    cluster: AtomicBool,
    /// Whether it is reached as one node of a cluster.
    of_cluster: bool,
    /// The channel of pushes, to check at connect whether they are received.
    channel: Option<String>,
    /// Whether it keeps votes instead of locks.
    pub(super) votes: bool,
    pub(super) reported: Arc<ReportedMissing>,
}

enum Place {
    /// Always the same address.
    Fixed(Box<Client>),
    /// Wherever the Sentinels say.
    Sought(Arc<Search>),
    /// At whichever of these answers first.
    Any(Box<dyn Fn() -> Vec<Address> + Send + Sync>),
}

/// Receives the pushes of a connection, which has these signals; called on its own task.
pub(crate) type Hearing = Arc<dyn Fn(&PushInfo, &Arc<Signals>) + Send + Sync>;

/// A connection, and what is at its other end.
pub(crate) struct Opened {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) server: Server,
    /// The fields of `INFO`.
    pub(crate) info: HashMap<String, String>,
    pub(crate) signals: Arc<Signals>,
}

impl Target {
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        options.check_all_but_retention()?;
        let client = match &options.address {
            RedisAddress::Tcp { host, port, .. } => client_at(&(host.clone(), *port), options)?,
            RedisAddress::Unix(path) => client(ConnectionAddr::Unix(path.clone()), options)?,
            RedisAddress::Sentinel(sentinels) => {
                // Whatever cannot work should fail now, not when it is needed.
                for node in &sentinels.nodes {
                    client_at(node, options)?;
                }
                let search = Search::new(sentinels.clone(), options);
                return Ok(Self::at(Place::Sought(Arc::new(search)), options));
            }
        };
        Ok(Self::at(Place::Fixed(Box::new(client)), options))
    }

    /// Uses the address, the login and the certificates of an existing client.
    pub(crate) fn of_client(client: &Client, options: &RedisOptions) -> Result<Self, StoreError> {
        let info = ours(client.get_connection_info(), options.response_timeout);
        let client = Client::open(info).map_err(unusable)?;
        Ok(Self::at(Place::Fixed(Box::new(client)), options))
    }

    /// Whichever of these nodes can be reached; each is reached as these options say. They
    /// are listed anew for each connection.
    pub(crate) fn any(
        options: &RedisOptions,
        nodes: impl Fn() -> Vec<Address> + Send + Sync + 'static,
    ) -> Self {
        Self::at(Place::Any(Box::new(nodes)), options)
    }

    fn at(place: Place, options: &RedisOptions) -> Self {
        Self {
            options: options.clone(),
            redacted: options.redacted_url(),
            place,
            cluster: AtomicBool::new(false),
            of_cluster: false,
            channel: None,
            votes: false,
            reported: Arc::default(),
        }
    }

    /// Also checks whether pushes are received on this channel.
    pub(crate) fn hearing(mut self, channel: &str) -> Self {
        // In the classic layout nobody is told anything.
        self.channel = (!self.is_classic()).then(|| channel.to_owned());
        self
    }

    fn is_classic(&self) -> bool {
        self.options.layout == RedisLayout::Classic
    }

    /// The same for a node of a cluster, whether it says so or not.
    pub(crate) fn of_cluster(mut self) -> Self {
        self.of_cluster = true;
        self
    }

    /// The same for a server that keeps votes.
    pub(crate) fn of_votes(mut self) -> Self {
        // A vote of the classic layout is a lock like any other.
        self.votes = !self.is_classic();
        self
    }

    /// The same, and what was said already is not said again.
    pub(crate) fn reporting(mut self, reported: &Arc<ReportedMissing>) -> Self {
        self.reported = Arc::clone(reported);
        self
    }

    /// How the primary is found, where it has to be.
    pub(crate) fn search(&self) -> Option<&Arc<Search>> {
        match &self.place {
            Place::Sought(search) => Some(search),
            Place::Fixed(_) | Place::Any(_) => None,
        }
    }

    /// Whether the server was found to be part of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.of_cluster || self.cluster.load(Ordering::Acquire)
    }

    pub(super) fn found_cluster(&self, is_one: bool) {
        self.cluster.store(is_one, Ordering::Release);
    }

    /// Opens a connection to where the locks are kept now.
    pub(crate) async fn connect(&self, hearing: Option<Hearing>) -> Result<Opened, StoreError> {
        match &self.place {
            Place::Fixed(client) => self.open_at(client, hearing).await,
            Place::Sought(search) => search.connect(self, hearing).await,
            Place::Any(nodes) => {
                first_answer(nodes(), |node| async {
                    let client = client_at(&node, &self.options)?;
                    let mut opened = self.open_at(&client, hearing.clone()).await?;
                    let epoch = 0;
                    opened.server.named = Some(Named {
                        primary: node,
                        epoch,
                    });
                    Ok(opened)
                })
                .await
            }
        }
    }

    /// Opens a further connection to a server, on which nothing is heard.
    pub(crate) async fn open_beside(&self, server: &Server) -> Result<Opened, StoreError> {
        match (self.search(), &server.named) {
            (Some(search), Some(named)) => search.open(self, named, None).await,
            _ => self.connect(None).await,
        }
    }

    /// Opens a connection to one server and looks at it.
    pub(crate) async fn open_at(
        &self,
        client: &Client,
        hearing: Option<Hearing>,
    ) -> Result<Opened, StoreError> {
        let signals = Arc::default();
        let (mut connection, Findings { info, rights }) =
            self.ask(client, hearing, &signals).await?;
        let address = client.get_connection_info().addr();
        let server = self
            .look_at(&mut connection, &info, rights, address)
            .await?;
        Ok(Opened {
            connection,
            server,
            info,
            signals,
        })
    }

    /// Opens a connection, whatever is at its other end, and finds out what it is. The
    /// primary that Sentinels name has to be one that can be used.
    pub(crate) async fn find_out(&self) -> Result<(MultiplexedConnection, Findings), StoreError> {
        let hearing: Option<Hearing> = Some(Arc::new(|_, _| {}));
        if let Place::Fixed(client) = &self.place {
            return self.ask(client, hearing, &Arc::default()).await;
        }
        let opened = self.connect(hearing).await?;
        let (info, rights) = (opened.info, Ok(opened.server.rights));
        Ok((opened.connection, Findings { info, rights }))
    }

    /// Opens a connection to one server, and reads its version, role and permissions.
    async fn ask(
        &self,
        client: &Client,
        hearing: Option<Hearing>,
        signals: &Arc<Signals>,
    ) -> Result<(MultiplexedConnection, Findings), StoreError> {
        let channel = self.channel.as_deref().filter(|_| hearing.is_some());
        let (mut connection, resp3) = self.reach(client, hearing, signals).await?;
        let question = Question {
            prefix: &self.options.prefix,
            commands: match (self.is_classic(), self.votes) {
                // Its keys may be anybody's: none is safe to try commands on.
                (true, _) => &[],
                (false, true) if self.options.audit.is_some() => rights::OF_AUDITED_VOTES,
                (false, true) => rights::OF_VOTES,
                (false, false) if self.options.audit.is_some() => rights::OF_AUDITED_LOCKS,
                (false, false) => rights::OF_LOCKS,
            },
            does_without: self.is_classic(),
            resp3,
            channel,
        };
        let found = rights::find(&mut connection, &question).await?;
        Ok((connection, found))
    }

    /// Opens a connection, and says whether it speaks RESP3. One that does not hears
    /// nothing, and its end is noticed with the next request.
    async fn reach(
        &self,
        client: &Client,
        hearing: Option<Hearing>,
        signals: &Arc<Signals>,
    ) -> Result<(MultiplexedConnection, bool), StoreError> {
        let RedisOptions {
            connect_timeout: limit,
            response_timeout,
            ..
        } = self.options;
        let client = match &self.options.password_file {
            Some(file) => &with_password_of(client, file)?,
            None => client,
        };
        // Why there is no connection, with the address that was tried.
        let not_opened = |error| {
            let cause = refusal::of_opening(error, limit);
            let address = client.get_connection_info().addr();
            let message = format!("cannot connect to {address}: {cause}");
            cause.with_message(message)
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(response_timeout));
        let signals = Arc::clone(signals);
        let heard = config.clone().set_push_sender(move |info: PushInfo| {
            hearing.iter().for_each(|hear| hear(&info, &signals));
            Ok::<(), ()>(())
        });
        let info = client.get_connection_info();
        let login = info.redis_settings().password().is_some();
        match dial(client, heard, limit).await {
            Ok(connection) => return Ok((connection, true)),
            Err(error) if refusal::is_without_resp3(&error, login) => {
                tracing::debug!(url = %self.redacted, %error, "the server does not speak RESP3; \
                 connecting with RESP2");
            }
            Err(error) => return Err(not_opened(error)),
        }
        let older = info.redis_settings().clone();
        let older = older.set_protocol(ProtocolVersion::RESP2);
        let older = Client::open(info.clone().set_redis_settings(older)).map_err(unusable)?;
        let opened = dial(&older, config, limit).await;
        Ok((opened.map_err(not_opened)?, false))
    }
}
