//! A client: one process with several tasks, each of which wants its key again and again.

mod broken;
mod lock;
mod ours;
mod worker;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Mode;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::history::Journal;
use lock::connect;
pub use lock::{Acquired, Algorithm, Failure, Held, Lock, OnQueued, OpenPeer, Opened};
use worker::Worker;

/// All that a client process has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Its number, which no other client of the schedule has.
    pub client: usize,
    /// Where its random choices come from.
    pub seed: u64,
    /// Where the store is.
    pub store: String,
    /// By which algorithm it locks.
    pub algorithm: Algorithm,
    /// How long leases live without renewal.
    pub ttl: Duration,
    /// How long one request may take.
    pub operation_timeout: Duration,
    /// Where its history goes.
    pub journal: PathBuf,
    /// Where the resources are.
    pub gate: PathBuf,
    /// What its tasks want.
    pub tasks: Vec<Task>,
}

impl Spec {
    /// The servers, for those who speak to each by themselves: `redis://host:port/`.
    pub fn servers(&self) -> Vec<String> {
        let (_, rest) = self.store.split_once("://").unwrap_or_default();
        let listed = rest.split(['/', '?']).next().unwrap_or_default();
        let servers = listed.split(',').map(|server| format!("redis://{server}/"));
        servers.collect()
    }
}

/// What a task wants, again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The key.
    pub key: String,
    /// How to hold it; a reader is a writer now and then.
    pub mode: Mode,
    /// Whether it keeps to the order of arrival.
    pub fair: bool,
}

/// A runtime of this thread alone.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Works until SIGTERM.
pub fn main(spec: Spec, peer: OpenPeer) -> ExitCode {
    let worked = runtime().and_then(|runtime| runtime.block_on(work(spec, peer)));
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// How long a client may take to end.
const LAST: Duration = Duration::from_secs(5);

async fn work(spec: Spec, peer: OpenPeer) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let journal = Arc::new(Journal::create(&spec.journal)?);
    let (over, is_over) = watch::channel(false);
    let spec = Arc::new(spec);
    let locks = tokio::select! {
        locks = connect(&spec, peer, &journal) => Arc::<dyn Lock>::from(locks),
        _ = terminated.recv() => return Ok(()),
    };
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks.len() {
        let (spec, journal) = (Arc::clone(&spec), Arc::clone(&journal));
        let worker = Worker::new(spec, task, Arc::clone(&locks), journal, is_over.clone());
        tasks.spawn(async move { worker.await?.work().await });
    }
    terminated.recv().await;
    let _ = over.send(true);
    let _ = timeout(LAST, async { while tasks.join_next().await.is_some() {} }).await;
    locks.close().await;
    Ok(())
}
