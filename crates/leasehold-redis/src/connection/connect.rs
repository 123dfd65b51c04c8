//! Opening a connection to a server, or to the primary that Sentinels name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_store::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo};

use super::client::{Common, address_of, ours, unusable};
use super::dial::{dial, first_answer};
use super::multiplexed::Signals;
use super::primary::Search;
use super::rights::{self, Findings, Question};
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
    pub(super) common: Arc<Common>,
}

/// How a server met `HELLO 3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Understood,
    Refused,
    /// It closed the connection, as some proxies do with whatever they do not know.
    Closed,
}

enum Place {
    /// Always the same address.
    Fixed(ConnectionAddr),
    /// With the settings of an existing client.
    Given(Box<Client>),
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
        let common: Arc<Common> = Arc::default();
        // Whatever cannot work should fail now, not when it is needed.
        let place = match &options.address {
            RedisAddress::Tcp { host, port, .. } => {
                let address = address_of(&(host.clone(), *port), options)?;
                common.client(address.clone(), options)?;
                Place::Fixed(address)
            }
            RedisAddress::Unix(path) => {
                let address = ConnectionAddr::Unix(path.clone());
                common.client(address.clone(), options)?;
                Place::Fixed(address)
            }
            RedisAddress::Sentinel(sentinels) => {
                let search = Search::new(sentinels.clone(), options, &common);
                for node in &sentinels.nodes {
                    common.client_at(node, options)?;
                    search.client_for_sentinel(node)?;
                }
                Place::Sought(Arc::new(search))
            }
        };
        Ok(Self::at(place, options, &common))
    }

    /// Uses the address, the login and the certificates of an existing client.
    pub(crate) fn of_client(client: &Client, options: &RedisOptions) -> Result<Self, StoreError> {
        let info = ours(client.get_connection_info(), options.response_timeout);
        let client = Client::open(info).map_err(unusable)?;
        let place = Place::Given(Box::new(client));
        Ok(Self::at(place, options, &Arc::default()))
    }

    /// Whichever of these nodes can be reached; each is reached as these options say. They
    /// are listed anew for each connection.
    pub(crate) fn any(
        options: &RedisOptions,
        nodes: impl Fn() -> Vec<Address> + Send + Sync + 'static,
        common: &Arc<Common>,
    ) -> Self {
        Self::at(Place::Any(Box::new(nodes)), options, common)
    }

    /// A node of a cluster, whether it says so or not; the options were checked.
    pub(crate) fn of_cluster(
        node: &Address,
        options: &RedisOptions,
        common: &Arc<Common>,
    ) -> Result<Self, StoreError> {
        let place = Place::Fixed(address_of(node, options)?);
        Ok(Self {
            of_cluster: true,
            ..Self::at(place, options, common)
        })
    }

    fn at(place: Place, options: &RedisOptions, common: &Arc<Common>) -> Self {
        Self {
            options: options.clone(),
            redacted: options.redacted_url(),
            place,
            cluster: AtomicBool::new(false),
            of_cluster: false,
            channel: None,
            votes: false,
            common: Arc::clone(common),
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

    /// The same for a server that keeps votes.
    pub(crate) fn of_votes(mut self) -> Self {
        // A vote of the classic layout is a lock like any other.
        self.votes = !self.is_classic();
        self
    }

    /// How the primary is found, where it has to be.
    pub(crate) fn search(&self) -> Option<&Arc<Search>> {
        match &self.place {
            Place::Sought(search) => Some(search),
            Place::Fixed(_) | Place::Given(_) | Place::Any(_) => None,
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
            Place::Fixed(address) => {
                let client = self.common.client(address.clone(), &self.options)?;
                self.open_at(&client, hearing).await
            }
            Place::Given(client) => self.open_at(client, hearing).await,
            Place::Sought(search) => search.connect(self, hearing).await,
            Place::Any(nodes) => {
                first_answer(nodes(), |node| async {
                    let client = self.common.client_at(&node, &self.options)?;
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
        if let Place::Fixed(address) = &self.place {
            let client = self.common.client(address.clone(), &self.options)?;
            return self.ask(&client, hearing, &Arc::default()).await;
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
        let (mut connection, greeting) = self.reach(client, hearing, signals).await?;
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
            resp3: greeting == Greeting::Understood,
            channel,
        };
        let found = rights::find(&mut connection, &question).await;
        let found = found.map_err(|error| match greeting {
            Greeting::Closed => {
                let address = client.get_connection_info().addr();
                let encrypted = self.options.is_encrypted();
                refusal::of_closed(&address.to_string(), encrypted, error)
            }
            Greeting::Understood | Greeting::Refused => error,
        })?;
        self.common.note_success();
        Ok((connection, found))
    }

    /// Opens a connection, and says whether it speaks RESP3. One that does not hears
    /// nothing, and its end is noticed with the next request.
    async fn reach(
        &self,
        client: &Client,
        hearing: Option<Hearing>,
        signals: &Arc<Signals>,
    ) -> Result<(MultiplexedConnection, Greeting), StoreError> {
        let RedisOptions {
            connect_timeout: limit,
            response_timeout,
            ..
        } = self.options;
        // Why there is no connection, with the address that was tried.
        let not_opened = |error| {
            let cause = refusal::of_opening(error, &self.common.dialling(client, limit));
            let address = client.get_connection_info().addr();
            let message = format!("cannot connect to {address}: {cause}");
            let cause = match refusal::lacking(cause.message()) {
                Some(lacking) => cause.with_hint(lacking),
                None => cause,
            };
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
        let refused = match dial(client, heard.clone(), limit).await {
            Ok(connection) => {
                self.common.note_greeting();
                return Ok((connection, Greeting::Understood));
            }
            Err(error) => error,
        };
        // A client that went on without pushes would be passed in every queue.
        let greeting = match refusal::is_closed(&refused) && self.common.may_not_greet() {
            true => Greeting::Closed,
            false if refusal::is_without_resp3(&refused, login) => Greeting::Refused,
            false => return Err(not_opened(refused)),
        };
        tracing::debug!(url = %self.redacted, error = %refused, "the server does not speak RESP3; \
            connecting with RESP2");
        let older = info.redis_settings().clone();
        let older = older.set_protocol(ProtocolVersion::RESP2);
        let older = Client::open(info.clone().set_redis_settings(older)).map_err(unusable)?;
        let opened = dial(&older, config, limit).await.map_err(not_opened)?;
        // A server that was just ending closes connections too; one that forbids HELLO does
        // so again.
        if greeting == Greeting::Closed
            && let Ok(connection) = dial(client, heard, limit).await
        {
            self.common.note_greeting();
            return Ok((connection, Greeting::Understood));
        }
        Ok((opened, greeting))
    }
}
