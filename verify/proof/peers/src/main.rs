//! `leasehold-proof`, with the locks of others.
//!
//! Each is used as its documentation shows, and believed as long as it says that its
//! lock is valid, or, where it says nothing of time, until it says that the lock is lost.

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use clap::Parser;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use fred::prelude::*;
use futures_util::future::BoxFuture;
use leasehold_proof::faults::cli;
use leasehold_proof::faults::client::{
    Acquired, Algorithm, Failure, Held, Lock, OnQueued, Opened, Spec, Task,
};
use leasehold_proof::faults::history::{Micros, now};
use rslock::{LockError, LockManager};
use tokio::time::sleep;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    Cli::parse().command.run(open)
}

fn open(spec: &Spec) -> BoxFuture<'_, Opened> {
    Box::pin(async move {
        Ok(match spec.algorithm {
            Algorithm::Rslock => Box::new(Rslock::new(spec)) as Box<dyn Lock>,
            _ => Box::new(Distributed::connect(spec).await?),
        })
    })
}

/// Whether to ask once more for a key that was asked for at `asked`.
fn goes_on(patience: Option<Duration>, asked: Micros) -> bool {
    patience.is_none_or(|limit| u128::from(now() - asked) < limit.as_micros())
}

// ---- rslock

struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl Rslock {
    fn new(spec: &Spec) -> Self {
        let mut manager = LockManager::new(spec.servers());
        manager.set_retry(3, Duration::from_millis(40));
        let ttl = spec.ttl;
        Self { manager, ttl }
    }
}

#[async_trait]
impl Lock for Rslock {
    async fn acquire(&self, task: &Task, patience: Option<Duration>, _: OnQueued) -> Acquired {
        let asked = now();
        loop {
            match self.manager.lock(task.key.as_bytes(), self.ttl).await {
                Ok(lock) => return Ok(Box::new(RslockLease::new(lock, self.ttl))),
                Err(LockError::Unavailable | LockError::TtlExceeded) => {}
                Err(error) => return Err(Failure::new("unavailable", &error)),
            }
            if !goes_on(patience, asked) {
                return Err(Failure::busy());
            }
        }
    }
}

struct RslockLease {
    lock: rslock::Lock,
    ttl: Duration,
    valid_until: Micros,
    extended: Micros,
}

impl RslockLease {
    fn new(lock: rslock::Lock, ttl: Duration) -> Self {
        Self {
            valid_until: now() + lock.validity_time as u64 * 1000,
            extended: now(),
            lock,
            ttl,
        }
    }
}

#[async_trait]
impl Held for RslockLease {
    fn remaining(&self) -> Duration {
        Duration::from_micros(self.valid_until.saturating_sub(now()))
    }

    async fn tend(&mut self) -> bool {
        let due = self.extended + self.ttl.as_micros() as u64 / 3;
        if now() < due || self.remaining().is_zero() {
            return false;
        }
        match self.lock.lock_manager.extend(&self.lock, self.ttl).await {
            Ok(lock) => *self = Self::new(lock, self.ttl),
            // It says so only now.
            Err(_) => self.valid_until = 0,
        }
        true
    }

    async fn release(self: Box<Self>) -> Option<bool> {
        self.lock.release().await;
        None
    }
}

// ---- distributed-lock-redis

struct Distributed {
    provider: RedisLockProvider,
}

impl Distributed {
    async fn connect(spec: &Spec) -> Result<Self, Failure> {
        let unavailable = |error: RedisError| Failure::new("unavailable", &error);
        let mut builder = RedisLockProvider::builder();
        for url in spec.servers() {
            // From a URL it makes clients that never connect again, and time out never.
            let client = Builder::from_config(RedisConfig::from_url(&url).map_err(unavailable)?)
                .with_performance_config(|it| it.default_command_timeout = spec.operation_timeout)
                .set_policy(ReconnectPolicy::new_constant(0, 100))
                .build()
                .map_err(unavailable)?;
            client.init().await.map_err(unavailable)?;
            builder = builder.client(client);
        }
        let provider = builder
            .expiry(spec.ttl)
            .min_validity(spec.ttl * 9 / 10)
            .extension_cadence(spec.ttl / 3)
            .build();
        let provider = provider
            .await
            .map_err(|error| Failure::new("unavailable", &error))?;
        Ok(Self { provider })
    }
}

#[async_trait]
impl Lock for Distributed {
    async fn acquire(&self, task: &Task, patience: Option<Duration>, _: OnQueued) -> Acquired {
        let asked = now();
        let lock = self.provider.create_lock(&task.key);
        loop {
            let attempt = lock.try_acquire().await;
            match attempt.map_err(|error| Failure::new("unavailable", &error))? {
                Some(handle) => return Ok(Box::new(Handle(handle))),
                None if goes_on(patience, asked) => sleep(Duration::from_millis(15)).await,
                None => return Err(Failure::busy()),
            }
        }
    }
}

struct Handle(RedisLockHandle);

#[async_trait]
impl Held for Handle {
    fn remaining(&self) -> Duration {
        if *self.0.lost_token().borrow() {
            Duration::ZERO
        } else {
            // It says nothing of time: held until it says that it is lost.
            Duration::from_secs(3600)
        }
    }

    async fn lost(&self) -> String {
        let mut lost = self.0.lost_token().clone();
        let _ = lost.wait_for(|lost| *lost).await;
        "its makers say so".to_owned()
    }

    async fn release(self: Box<Self>) -> Option<bool> {
        self.0.release().await.ok().map(|()| true)
    }
}
