//! One server of the set: its connection, and the requests to it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Vote;
use leasehold_core::{SetTerms, written};
use leasehold_store::{ErrorKind, StoreError};
use tokio::time::timeout;

use super::super::options::{RedisLayout, RedisOptions};
use super::classic_votes;
use super::options::address;
use super::script::{Ask, read_vote};
use crate::codec::audit::Audit;
use crate::connection::endpoint::Endpoint;
use crate::connection::gate::marker_key;
use crate::connection::manager::ConnectionManager;
use crate::connection::step::run;

pub(super) struct Member {
    /// Host and port, for people.
    pub(super) name: String,
    /// Whether it keeps locks in the classic layout.
    classic: bool,
    /// Its audit log, if there is one.
    audit: Option<Audit>,
    /// The connection, which is opened in the background, again and again.
    pub(super) shared: Arc<ConnectionManager>,
}

impl Member {
    /// Starts to reach for the server, in the background until it is reached or
    /// nobody wants it any more.
    pub(super) fn start(options: &RedisOptions) -> Result<Self, StoreError> {
        let audit = |limit| Audit::new(&options.prefix, limit);
        Ok(Self {
            name: address(options),
            audit: options.audit.map(audit),
            classic: options.layout == RedisLayout::Classic,
            shared: ConnectionManager::start(Endpoint::new(options)?.of_votes(), None),
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.shared.endpoint.options.prefix)
    }

    pub(super) fn lock_key(&self, name: &str) -> String {
        match self.classic {
            true => self.key(name),
            false => self.key(&format!("lock:{name}")),
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.shared.endpoint.options.prefix
    }

    pub(super) fn marker_key(&self) -> String {
        marker_key(&self.shared.endpoint.options.prefix)
    }

    /// Asks for a vote, for `limit` at most. `first`: for a claim that was never asked
    /// for before.
    pub(super) async fn ask(
        &self,
        key: &str,
        ask: &Ask,
        terms: &SetTerms,
        limit: Duration,
        first: bool,
    ) -> Result<Vote, StoreError> {
        self.within(limit, async {
            let wire = self.shared.connection().await?;
            if self.classic {
                return classic_votes::ask(&wire, &self.lock_key(key), ask, first).await;
            }
            let (key, marker) = (self.lock_key(key), self.marker_key());
            let audit = self.audit.as_ref().filter(|_| ask.is_audited());
            let log = audit.map(|audit| audit.log(&key, false));
            let marker = ask.needs_marker().then_some(&*marker);
            let keys = [Some(&*key), marker, log.as_deref()];
            let keys: Vec<_> = keys.into_iter().flatten().collect();
            let retention = self.shared.endpoint.options.retention;
            // Read on this connection: a process that has restarted cannot have kept it.
            let run_id = &wire.server.run_id;
            let value = run(&wire, ask.script(), &keys, |call| {
                ask.add(call, run_id, self.shared.inbox(), terms, retention, audit);
            })
            .await?;
            Ok(read_vote(&value)?.0)
        })
        .await
    }

    /// Whatever is asked, for `limit` at most; says why there was no connection.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(limit, work).await.unwrap_or_else(|_| {
            let silent = || {
                let message = format!("no answer within {}", written(limit));
                StoreError::new(ErrorKind::Unavailable, message)
            };
            Err(self.shared.last_failure().unwrap_or_else(silent))
        })
    }
}
