//! The store of the native layout: the rules of the queue run in scripts on the server.

mod log;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Claim, Command, Inbox, Invalid, Key, Marked, Snapshot, StoreTime};
use leasehold_store::sync::check_runtime;
use leasehold_store::{
    Acknowledges, AllAnswer, Answer, AuditLog, Capabilities, Listening, Listing, LockStore,
    PushSink, StoreError, check_parts,
};
use redis::Value;

use crate::codec::script::{self, Request, Script, Step};
use crate::codec::{push, record, slots, stores_own};
use crate::connection::endpoint::Endpoint;
use crate::connection::gate::mark;
use crate::connection::multiplexed::Connection;
use crate::connection::step::Delivery;
use crate::errors;
use crate::options::restart::check_ttl;
use crate::options::{RedisLayout, RedisOptions};
use crate::routing::Route;
use crate::routing::cluster::RedisClusterOptions;
use crate::routing::names::{Looked, Named, NamedKeys, Names, as_key};

/// A store on one Redis or Valkey server, behind Sentinels, or on a cluster. Cheap to share in an
/// `Arc`. Its connections close when it is dropped.
pub struct RedisStore {
    route: Route,
}

impl RedisStore {
    /// Opens a store: connects, and checks the version and the role of the server.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached. `Refused` if it is too old, is a read-only
    /// replica, or refuses the credentials. `Invalid` for invalid options. `Unsupported` for TLS
    /// without the feature `tls-ring`.
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        Ok(Self::by(Route::open(&options, RedisLayout::Native).await?))
    }

    /// The same for a server that is reached so.
    pub(crate) fn by(route: Route) -> Self {
        Self { route }
    }

    /// Opens a store on a cluster. It asks the given nodes for the other nodes, and connects to a
    /// node when a key needs it.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect`]; `Unavailable` if none of the given nodes can be reached;
    /// `Refused` if they are not part of a cluster.
    pub async fn connect_cluster(options: RedisClusterOptions) -> Result<Self, StoreError> {
        let route = Route::open_cluster(options, RedisLayout::Native);
        Ok(Self::by(route.await?))
    }

    /// Marks a server that has never granted anything as new, so that it grants at once instead
    /// of waiting for a quarantine. For options with
    /// [`Restart::Quarantine`](crate::Restart::Quarantine).
    ///
    /// A server that is already marked is not treated as new: its quarantine is not shortened. A
    /// server that belonged to clients with another `max_ttl` or `quarantine` belongs to these
    /// from now on, after the longer of both quarantines.
    ///
    /// **Only for servers that never had data**: a server that has lost its data would grant keys
    /// whose forgotten leases are still valid.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may be marked.
    ///
    /// # Errors
    /// `Invalid` for invalid options, or options without a quarantine; otherwise the same as
    /// [`RedisStore::connect`].
    pub async fn initialise(options: RedisOptions) -> Result<Marked, StoreError> {
        check_runtime()?;
        let Some(quarantine) = options.restart.quarantine().copied() else {
            let why = "a server has a mark only with restart=quarantine";
            let hint = "add restart=quarantine to the URL, if the clients of the server use it";
            return Err(Invalid::new(why, hint).into());
        };
        let endpoint = Endpoint::new(&options)?;
        let opened = endpoint.connect(None).await?;
        let wire = Connection::start(opened, &endpoint, Weak::new());
        mark(&wire, &options.prefix, &quarantine.terms()).await
    }

    /// Returns the URL of the server or cluster, without the password.
    #[must_use]
    pub fn redacted_url(&self) -> &str {
        self.route.redacted()
    }

    /// Refuses a TTL that would outlive the quarantine of the server.
    fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        let quarantine = self.route.options().restart.quarantine();
        quarantine.map_or(Ok(()), |it| check_ttl(ttl, it.max_ttl, "server"))
    }

    /// This client does not only look.
    fn note_claim(&self) {
        if let Route::One(shared) = &self.route {
            shared.note_claim();
        }
    }

    fn redis_key(&self, name: &str) -> String {
        [self.route.prefix(), "lock:", name].concat()
    }

    /// Runs a script that knows nothing of queues where a key is.
    pub(crate) async fn run_on(&self, script: &Script, key: &Key) -> Result<Value, StoreError> {
        let key = self.redis_key(key.as_str());
        self.route.read(&Request::call(script, &key, &[])).await
    }

    /// What lies at a key.
    async fn record(&self, key: &Key) -> Result<Value, StoreError> {
        let key = &self.redis_key(key.as_str());
        self.route.read(&Request::Look { key }).await
    }
}

#[async_trait]
impl LockStore for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::queueing("redis");
        can.durable_tokens = true;
        // In a cluster those that lie in one slot can be, and no others.
        can.multi = matches!(self.route, Route::One(_));
        can.push = push::is_heard(self.inbox());
        can.acknowledges = match self.route.options().acknowledge {
            None => Acknowledges::Nothing,
            Some(policy) if policy.renewals => Acknowledges::GrantsAndRenewals,
            Some(_) => Acknowledges::Grants,
        };
        can
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let id;
        let delivery = match command {
            Command::Claim(claim) => {
                claim.mode.check()?;
                self.check_ttl(claim.lease_ttl.max(claim.waiter_ttl))?;
                self.note_claim();
                id = [&claim.id];
                Delivery::Acknowledged(&id)
            }
            Command::Renew(renew) => {
                self.check_ttl(renew.ttl)?;
                // Also for who took a lease over, and has claimed nothing itself.
                self.note_claim();
                self.route.ready_for(renew).await?;
                id = [&renew.id];
                match renew.confirms {
                    true => Delivery::Acknowledged(&id),
                    false => Delivery::Plain,
                }
            }
            Command::Release(release) => {
                if let (Route::One(shared), false) = (&self.route, release.settled) {
                    shared.abandoned.landed(&release.id).await;
                }
                Delivery::Plain
            }
            _ => Delivery::Plain,
        };
        let Some(step) = Step::new(self.redis_key(key.as_str()), command) else {
            return Err(stores_own(command));
        };
        let (steps, all) = (&[step], false);
        let request = Request::Steps { steps, all };
        let answered = self.route.ask(delivery, &request).await?;
        answered.answer(script::read_reply(&answered.value)?)
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        check_parts(parts)?;
        for (_, claim) in parts {
            self.check_ttl(claim.lease_ttl.max(claim.waiter_ttl))?;
        }
        let steps = parts.iter().filter_map(|(key, claim)| {
            let key = self.redis_key(key.as_str());
            Step::new(key, &Command::Claim(claim.clone()))
        });
        let steps: Vec<_> = steps.collect();
        let (steps, all) = (&steps, true);
        let steps = Request::Steps { steps, all };
        if matches!(self.route, Route::Cluster(_)) && slots::common_slot(steps.keys()).is_none() {
            return Ok(None);
        }
        self.note_claim();
        let ids: Vec<_> = parts.iter().map(|(_, claim)| &claim.id).collect();
        let answered = self.route.ask(Delivery::Acknowledged(&ids), &steps).await?;
        if answered.is_error("TRYAGAIN") {
            // Their slot is on its way, and some have arrived before others.
            return Ok(None);
        }
        Ok(Some(
            match script::read_replies(&answered.value, parts.len())? {
                Ok(replies) => {
                    let answers = replies.into_iter().map(|reply| answered.answer(reply));
                    AllAnswer::All(answers.collect::<Result<_, _>>()?)
                }
                Err((part, reply)) => AllAnswer::NotAll {
                    part,
                    answer: answered.answer(reply)?,
                },
            },
        ))
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        record::look(self.record(key).await?)
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let names = Names::new(self.route.clone(), self.redis_key(""), pattern);
        Box::new(NamedKeys::new(self, Ok(names)))
    }

    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        Some(Box::new(log::StreamLog::new(self, key, since)))
    }

    fn inbox(&self) -> &Inbox {
        self.route.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        match &self.route {
            Route::One(shared) => shared.listen(&sink).await,
            Route::Cluster(cluster) => cluster.listen(sink).await,
        }
    }
}

#[async_trait]
impl Named for RedisStore {
    async fn look(&self, name: &[u8]) -> Result<Looked, StoreError> {
        let key = match as_key(name) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        let value = self.record(&key).await?;
        match &value {
            // It is about the server or the user, and not about this key.
            Value::ServerError(error) if !matches!(error.code(), "LHTYPE" | "LHVERSION") => {
                Err(errors::of_server(error))
            }
            _ => Ok(record::look(value).map(|it| it.capacity.is_some().then_some((key, it)))),
        }
    }
}
