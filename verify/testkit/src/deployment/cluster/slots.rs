//! A slot on its way from one node to another, step by step.

use redis::RedisResult;

use super::Cluster;
use crate::process::PATIENCE;
use crate::server::{ADMIN, ADMIN_PASSWORD, RedisServer};

/// How many keys travel at once.
const BATCH: usize = 100;

/// A slot that has begun to move; [`SlotMove::finish`] completes that.
///
/// Meanwhile the old owner answers for the keys that it still has, and sends clients that ask for
/// others to the new one (`ASK`).
#[derive(Debug)]
#[must_use = "a slot is moved when this is finished"]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl Cluster {
    /// Moves a slot with all its keys to another primary; see [`Cluster::begin_move`].
    ///
    /// # Panics
    ///
    /// As the steps.
    pub async fn move_slot(&self, slot: u16, to: &RedisServer) {
        self.begin_move(slot, to).await.finish().await;
    }

    /// Begins to move a slot from its owner to another primary (`CLUSTER SETSLOT`), as soon as all
    /// nodes that are up agree on who is what. All its keys are still there.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`], when `to` is the owner or no primary, or when one of
    /// the two is down.
    pub async fn begin_move<'a>(&'a self, slot: u16, to: &'a RedisServer) -> SlotMove<'a> {
        let agreed = self.members.until("nodes that agree", || self.agreed());
        agreed.await;
        let from = self.owner_of(slot);
        let number = slot.to_string();
        let set = |node: &RedisServer, what: &str, other: &RedisServer| {
            node.command(&["CLUSTER", "SETSLOT", &number, what, self.id_of(other)]);
        };
        // In this order: whom clients are sent to must be willing.
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        SlotMove {
            cluster: self,
            slot,
            from,
            to,
        }
    }
}

impl SlotMove<'_> {
    /// Moves at most so many keys (`MIGRATE`), and says how many it has moved: 0 when all are.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    pub fn migrate(&self, count: usize) -> usize {
        let (slot, count) = (self.slot.to_string(), count.to_string());
        let seen = ["CLUSTER", "GETKEYSINSLOT", &slot, &count];
        let keys: Vec<Vec<u8>> = self.from.query(&seen);
        if !keys.is_empty() {
            let sent = self.send(&keys);
            sent.unwrap_or_else(|error| panic!("{:?}: {error}", self.from));
        }
        keys.len()
    }

    /// Moves a key, and says whether it was there.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    pub fn migrate_key(&self, key: &str) -> bool {
        let answer = self.send(&[key.as_bytes().to_vec()]);
        answer.unwrap_or_else(|error| panic!("{:?}: {key}: {error}", self.from)) != "NOKEY"
    }

    /// Moves what keys there still are, makes the new owner known to all primaries, and waits until
    /// all nodes that are up agree.
    ///
    /// # Panics
    ///
    /// When a node refuses, or they do not within [`PATIENCE`].
    pub async fn finish(self) {
        while self.migrate(BATCH) > 0 {}
        let (slot, id) = (self.slot.to_string(), self.cluster.id_of(self.to));
        let ends = [self.to.port(), self.from.port()];
        let primaries = self.cluster.primaries().into_iter();
        let others = primaries.filter(|it| !ends.contains(&it.port()));
        // The new owner first: if it died between, the slot would have none.
        for node in [self.to, self.from].into_iter().chain(others) {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", id]);
        }
        let settled = self.cluster.members.until("an owner of a slot", || {
            let views = self.cluster.agreed()?;
            let owner = views[0].owner_of(self.slot);
            let arrived = owner.is_some_and(|owner| owner.id == id);
            let arrived = arrived.then_some(());
            arrived.ok_or_else(|| format!("it is {owner:?}"))
        });
        settled.await;
    }

    fn send(&self, keys: &[Vec<u8>]) -> RedisResult<String> {
        let (port, limit) = (self.to.port(), (PATIENCE / 2).as_millis());
        let to = ["127.0.0.1", &port.to_string(), "", "0", &limit.to_string()];
        let login = ["AUTH2", ADMIN, ADMIN_PASSWORD, "KEYS"];
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg(&to).arg(&login).arg(keys);
        migrate.query(&mut self.from.admin()?)
    }
}
