//! The contract of a store and the guarantees of the library, with grants and renewals that a
//! replica must acknowledge.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use leasehold::store::redis::{Acknowledge, RedisOptions, RedisStore};
use leasehold::store::{AuditLimit, LockStore};
use leasehold_store::contract::Fixture;
use leasehold_testkit::server::{Program, RedisServer};

struct Pair {
    primary: RedisServer,
    _replica: RedisServer,
}

/// One pair for all cases; a prefix of its own makes each of them a fresh one.
type Shared = LazyLock<Pair>;
static REDIS: Shared = LazyLock::new(|| start(Program::Default));
static VALKEY: Shared = LazyLock::new(|| start(Program::Valkey));
static OLDEST: Shared = LazyLock::new(|| start(Program::OldestRedis));

fn start(program: Program) -> Pair {
    let server = RedisServer::builder().program(program);
    let primary = server.clone().start();
    let replica = server.replica_of(primary.port()).start();
    primary.wait_for_replicas(1);
    Pair {
        primary,
        _replica: replica,
    }
}

struct Part {
    pair: &'static Pair,
    prefix: String,
}

fn fresh(pair: &'static Shared) -> Part {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    Part {
        pair,
        prefix: format!("case-{case}:"),
    }
}

#[async_trait]
impl Fixture for Part {
    async fn client(&self) -> Arc<dyn LockStore> {
        self.open(None).await
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        self.open(Some(AuditLimit::Entries(1_000))).await
    }
}

impl Part {
    async fn open(&self, audit: Option<AuditLimit>) -> Arc<dyn LockStore> {
        let mut options = RedisOptions::from_url(&self.pair.primary.url()).expect("a good URL");
        options.audit = audit;
        let policy = Acknowledge::replicas(1).timeout(std::time::Duration::from_secs(5));
        let options = options.prefix(&self.prefix).acknowledge(policy);
        let store = RedisStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }
}

impl leasehold_testkit::facade::Fixture for Part {
    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("{}*", self.prefix);
        let channels: Vec<String> = self.pair.primary.query(&["PUBSUB", "CHANNELS", &ours]);
        Some(channels.len())
    }
}

mod contract {
    mod redis {
        leasehold_store::contract!(crate::redis_acknowledged::fresh(
            &crate::redis_acknowledged::REDIS
        ));
    }

    mod valkey {
        leasehold_store::contract!(crate::redis_acknowledged::fresh(
            &crate::redis_acknowledged::VALKEY
        ));
    }

    mod oldest {
        leasehold_store::contract!(crate::redis_acknowledged::fresh(
            &crate::redis_acknowledged::OLDEST
        ));
    }
}

mod facade {
    leasehold_testkit::facade!(@quick super::fresh(&super::REDIS));
}
