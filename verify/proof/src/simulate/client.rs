//! A client's process: connects, lets its workers ask for this and that, and when
//! nothing is disturbed any more, asks for every key once and goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::LockStore;
use leasehold::store::memory::MemoryStore;
use leasehold::store::redis::{RedisStore, RedlockStore};
use leasehold::{Client, StoreError};
use tokio::time::{Instant, sleep, timeout};

use super::book::{Book, Fact};
use super::chance::Chance;
use super::invariants::Deployment;
use super::plan::{Plan, servers};
use super::work::{Worker, keys};
use super::world::Net;
use crate::hearing::Hearing;

/// What a run's clients share.
pub(crate) struct Common {
    pub(crate) plan: Plan,
    pub(crate) book: Book,
    pub(crate) net: Net,
    /// Nothing is disturbed any more.
    pub(crate) quiet: AtomicBool,
    /// How many have done all and gone.
    pub(crate) gone: AtomicUsize,
    /// The store of those that share their memory.
    pub(crate) memory: Option<MemoryStore>,
}

impl Common {
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    pub(crate) async fn open(&self) -> Result<Arc<dyn LockStore>, StoreError> {
        let plan = &self.plan;
        Ok(match (plan.deployment, &self.memory) {
            (Deployment::Memory, Some(store)) => Arc::new(store.client()),
            (Deployment::Memory, None) => Arc::new(MemoryStore::new()),
            (Deployment::Redis, _) => {
                Arc::new(RedisStore::connect(plan.server(servers(plan.deployment)[0])).await?)
            }
            (Deployment::Redlock, _) => Arc::new(RedlockStore::connect(plan.redlock()).await?),
        })
    }

    /// Opens a client, however often that takes.
    async fn connect(&self, number: usize, chance: &mut Chance) -> Client {
        loop {
            if let Ok(store) = self.open().await {
                let book = self.book.clone();
                let store = Hearing::new(store, move || book.note(Fact::Deaf { client: number }));
                let builder = Client::builder().with_store(Arc::new(store));
                if let Ok(client) = builder.settings(self.plan.settings()).connect().await {
                    return client;
                }
            }
            sleep(chance.time(Duration::from_millis(50)..=Duration::from_secs(1))).await;
        }
    }
}

/// The life of a client's process.
pub(crate) async fn live(common: Arc<Common>, number: usize, mut chance: Chance) {
    let client = common.connect(number, &mut chance).await;
    let workers: Vec<_> = (0..common.plan.workers)
        .map(|_| Worker::new(&common, number, client.clone(), chance.fork()))
        .map(|worker| tokio::spawn(worker.work()))
        .collect();
    for worker in workers {
        // One that panics is told by the run.
        let _ = worker.await;
    }
    // One of them holds for so long that its lease has to be renewed.
    let hold = if number == 0 {
        common.plan.ttl * 6 / 5
    } else {
        Duration::ZERO
    };
    for wanted in keys(common.plan.deployment) {
        let since = Instant::now();
        let mut worker = Worker::new(&common, number, client.clone(), chance.fork());
        let served = timeout(common.plan.patience(), worker.insist(*wanted, hold)).await;
        let within = served.is_ok().then(|| since.elapsed());
        common.book.note(Fact::Served(number, wanted.key, within));
    }
    let left = client.shutdown(common.plan.patience()).await;
    let unconfirmed = usize::try_from(left.unconfirmed).unwrap_or(usize::MAX);
    let what = "releases that were not confirmed at a shutdown".to_owned();
    common.book.note(Fact::Remains(what, unconfirmed));
    drop(client);
    common.gone.fetch_add(1, Ordering::Relaxed);
}
