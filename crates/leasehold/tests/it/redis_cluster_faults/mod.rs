//! Faults of a Redis Cluster: slots move, nodes die, subscription nodes are lost.
#![cfg(feature = "redis")]

mod failing;
mod joining;
mod moving;

use crate::redis_support::*;
use leasehold::store::AllAnswer;
use leasehold::store::redis::RedisClusterOptions;
use leasehold_testkit::deployment::{Cluster, SlotMove, Takeover};
use tokio::sync::watch;

const TICK: Duration = Duration::from_millis(2);
const KEY: &str = "the-key";
/// How many wait in line.
const QUEUED: usize = 4;

fn options(cluster: &Cluster) -> RedisClusterOptions {
    RedisClusterOptions::from_url(&cluster.url()).unwrap()
}

async fn store(cluster: &Cluster) -> RedisStore {
    RedisStore::connect_cluster(options(cluster)).await.unwrap()
}

async fn client(cluster: &Cluster, ttl: Duration) -> Client {
    let settings = Settings::default().with_ttl(ttl).with_waiter_ttl(ttl);
    client_with(&cluster.url(), settings).await
}

/// The slot of a lock.
fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    cluster.slot_of(&format!("leasehold:lock:{name}"))
}

/// Begins to move a slot to another primary.
async fn begin_move(cluster: &Cluster, slot: u16) -> SlotMove<'_> {
    let owner = cluster.owner_of(slot).port();
    let mut primaries = cluster.primaries().into_iter();
    let another = primaries.find(|it| it.port() != owner).unwrap();
    cluster.begin_move(slot, another).await
}

/// Moves the record of a lock to the node that gets its slot.
fn migrate(moving: &SlotMove<'_>, name: &str) {
    assert!(moving.migrate_key(&format!("leasehold:lock:{name}")));
}

// ---- slots on the move ----
