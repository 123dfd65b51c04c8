//! Opening a connection to a server, or to the primary that Sentinels name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_store::StoreError;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo};

use super::client::{client, client_at, ours, unusable, with_password_of};
use super::dial::dial;
use super::primary::Search;
use super::rights::{self, Findings, Question, Said};
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
    /// Where pushes would be heard: asked for at connect, if anybody wants to know.
    channel: Option<String>,
    /// Whether it keeps votes instead of locks.
    pub(super) votes: bool,
    pub(super) said: Arc<Said>,
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
    /// The fields of `INFO`.
    pub(crate) info: HashMap<String, String>,
}

/// Hears nothing.
fn deaf(_: PushInfo) -> Result<(), ()> {
    Ok(())
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

    /// Uses the address, the login and the certificates of a client brought along.
    pub(crate) fn of_client(client: &Client, options: &RedisOptions) -> Result<Self, StoreError> {
        let info = ours(client.get_connection_info(), options.response_timeout);
        let client = Client::open(info).map_err(unusable)?;
        Ok(Self::at(Place::Fixed(Box::new(client)), options))
    }

    fn at(place: Place, options: &RedisOptions) -> Self {
        Self {
            options: options.clone(),
            redacted: options.redacted_url(),
            place,
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
        self.options.layout == RedisLayout::Classic
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

    pub(super) fn found_cluster(&self, is_one: bool) {
        self.cluster.store(is_one, Ordering::Release);
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
        let (mut connection, Findings { info, rights }) = self.ask(client, pushes, purpose).await?;
        let address = client.get_connection_info().addr();
        let server = self
            .look_at(&mut connection, &info, rights, address)
            .await?;
        Ok(Opened {
            connection,
            server,
            info,
        })
    }

    /// Opens a connection, whatever is at its other end, and finds out what it is. The
    /// primary that Sentinels name has to be one that can be used.
    pub(crate) async fn find_out(&self) -> Result<(MultiplexedConnection, Findings), StoreError> {
        match &self.place {
            Place::Fixed(client) => self.ask(client, deaf, Use::Shared).await,
            Place::Sought(search) => {
                let opened = search.connect(self, deaf, Use::Shared).await?;
                let (info, rights) = (opened.info, Ok(opened.server.rights));
                Ok((opened.connection, Findings { info, rights }))
            }
        }
    }

    /// Opens a connection to one server, and asks what it is and what it lets us do.
    async fn ask(
        &self,
        client: &Client,
        pushes: impl AsyncPushSender,
        purpose: Use,
    ) -> Result<(MultiplexedConnection, Findings), StoreError> {
        let (mut connection, resp3) = self.reach(client, pushes).await?;
        let channel = self.channel.as_deref();
        let question = Question {
            prefix: &self.options.prefix,
            commands: match (self.is_classic(), self.votes) {
                // Its keys may be anybody's: none is safe to try commands on.
                (true, _) => &[],
                (false, true) => rights::OF_VOTES,
                (false, false) => rights::OF_LOCKS,
            },
            does_without: self.is_classic(),
            resp3,
            channel: channel.filter(|_| purpose == Use::Shared),
        };
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
        let hearing = config.clone().set_push_sender(pushes);
        let info = client.get_connection_info();
        let login = info.redis_settings().password().is_some();
        match dial(client, hearing, limit).await {
            Ok(connection) => return Ok((connection, true)),
            Err(error) if refusal::is_without_resp3(&error, login) => {
                tracing::debug!(url = %self.redacted, %error, "no RESP3 here");
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
