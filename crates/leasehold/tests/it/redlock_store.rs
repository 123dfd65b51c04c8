//! The contract of a store and the guarantees of the library, on three independent servers, as
//! far as they apply without a queue.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::redlock_support::{Program, RedisServer, Set};
use async_trait::async_trait;
use leasehold::store::redis::{RedlockOptions, RedlockStore};
use leasehold::store::{AuditLimit, LockStore};
use leasehold_store::contract::Fixture;
use tokio::sync::OnceCell;

/// One set for all cases; a prefix of its own makes each of them a fresh one.
type Shared = LazyLock<Set>;
static MIXED: Shared = LazyLock::new(|| Set::unmarked(3, ""));
static REDIS: Shared = LazyLock::new(|| of(Program::Default));
static VALKEY: Shared = LazyLock::new(|| of(Program::Valkey));
static OLDEST: Shared = LazyLock::new(|| of(Program::OldestRedis));

fn of(program: Program) -> Set {
    Set::of(repeat_n(program, 3), "")
}

/// Servers that are marked as new when the first client comes.
struct Part {
    set: &'static Set,
    prefix: String,
    marked: OnceCell<()>,
}

fn fresh(set: &'static Shared) -> Part {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    Part {
        set,
        prefix: format!("case-{case}:"),
        marked: OnceCell::new(),
    }
}

impl Part {
    fn options(&self) -> RedlockOptions {
        let mut options = self.set.options();
        for server in &mut options.servers {
            server.prefix.clone_from(&self.prefix);
        }
        options
    }

    async fn open(&self, audit: Option<AuditLimit>) -> Arc<dyn LockStore> {
        let mut options = self.options();
        for server in &mut options.servers {
            server.audit = audit;
        }
        let store = RedlockStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }
}

#[async_trait]
impl Fixture for Part {
    async fn client(&self) -> Arc<dyn LockStore> {
        let mark = async || {
            let marked = RedlockStore::initialise(self.options()).await;
            for server in marked.expect("servers to mark") {
                server.outcome.expect("a server that is marked as new");
            }
        };
        self.marked.get_or_init(mark).await;
        self.open(None).await
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        self.client().await;
        self.open(Some(AuditLimit::Entries(1_000))).await
    }

    fn short(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl leasehold_testkit::facade::Fixture for Part {
    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("{}*", self.prefix);
        let channels = |server: &RedisServer| {
            let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", &ours]);
            channels.len()
        };
        Some(self.set.servers.iter().map(channels).sum())
    }
}

mod contract {
    mod mixed {
        leasehold_store::contract!(crate::redlock_store::fresh(&crate::redlock_store::MIXED));
    }

    mod redis {
        leasehold_store::contract!(crate::redlock_store::fresh(&crate::redlock_store::REDIS));
    }

    mod valkey {
        leasehold_store::contract!(crate::redlock_store::fresh(&crate::redlock_store::VALKEY));
    }

    mod oldest {
        leasehold_store::contract!(crate::redlock_store::fresh(&crate::redlock_store::OLDEST));
    }
}

mod facade {
    leasehold_testkit::facade!(super::fresh(&super::MIXED));
}
