//! Where a store connects to: a server, one node of a cluster, a member of a set, or the primary
//! that Sentinels name.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::SetTerms;
use leasehold_store::StoreError;
use leasehold_store::sync::timeout;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::address::Address;
use super::dial::{self, first_answer};
use super::handshake::{Handshake, Server};
use super::primary::Search;
use super::sentinel::Named;
use super::socket::OnPush;
use super::target::{self, Common, Target};
use crate::errors;
use crate::options::{RedisAddress, RedisOptions};

/// A server, and how to connect to it.
pub(crate) struct Endpoint {
    pub(crate) options: RedisOptions,
    /// The URL, without the password.
    pub(crate) redacted: String,
    place: Place,
    /// Whether it is reached as one node of a cluster.
    pub(crate) of_cluster: bool,
    /// The channel of pushes, to check at connect whether they are received.
    pub(super) channel: Option<String>,
    /// The set that it is a member of.
    pub(super) set: Option<SetTerms>,
    pub(super) common: Arc<Common>,
}

pub(crate) enum Place {
    /// Always at the address of the options.
    Fixed,
    /// Wherever the Sentinels say.
    Sought(Arc<Search>),
    /// At whichever of these answers first; they are listed anew for each connection.
    Any(Box<dyn Fn() -> Vec<Address> + Send + Sync>),
}

/// A connection, and what is at its other end.
pub(crate) struct Opened {
    pub(crate) handshake: Handshake,
    pub(crate) server: Server,
}

impl Endpoint {
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        options.check()?;
        target::check(options)?;
        let common: Arc<Common> = Arc::default();
        let place = match &options.address {
            RedisAddress::Tcp { .. } | RedisAddress::Unix(_) => Place::Fixed,
            RedisAddress::Sentinel(sentinels) => {
                let search = Search::new(sentinels.clone(), options, &common);
                target::check(&search.options)?;
                Place::Sought(Arc::new(search))
            }
        };
        Ok(Self::at(place, options, &common))
    }

    /// Whatever is at that place is reached as these options say, which were checked.
    pub(crate) fn at(place: Place, options: &RedisOptions, common: &Arc<Common>) -> Self {
        Self {
            options: options.clone(),
            redacted: options.redacted_url(),
            place,
            of_cluster: false,
            channel: None,
            set: None,
            common: Arc::clone(common),
        }
    }

    /// Also checks whether pushes are received on this channel.
    pub(crate) fn hearing(mut self, channel: &str) -> Self {
        // In the classic layout nobody is told anything.
        self.channel = (!self.options.is_classic()).then(|| channel.to_owned());
        self
    }

    /// The same for a member of a set.
    pub(crate) fn of_set(mut self, terms: &SetTerms) -> Self {
        // A vote of the classic layout is a lock like any other.
        self.set = (!self.options.is_classic()).then(|| terms.clone());
        self
    }

    /// How the primary is found, where it has to be.
    pub(crate) fn search(&self) -> Option<&Arc<Search>> {
        match &self.place {
            Place::Sought(search) => Some(search),
            Place::Fixed | Place::Any(_) => None,
        }
    }

    /// Opens a connection to where the locks are kept now.
    pub(crate) async fn connect(&self, hearing: Option<OnPush>) -> Result<Opened, StoreError> {
        match &self.place {
            Place::Fixed => self.open(self.target(None, hearing).await?).await,
            Place::Sought(search) => search.connect(self, hearing).await,
            Place::Any(nodes) => {
                first_answer(nodes(), |primary| async {
                    let named = Named {
                        primary,
                        epoch: None,
                    };
                    let target = self.target(Some(named), hearing.clone());
                    self.open(target.await?).await
                })
                .await
            }
        }
    }

    /// Opens a connection to the server that a Sentinel has named.
    pub(super) async fn open_named(
        &self,
        named: &Named,
        hearing: Option<OnPush>,
    ) -> Result<Opened, StoreError> {
        let target = self.target(Some(named.clone()), hearing).await?;
        // It may be the one that has failed, and not be replaced yet.
        let limit = (self.options.connect_timeout / 4).max(Duration::from_millis(250));
        let opened = timeout(limit, self.open(target)).await;
        opened.unwrap_or_else(|_| Err(errors::silent(limit)))
    }

    /// Opens a connection to one server, and judges it.
    async fn open(&self, target: Target) -> Result<Opened, StoreError> {
        let shaken = Handshake::with(self, target).await?;
        shaken.judge(self).await
    }

    /// Opens a connection to the server for other commands than those of locks.
    pub(crate) async fn open_for_others(&self) -> Result<MultiplexedConnection, StoreError> {
        let target = self.connect(None).await?.handshake.target;
        let limit = self.options.response_timeout;
        let opened = async {
            let stream = dial::open(&target).await?.give_away();
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(limit));
            MultiplexedConnection::new_with_config(&target.login, stream, config).await
        };
        let (connection, driver) = opened.await.map_err(errors::of_connection)?;
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Opens a connection, whatever is at its other end, and finds out what it is. The
    /// primary that Sentinels name has to be one that can be used.
    pub(crate) async fn find_out(&self) -> Result<Handshake, StoreError> {
        let hearing: Option<OnPush> = Some(Arc::new(|_, _| {}));
        if matches!(self.place, Place::Fixed) {
            let target = self.target(None, hearing).await?;
            return Handshake::with(self, target).await;
        }
        Ok(self.connect(hearing).await?.handshake)
    }

    /// How to connect to the server that was named, else to that of the options.
    async fn target(
        &self,
        named: Option<Named>,
        hearing: Option<OnPush>,
    ) -> Result<Target, StoreError> {
        let address = match &named {
            Some(named) => named.primary.reached(&self.options),
            None => self.options.address.clone(),
        };
        let mut target = self.common.target(address, &self.options).await?;
        (target.named, target.push) = (named, hearing);
        Ok(target)
    }
}
