//! The contract of a store and the guarantees of the library, on the classic layout: with
//! scripts, and with transactions if the user may not run scripts.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{ClassicStore, RedisOptions, RedlockOptions, RedlockStore};
use leasehold_store::contract::Fixture;
use leasehold_testkit::facade::cancellations;
use leasehold_testkit::server::{Program, RedisServer};

/// What a user needs who may not run scripts, and no more.
const NO_SCRIPTS: &str = "on >secret resetchannels ~app:* -@all +watch +unwatch +multi +exec +type +get +set \
    +pttl +pexpire +del +scan +info +ping";
/// What a user needs who may.
const SCRIPTS: &str = "on >secret resetchannels ~app:* -@all +evalsha +script|load +type +get +set +pttl \
    +pexpire +del +scan +info +ping";

/// Three independent servers for all cases, the first of which is the one where there is one;
/// a prefix of its own makes each case a fresh one.
type Shared = LazyLock<[RedisServer; 3]>;
static REDIS: Shared = LazyLock::new(|| start(&Program::Default));
static VALKEY: Shared = LazyLock::new(|| start(&Program::Valkey));
static OLDEST: Shared = LazyLock::new(|| start(&Program::OldestRedis));

fn start(program: &Program) -> [RedisServer; 3] {
    let server = RedisServer::builder().program(program.clone());
    let server = server.user("scripts", SCRIPTS).user("plain", NO_SCRIPTS);
    [(); 3].map(|()| server.clone().start())
}

fn prefix() -> String {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    format!("app:case-{}:", CASES.fetch_add(1, Ordering::Relaxed))
}

/// A server on which everybody is a user with the least rights.
struct Classic {
    server: &'static RedisServer,
    user: &'static str,
    prefix: String,
}

#[async_trait]
impl Fixture for Classic {
    async fn client(&self) -> Arc<dyn LockStore> {
        let url = self.server.url_as(self.user, "secret");
        let url = format!("{url}?layout=classic&prefix={}", self.prefix);
        let options = RedisOptions::from_url(&url).expect("a good URL");
        let store = ClassicStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }
}

impl leasehold_testkit::facade::Fixture for Classic {
    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("*{}*", self.prefix);
        let channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS", &ours]);
        Some(channels.len())
    }
}

/// Three independent servers, the same user on each.
struct Redlock {
    servers: &'static [RedisServer; 3],
    user: &'static str,
    prefix: String,
}

#[async_trait]
impl Fixture for Redlock {
    async fn client(&self) -> Arc<dyn LockStore> {
        let members = self.servers.each_ref().map(|server| {
            let (user, port) = (self.user, server.port());
            format!("{user}:secret@127.0.0.1:{port}")
        });
        let (members, prefix) = (members.join(","), &self.prefix);
        let url = format!("redlock://{members}/?layout=classic&prefix={prefix}");
        let options = RedlockOptions::from_url(&url).expect("a good URL");
        let store = RedlockStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }

    fn short(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl leasehold_testkit::facade::Fixture for Redlock {
    fn cancellations(&self) -> usize {
        cancellations() / 5
    }
}

fn one(servers: &'static Shared, user: &'static str) -> Classic {
    Classic {
        server: &servers[0],
        user,
        prefix: prefix(),
    }
}

fn three(servers: &'static Shared, user: &'static str) -> Redlock {
    Redlock {
        servers,
        user,
        prefix: prefix(),
    }
}

mod scripts {
    mod contract {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::REDIS,
            "scripts"
        ));
    }

    mod facade {
        leasehold_testkit::facade!(crate::classic_store::one(
            &crate::classic_store::REDIS,
            "scripts"
        ));
        leasehold_testkit::facade!(@limits crate::classic_store::one(&crate::classic_store::REDIS, "scripts"));
    }
}

mod transactions {
    mod contract {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::REDIS,
            "plain"
        ));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::classic_store::one(&crate::classic_store::REDIS, "plain"));
    }
}

mod valkey {
    mod scripts {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::VALKEY,
            "scripts"
        ));
    }

    mod transactions {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::VALKEY,
            "plain"
        ));
    }
}

mod oldest {
    mod scripts {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::OLDEST,
            "scripts"
        ));
    }

    mod transactions {
        leasehold_store::contract!(crate::classic_store::one(
            &crate::classic_store::OLDEST,
            "plain"
        ));
    }
}

mod redlock {
    mod scripts {
        mod contract {
            leasehold_store::contract!(crate::classic_store::three(
                &crate::classic_store::REDIS,
                "scripts"
            ));
        }

        mod facade {
            leasehold_testkit::facade!(crate::classic_store::three(
                &crate::classic_store::REDIS,
                "scripts"
            ));
        }
    }

    mod transactions {
        leasehold_store::contract!(crate::classic_store::three(
            &crate::classic_store::REDIS,
            "plain"
        ));
    }

    mod oldest {
        leasehold_store::contract!(crate::classic_store::three(
            &crate::classic_store::OLDEST,
            "scripts"
        ));
    }
}
