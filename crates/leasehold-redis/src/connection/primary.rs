//! The primary that the Sentinels watch: connecting to it, and leaving it when
//! another has taken its place.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::client;
use super::connect::{Hearing, Opened, Target};
use super::finder::{self, Address, Asked, Failures, Finder, Named};
use super::link::Shared;
use crate::options::RedisOptions;
use crate::options::sentinels::Sentinels;
use crate::refusal;

/// The channel on which Sentinels tell of fail-overs.
const SWITCHED: &str = "+switch-master";

/// How often the Sentinel that is listened to is asked as well: a connection can
/// fall silent, and a message can be missed.
const CHECK: Duration = Duration::from_secs(10);

/// The pause after every Sentinel was found silent.
const PAUSE: Duration = Duration::from_secs(1);

/// The Sentinels, and how to connect to them and to what they name.
pub(crate) struct Search {
    finder: Finder,
    options: RedisOptions,
}

impl Search {
    pub(crate) fn new(sentinels: Sentinels, options: &RedisOptions) -> Self {
        Self {
            finder: Finder::new(sentinels),
            options: options.clone(),
        }
    }

    /// The Sentinels that are known.
    pub(crate) fn nodes(&self) -> &[Address] {
        &self.finder.sentinels.nodes
    }

    pub(crate) fn master(&self) -> &str {
        &self.finder.sentinels.master
    }

    /// How long one Sentinel may take: a silent one must not use up the time.
    fn patience_with_sentinel(&self) -> Duration {
        (self.options.connect_timeout / 10).max(Duration::from_millis(100))
    }

    /// How long the server that a Sentinel names may take: it may be the one
    /// that has failed, and not be replaced yet.
    fn patience_with_server(&self) -> Duration {
        (self.options.connect_timeout / 4).max(Duration::from_millis(250))
    }

    /// Asks the Sentinels in turn, and connects to the primary that they name.
    /// What they name counts only if it says itself that it is one.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        hearing: Option<Hearing>,
    ) -> Result<Opened, StoreError> {
        let mut failures = Failures::default();
        let mut tried = Vec::new();
        let mut behind = Vec::new();
        let order = self.finder.order();
        for node in &order {
            let named = match self.ask(node).await {
                Asked::Named(named) => named,
                Asked::Unknown(names) => {
                    failures.unknown(node, names);
                    continue;
                }
                Asked::No(error) => {
                    failures.no(node, error);
                    continue;
                }
            };
            if self.finder.is_stale(&named) {
                failures.named(node, &named.primary, &finder::behind());
                behind.push((node, named));
                continue;
            }
            if tried.contains(&named.primary) {
                continue;
            }
            match self.open(target, &named, hearing.clone()).await {
                Ok(opened) => {
                    self.finder.prefer(node);
                    return Ok(opened);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    failures.named(node, &named.primary, &error);
                    tried.push(named.primary);
                }
                Err(error) => return Err(error),
            }
        }
        // If not a single one is up to date, they were set up anew.
        if behind.len() == order.len()
            && let Some((_, named)) = behind.iter().max_by_key(|(_, named)| named.epoch)
        {
            self.finder.start_over(named);
        }
        Err(failures.into_error(self.master()))
    }

    /// Opens a connection to the server that a Sentinel has named.
    pub(crate) async fn open(
        &self,
        target: &Target,
        named: &Named,
        hearing: Option<Hearing>,
    ) -> Result<Opened, StoreError> {
        let client = client::client_at(&named.primary, &self.options)?;
        let limit = self.patience_with_server();
        let opened = timeout(limit, target.open_at(&client, hearing)).await;
        let mut opened = opened.unwrap_or_else(|_| Err(finder::silent(limit)))?;
        if !opened.server.is_primary {
            return Err(finder::not_primary());
        }
        opened.server.named = Some(named.clone());
        Ok(opened)
    }

    async fn ask(&self, node: &Address) -> Asked {
        let config = AsyncConnectionConfig::new();
        match self.reach(node, config).await {
            Ok(mut sentinel) => {
                finder::ask(&mut sentinel, self.master(), self.patience_with_sentinel()).await
            }
            Err(error) => Asked::No(error),
        }
    }

    pub(crate) async fn reach(
        &self,
        node: &Address,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, StoreError> {
        let limit = self.patience_with_sentinel();
        let config = config
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let client = self.client_for_sentinel(node)?;
        let opening = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(limit, opening).await {
            Ok(opened) => opened.map_err(|error| {
                let error = refusal::of_opening(error, limit);
                match error.kind() {
                    ErrorKind::Refused if refusal::is_of_login(&error) => {
                        error.with_hint("`sentinel_user` and `sentinel_pass` log in there")
                    }
                    _ => error,
                }
            }),
            Err(_) => Err(finder::silent(limit)),
        }
    }

    fn client_for_sentinel(&self, node: &Address) -> Result<Client, StoreError> {
        let Sentinels {
            username, password, ..
        } = &self.finder.sentinels;
        let options = RedisOptions {
            username: username.clone(),
            password: password.clone(),
            password_file: None,
            db: 0,
            ..self.options.clone()
        };
        client::client_at(node, &options)
    }

    /// Listens to one Sentinel until it falls silent.
    async fn listen(&self, node: &Address, link: &Weak<Shared>) -> Result<(), StoreError> {
        let switched = Arc::new(Notify::new());
        let (heard, limit) = (Arc::clone(&switched), self.patience_with_sentinel());
        let config = AsyncConnectionConfig::new().set_push_sender(move |info: PushInfo| {
            if matches!(info.kind, PushKind::Message | PushKind::Disconnection) {
                heard.notify_one();
            }
            Ok::<(), ()>(())
        });
        let mut sentinel = self.reach(node, config).await?;
        sentinel
            .subscribe(SWITCHED)
            .await
            .map_err(refusal::of_connection)?;
        loop {
            match finder::ask(&mut sentinel, self.master(), limit).await {
                Asked::Named(named) => {
                    let Some(link) = link.upgrade() else {
                        return Ok(());
                    };
                    if self.finder.is_stale(&named) {
                        return Err(finder::behind());
                    }
                    link.heard_of(&named);
                }
                Asked::Unknown(_) => return Err(finder::behind()),
                Asked::No(error) => return Err(error),
            }
            tokio::select! {
                () = switched.notified() => {}
                () = sleep(CHECK) => {}
            }
        }
    }
}

/// Looks out for fail-overs, so that a primary which was only stopped is left
/// before its answers are given up, and is not believed when it goes on.
pub(crate) async fn look_out(search: Arc<Search>, link: Weak<Shared>) {
    let mut silent = 0;
    while link.strong_count() > 0 {
        let order = search.finder.order();
        let Some(node) = order.first() else { return };
        match search.listen(node, &link).await {
            Ok(()) => return,
            Err(error) => {
                let name = crate::options::sentinels::address(&node.0, node.1);
                tracing::debug!(sentinel = %name, %error, "cannot listen to the Sentinel");
                search.finder.put_last(node);
                silent += 1;
            }
        }
        if silent >= order.len() {
            silent = 0;
            sleep(PAUSE).await;
        }
    }
}
