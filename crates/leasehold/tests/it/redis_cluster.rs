//! The contract of a store and the guarantees of the library, on a Redis Cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails"
)]
#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use leasehold::store::redis::{RedisClusterOptions, RedisStore};
use leasehold::store::{AuditLimit, LockStore};
use leasehold_store::contract::Fixture;
use leasehold_testkit::deployment::Cluster;
use leasehold_testkit::server::{Program, RedisServer};

/// One cluster for all cases, which would be slow to start for each; a prefix of
/// its own makes each of them a fresh one.
type Shared = LazyLock<Cluster>;
static REDIS: Shared = LazyLock::new(|| start(Program::Default));
static VALKEY: Shared = LazyLock::new(|| start(Program::Valkey));
static OLDEST: Shared = LazyLock::new(|| start(Program::OldestRedis));

fn start(program: Program) -> Cluster {
    let node = RedisServer::builder().program(program);
    Cluster::builder().replicas(0).server(node).start()
}

struct Part {
    cluster: &'static Cluster,
    prefix: String,
}

fn fresh(cluster: &'static Shared) -> Part {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    Part {
        cluster,
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
        let mut options = RedisClusterOptions::from_url(&self.cluster.url()).expect("a good URL");
        options.node.prefix.clone_from(&self.prefix);
        options.node.audit = audit;
        let store = RedisStore::connect_cluster(options).await;
        let store = store.expect("the store opens");
        // With a connection to each node, which would be opened later otherwise:
        // some cases count what is left open.
        store.list("*").await.expect("a list");
        Arc::new(store)
    }
}

impl leasehold_testkit::facade::Fixture for Part {
    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("{}*", self.prefix);
        let channels = |server: &RedisServer| -> usize {
            let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", &ours]);
            channels.len()
        };
        Some(self.cluster.nodes().iter().map(channels).sum())
    }
}

mod redis {
    mod contract {
        leasehold_store::contract!(crate::redis_cluster::fresh(&crate::redis_cluster::REDIS));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::redis_cluster::fresh(&crate::redis_cluster::REDIS));
    }
}

mod valkey {
    mod contract {
        leasehold_store::contract!(crate::redis_cluster::fresh(&crate::redis_cluster::VALKEY));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::redis_cluster::fresh(&crate::redis_cluster::VALKEY));
    }
}

mod oldest {
    mod contract {
        leasehold_store::contract!(crate::redis_cluster::fresh(&crate::redis_cluster::OLDEST));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::redis_cluster::fresh(&crate::redis_cluster::OLDEST));
    }
}
