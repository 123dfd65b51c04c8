//! The contract of a store and the guarantees of the library, on one Redis server.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold::store::{AuditLimit, LockStore};
use leasehold_store::contract::Fixture;
use leasehold_testkit::server::{Program, RedisServer};

/// One server for all cases; a prefix of its own makes each of them a fresh one.
type Shared = LazyLock<RedisServer>;
static REDIS: Shared = LazyLock::new(|| start(Program::Default));
static VALKEY: Shared = LazyLock::new(|| start(Program::Valkey));
static OLDEST: Shared = LazyLock::new(|| start(Program::OldestRedis));

fn start(program: Program) -> RedisServer {
    RedisServer::builder()
        .program(program)
        .user("bob", "on >secret ~* resetchannels +@all")
        .start()
}

struct Part {
    server: &'static RedisServer,
    url: String,
    prefix: String,
}

fn part(server: &'static Shared, url: String) -> Part {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    Part {
        server,
        url,
        prefix: format!("case-{case}:"),
    }
}

fn fresh(server: &'static Shared) -> Part {
    part(server, server.url())
}

/// As a user without any channel, who neither hears nor tells.
fn deaf(server: &'static Shared) -> Part {
    part(server, server.url_as("bob", "secret"))
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
        let mut options = RedisOptions::from_url(&self.url).expect("a good URL");
        options.audit = audit;
        let store = RedisStore::connect(options.prefix(&self.prefix)).await;
        Arc::new(store.expect("the store opens"))
    }
}

impl leasehold_testkit::facade::Fixture for Part {
    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("{}*", self.prefix);
        let channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS", &ours]);
        Some(channels.len())
    }
}

mod contract {
    leasehold_store::contract!(super::fresh(&super::REDIS));
}

mod facade {
    leasehold_testkit::facade!(super::fresh(&super::REDIS));
}

mod deaf {
    leasehold_store::contract!(super::deaf(&super::REDIS));
    leasehold_testkit::facade!(@quick super::deaf(&super::REDIS));
}

mod valkey {

    mod contract {
        leasehold_store::contract!(crate::redis_store::fresh(&crate::redis_store::VALKEY));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::redis_store::fresh(&crate::redis_store::VALKEY));
    }

    mod deaf {
        leasehold_store::contract!(crate::redis_store::deaf(&crate::redis_store::VALKEY));
        leasehold_testkit::facade!(@quick crate::redis_store::deaf(&crate::redis_store::VALKEY));
    }
}

mod oldest {

    mod contract {
        leasehold_store::contract!(crate::redis_store::fresh(&crate::redis_store::OLDEST));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::redis_store::fresh(&crate::redis_store::OLDEST));
    }

    mod deaf {
        leasehold_store::contract!(crate::redis_store::deaf(&crate::redis_store::OLDEST));
        leasehold_testkit::facade!(@quick crate::redis_store::deaf(&crate::redis_store::OLDEST));
    }
}
