//! The locks on trial.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::Loss;
use leasehold::{
    Acquire, Client, Error, Exclusive, Lease, LeaseKind, Mode, Released, Settings, Wait,
};

use super::lock::{Failure, Held, Lock, OnQueued, Patience};
use super::{Spec, Task};

pub(super) struct Ours {
    client: Client,
}

impl Ours {
    pub(super) async fn connect(spec: &Spec) -> Result<Self, Failure> {
        let settings = Settings {
            ttl: spec.ttl,
            operation_timeout: spec.operation_timeout,
            ..Settings::default()
        };
        let builder = Client::builder().store(&spec.store).settings(settings);
        let client = builder.connect().await.map_err(|error| failure(&error))?;
        Ok(Self { client })
    }
}

fn failure(error: &Error) -> Failure {
    Failure::new(&error.kind().to_string(), error)
}

#[async_trait]
impl Lock for Ours {
    async fn acquire(
        &self,
        task: &Task,
        patience: Patience,
        queued: OnQueued,
    ) -> Result<Box<dyn Held>, Failure> {
        let how = Acquire {
            wait: match patience {
                Patience::Forever => Wait::Forever,
                Patience::For(limit) => Wait::For(limit),
                Patience::No => Wait::No,
            },
            progress: Some(Arc::new(move |_: &_| queued())),
        };
        let key = &task.key;
        let lease = match (task.mode, task.fair) {
            (Mode::EXCLUSIVE, true) => held(self.client.mutex(key)?.acquire(how).await?),
            (Mode::EXCLUSIVE, false) => held(self.client.mutex(key)?.unfair().acquire(how).await?),
            (Mode::SHARED, _) => held(self.client.rwlock(key)?.acquire_read(how).await?),
            (Mode::permits(of, take), _) => held(
                self.client
                    .semaphore(key, of)?
                    .acquire_with(take, how)
                    .await?,
            ),
        };
        lease.ok_or_else(|| Failure::new("busy", &"somebody else has it"))
    }

    async fn close(&self) {
        let _ = self.client.shutdown(Duration::from_secs(1)).await;
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        failure(&error)
    }
}

fn held<K: LeaseKind>(lease: Option<Lease<K>>) -> Option<Box<dyn Held>>
where
    Lease<K>: Numbered,
{
    lease.map(|lease| Box::new(lease) as Box<dyn Held>)
}

/// What orders the grants of a kind.
pub(super) trait Numbered {
    fn number(&self) -> u64;
}

impl Numbered for Lease<Exclusive> {
    fn number(&self) -> u64 {
        self.token().get()
    }
}

impl Numbered for Lease<leasehold::Shared> {
    fn number(&self) -> u64 {
        Self::number(self).get()
    }
}

impl Numbered for Lease<leasehold::Permits> {
    fn number(&self) -> u64 {
        Self::number(self).get()
    }
}

#[async_trait]
impl<K: LeaseKind> Held for Lease<K>
where
    Self: Numbered,
{
    fn token(&self) -> Option<u64> {
        Some(Numbered::number(self))
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
        released.ok().map(|it| it == Released::StillOurs)
    }
}
