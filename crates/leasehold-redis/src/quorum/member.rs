//! One member of the set: an ordinary store on one server, and the limit of its patience.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Key, SetTerms};
use leasehold_store::sync::timeout;
use leasehold_store::{LockStore, StoreError};

use super::options::address;
use super::report::Answered;
use crate::classic::ClassicStore;
use crate::connection::endpoint::Endpoint;
use crate::connection::manager::ConnectionManager;
use crate::errors;
use crate::options::RedisOptions;
use crate::queue::RedisStore;
use crate::routing::Route;

pub(super) struct Member {
    /// Host and port, for people.
    pub(super) name: String,
    pub(super) store: Box<dyn LockStore>,
    /// The connection, which is opened in the background, again and again.
    pub(super) shared: Arc<ConnectionManager>,
}

impl Member {
    /// Starts to reach for the server, in the background until it is reached or
    /// nobody wants it any more.
    pub(super) fn start(options: &RedisOptions, terms: &SetTerms) -> Result<Self, StoreError> {
        let shared = ConnectionManager::start(Endpoint::new(options)?.of_set(terms));
        let route = Route::One(Arc::clone(&shared));
        Ok(Self {
            name: address(options),
            store: match options.is_classic() {
                true => Box::new(ClassicStore::by(route)),
                false => Box::new(RedisStore::by(route)),
            },
            shared,
        })
    }

    /// Takes a step, for `limit` at most.
    pub(super) async fn take(&self, key: &Key, command: &Command, limit: Duration) -> Answered {
        let mut command = command.clone();
        // Each server knows its clients by another inbox.
        let ours = self.shared.inbox.name();
        match &mut command {
            Command::Claim(claim) => claim.inbox = Some(ours.clone()),
            Command::Watch { inbox, .. } => *inbox = ours.clone(),
            _ => {}
        }
        self.within(limit, self.store.step(key, &command)).await
    }

    /// Whatever is asked, for `limit` at most; says why there was no connection.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(limit, work).await.unwrap_or_else(|_| {
            let why = self.shared.last_failure();
            Err(why.unwrap_or_else(|| errors::silent(limit)))
        })
    }
}
