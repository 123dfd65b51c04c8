//! Locks of any make, as a task sees them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::broken::Broken;
use super::ours::Ours;
use super::{Spec, Task};
use crate::faults::history::Journal;
use crate::value_name::value_name;

/// Whose locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Those on trial.
    Leasehold,
    /// `SET NX PX`, and a release that deletes the key whosever it is.
    DelWithoutOwner,
    /// `SET NX PX`, an honest release, and a renewal that prolongs the key whosever it is.
    RenewWithoutOwner,
    /// Sound in all but one thing: its validity is counted from the arrival of the answer.
    ValidFromAnswer,
    /// Redlock as published, without a pause after a restart.
    PlainRedlock,
    /// The crate `rslock`.
    Rslock,
    /// The crate `distributed-lock-redis`.
    DistributedLock,
}

/// The locks of a store, or why there are none.
pub type Opened = Result<Box<dyn Lock>, Failure>;

/// The lease of a key, or why there is none.
pub type Acquired = Result<Box<dyn Held>, Failure>;

/// Opens the locks of those crates that only `peers/` is built with.
pub type OpenPeer = for<'a> fn(&'a Spec) -> BoxFuture<'a, Opened>;

impl Algorithm {
    /// As the command line has it.
    pub fn name(self) -> String {
        value_name(&self)
    }
}

/// Why a key was not obtained.
#[derive(Debug)]
pub struct Failure {
    /// The kind; `busy` where somebody else has it.
    pub kind: String,
    /// In words.
    pub why: String,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: &str, why: &impl ToString) -> Self {
        let (kind, why) = (kind.to_owned(), why.to_string());
        Self { kind, why }
    }

    /// Somebody else has it.
    pub fn busy() -> Self {
        Self::new("busy", &"somebody else has it")
    }
}

/// Called once the store has the claim in its queue.
pub type OnQueued = Box<dyn Fn() + Send + Sync>;

/// A lock of any make.
#[async_trait]
pub trait Lock: Send + Sync {
    /// Gets a key, or says why not. Waits for as long as it takes, unless `patience` limits that; a
    /// limit of zero does not wait.
    async fn acquire(&self, task: &Task, patience: Option<Duration>, queued: OnQueued) -> Acquired;

    /// Gives back what it can.
    async fn close(&self) {}
}

/// A lease of any make.
#[async_trait]
pub trait Held: Send + Sync {
    /// The number of the grant, if there is such a thing.
    fn token(&self) -> Option<u64> {
        None
    }
    /// How often the place in line was lost.
    fn rejoined(&self) -> u32 {
        0
    }
    /// For how long it may be relied on, as it says itself or as its makers say.
    fn remaining(&self) -> Duration;
    /// Completes when it is lost, with the reason, if it says so.
    async fn lost(&self) -> String {
        std::future::pending().await
    }
    /// Does what its holder has to do to keep it, if it is time; says whether it was.
    async fn tend(&mut self) -> bool {
        false
    }
    /// Whether it was still ours, if anybody answered.
    async fn release(self: Box<Self>) -> Option<bool>;
}

/// Tries until there is a store.
pub(super) async fn connect(spec: &Spec, peer: OpenPeer, journal: &Arc<Journal>) -> Box<dyn Lock> {
    loop {
        if let Ok(lock) = open(spec, peer, journal).await {
            return lock;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn open(spec: &Spec, peer: OpenPeer, journal: &Arc<Journal>) -> Opened {
    Ok(match spec.algorithm {
        Algorithm::Leasehold => Box::new(Ours::connect(spec, journal).await?),
        Algorithm::Rslock | Algorithm::DistributedLock => peer(spec).await?,
        _ => Box::new(Broken::connect(spec)?),
    })
}
