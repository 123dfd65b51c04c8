//! The classic layout keeps the contract of a store, as far as a string with an id can,
//! and users may rely on it: with scripts, and with transactions where the user may not
//! run any.
#![allow(clippy::expect_used, reason = "a fixture fails the test that uses it")]
#![cfg(feature = "redis")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::store::LockStore;
use leasehold::store::redis::{ClassicStore, RedisOptions, RedlockOptions, RedlockStore};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::server::{Program, RedisServer};

/// What a user needs who may not run scripts, and no more.
const NO_SCRIPTS: &str = "resetchannels ~app:* -@all +watch +unwatch +multi +exec +type +get +set \
    +pttl +pexpire +del +scan +info +ping";
/// What a user needs who may.
const SCRIPTS: &str = "resetchannels ~app:* -@all +evalsha +script|load +type +get +set +pttl \
    +pexpire +del +scan +info +ping";

/// A server on which everybody is the user with the least rights.
struct Classic(RedisServer);

#[async_trait]
impl Fixture for Classic {
    async fn client(&self) -> Arc<dyn LockStore> {
        let url = self.0.url_as("least", "secret") + "?layout=classic&prefix=app:";
        let options = RedisOptions::from_url(&url).expect("a good URL");
        let store = ClassicStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }

    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.0.query(&["PUBSUB", "CHANNELS"]);
        Some(channels.len())
    }
}

/// Three independent servers, the same user on each.
struct Redlock([RedisServer; 3]);

#[async_trait]
impl Fixture for Redlock {
    async fn client(&self) -> Arc<dyn LockStore> {
        let members = self.0.each_ref();
        let members = members.map(|server| format!("least:secret@127.0.0.1:{}", server.port()));
        let url = format!(
            "redlock://{}/?layout=classic&prefix=app:",
            members.join(",")
        );
        let options = RedlockOptions::from_url(&url).expect("a good URL");
        let store = RedlockStore::connect(options).await;
        Arc::new(store.expect("the store opens"))
    }

    fn cancellations(&self) -> usize {
        2_000
    }
}

fn three(program: &Program, rules: &str) -> Redlock {
    Redlock([(); 3].map(|()| of(program.clone(), rules).0))
}

fn of(program: Program, rules: &str) -> Classic {
    let server = RedisServer::builder().program(program);
    let rules = format!("on >secret {rules}");
    Classic(server.user("least", &rules).start())
}

mod scripts {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::Default, crate::SCRIPTS));
    }

    mod facade {
        leasehold_testkit::facade!(crate::of(crate::Program::Default, crate::SCRIPTS));
    }
}

mod transactions {
    mod contract {
        leasehold_testkit::conformance!(crate::of(crate::Program::Default, crate::NO_SCRIPTS));
    }

    mod facade {
        leasehold_testkit::facade!(@quick crate::of(crate::Program::Default, crate::NO_SCRIPTS));
    }
}

mod valkey {
    mod scripts {
        leasehold_testkit::conformance!(crate::of(crate::Program::Valkey, crate::SCRIPTS));
    }

    mod transactions {
        leasehold_testkit::conformance!(crate::of(crate::Program::Valkey, crate::NO_SCRIPTS));
    }
}

mod oldest {
    mod scripts {
        leasehold_testkit::conformance!(crate::of(crate::Program::OldestRedis, crate::SCRIPTS));
    }

    mod transactions {
        leasehold_testkit::conformance!(crate::of(crate::Program::OldestRedis, crate::NO_SCRIPTS));
    }
}

mod redlock {
    mod scripts {
        mod contract {
            leasehold_testkit::conformance!(crate::three(&crate::Program::Default, crate::SCRIPTS));
        }

        mod facade {
            leasehold_testkit::facade!(crate::three(&crate::Program::Default, crate::SCRIPTS));
        }
    }

    mod transactions {
        leasehold_testkit::conformance!(crate::three(&crate::Program::Default, crate::NO_SCRIPTS));
    }

    mod oldest {
        leasehold_testkit::conformance!(crate::three(&crate::Program::OldestRedis, crate::SCRIPTS));
    }
}
