//! The locks on trial.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::observe::{Fact, ObservedClaim, Observer, StoreRequest};
use leasehold::store::LockStore;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold::{
    Access, Any, Client, Error, Lease, LockOptions, Loss, Released, Settings, StoreError,
};
use leasehold_postgres::Postgres;
use leasehold_store::scheme::Scheme;
use leasehold_zookeeper::ZooKeeper;

use super::lock::{Acquired, Failure, Held, Lock, OnQueued};
use super::{Spec, Task};
use crate::faults::history::{Event, Journal};
use crate::hearing::Hearing;

pub(super) struct Ours {
    client: Client,
}

impl Ours {
    pub(super) async fn connect(spec: &Spec, journal: &Arc<Journal>) -> Result<Self, Failure> {
        let settings = Settings::default()
            .with_ttl(spec.ttl)
            .with_operation_timeout(spec.operation_timeout);
        let builder = Client::builder().settings(settings);
        let builder = builder.observer(Releases(Arc::clone(journal)));
        let opened = passing_over(&spec.store).await;
        let opened = opened.map_err(|error| Failure::new(&error.kind().to_string(), &error))?;
        let builder = match opened {
            Some(store) => {
                let journal = Arc::clone(journal);
                let store = Hearing::new(store, move || journal.write(0, Event::Deaf));
                builder.with_store(Arc::new(store))
            }
            None => builder.store(&spec.store),
        };
        Ok(Self {
            client: builder.connect().await?,
        })
    }
}

/// Writes which releases are sent again.
struct Releases(Arc<Journal>);

impl Observer for Releases {
    fn observe(&self, _claim: &ObservedClaim, _fact: Fact) {}

    fn request(&self, request: StoreRequest<'_>) {
        if request.verb == "release" && request.failed.is_some() {
            let key = request.key.as_str().to_owned();
            self.0.write(0, Event::Unanswered { key });
        }
    }
}

/// Opens a store in which those are passed over that do not listen; `None` for others.
async fn passing_over(url: &str) -> Result<Option<Arc<dyn LockStore>>, StoreError> {
    let schemes: [&dyn Scheme; 2] = [&Postgres, &ZooKeeper];
    for scheme in schemes {
        if scheme.describe(url).is_ok() {
            return Ok(Some(scheme.open(url, &Access::default()).await?.store));
        }
    }
    match RedisOptions::from_url(url) {
        Ok(options) => Ok(Some(Arc::new(RedisStore::connect(options).await?))),
        Err(_) => Ok(None),
    }
}

#[async_trait]
impl Lock for Ours {
    async fn acquire(&self, task: &Task, patience: Option<Duration>, queued: OnQueued) -> Acquired {
        let how = LockOptions::new().on_progress(move |_| queued());
        let lock = self.client.lock_of(&task.key, task.mode)?;
        let lock = if task.fair { lock } else { lock.unfair() };
        Ok(Box::new(match patience {
            None => lock.lock_opts(how).await?,
            Some(Duration::ZERO) => lock.try_lock().await?.ok_or_else(Failure::busy)?,
            Some(limit) => lock.lock_opts(how.within(limit)).await?,
        }))
    }

    async fn close(&self) {
        let _ = self.client.shutdown(Duration::from_secs(1)).await;
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(&error.kind().to_string(), &error)
    }
}

#[async_trait]
impl Held for Lease<Any> {
    fn token(&self) -> Option<u64> {
        Some(self.number().get())
    }

    fn rejoined(&self) -> u32 {
        Self::rejoined(self)
    }

    fn remaining(&self) -> Duration {
        Self::remaining(self)
    }

    async fn lost(&self) -> String {
        let loss: Loss = Self::lost(self).await;
        loss.to_string()
    }

    async fn release(self: Box<Self>) -> Option<bool> {
        let released = Self::release(*self).await;
        released.ok().map(|it| it == Released::Held)
    }
}
