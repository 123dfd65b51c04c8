//! The trial on Redis, which leaves nothing there.

use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::fork::Lazy;
use leasehold_store::trial::{self, TTL, Trial};

use crate::classic::ClassicStore;
use crate::codec::script::Script;
use crate::queue::RedisStore;
use crate::quorum::RedlockStore;
use crate::routing::Route;

/// Removes a key, by what the rights of every user here allow. Where that fails, it expires soon.
static FORGET: Lazy<Script> = Lazy::new(|| Script::new("return redis.call('PEXPIRE', KEYS[1], 0)"));

const OPEN: &str = "open the store";

/// Uses a lock of the store that is reached so, if it was reached.
pub(super) async fn run(route: Result<Route, StoreError>) -> Trial {
    match (route, trial::key()) {
        // A lock that was released is not there any more.
        (Ok(route), Some(key)) if route.options().is_classic() => {
            trial::take(&ClassicStore::by(route), &key, TTL).await
        }
        (Ok(route), Some(key)) => {
            let quarantine = route.options().restart.quarantine();
            let ttl = quarantine.map_or(TTL, |it| it.max_ttl.min(TTL));
            let store = RedisStore::by(route);
            let trial = trial::take(&store, &key, ttl).await;
            store.run_on(&FORGET, &key).await.ok();
            trial
        }
        (Ok(_), None) => Trial::default(),
        (Err(error), _) => Trial::failed(OPEN, error),
    }
}

/// The same on a set of servers.
pub(super) async fn on_set(store: Result<RedlockStore, StoreError>, longest: Duration) -> Trial {
    match (store, trial::key()) {
        (Ok(store), Some(key)) => {
            let trial = trial::take(&store, &key, longest.min(TTL)).await;
            store.run_on_each(&FORGET, &key).await;
            trial
        }
        (Ok(_), None) => Trial::default(),
        (Err(error), _) => Trial::failed(OPEN, error),
    }
}
