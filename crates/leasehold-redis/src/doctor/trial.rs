//! The trial on Redis, which leaves nothing there.

use std::time::Duration;

use leasehold_core::Key;
use leasehold_store::fork::Lazy;
use leasehold_store::trial::{self, TTL, Trial};
use leasehold_store::{LockStore, StoreError};

use crate::classic::ClassicStore;
use crate::codec::script::Script;
use crate::queue::RedisStore;
use crate::quorum::RedlockStore;

/// Removes a key, by what the rights of every user here allow.
static FORGET: Lazy<Script> = Lazy::new(|| Script::new("return redis.call('PEXPIRE', KEYS[1], 0)"));

/// A store on which a trial leaves nothing.
pub(super) trait OnTrial: LockStore {
    /// Removes the record of the trial's key. Where that fails, it expires soon.
    async fn forget(&self, key: &Key);
}

impl OnTrial for RedisStore {
    async fn forget(&self, key: &Key) {
        self.run_on(&FORGET, key).await.ok();
    }
}

impl OnTrial for RedlockStore {
    async fn forget(&self, key: &Key) {
        self.run_on_each(&FORGET, key).await;
    }
}

impl OnTrial for ClassicStore {
    /// A lock that was released is not there any more.
    async fn forget(&self, _key: &Key) {}
}

/// Uses a lock of the store, if it was opened.
/// Its TTL is `longest` at most.
pub(super) async fn run<S: OnTrial>(
    store: Result<S, StoreError>,
    longest: Option<Duration>,
) -> Trial {
    let ttl = longest.map_or(TTL, |longest| longest.min(TTL));
    match (store, trial::key()) {
        (Ok(store), Some(key)) => {
            let trial = trial::take(&store, &key, ttl).await;
            store.forget(&key).await;
            trial
        }
        (Ok(_), None) => Trial::default(),
        (Err(error), _) => Trial::failed("open the store", error),
    }
}
