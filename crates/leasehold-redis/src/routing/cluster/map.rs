//! The current map from slots to nodes, and the connections to the nodes.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_store::Push;
use leasehold_store::random::random_u64;

use super::Cluster;
use super::topology::Topology;
use crate::connection::address::Address;
use crate::connection::endpoint::Endpoint;
use crate::connection::manager::{ConnectionManager, OnLoss};
use crate::options::RedisOptions;
use crate::std_ext::lock;

#[derive(Default)]
pub(super) struct Map {
    pub(super) topology: Topology,
    /// Who had slots when the whole topology was read last.
    pub(super) primaries: Vec<Address>,
    pub(super) links: HashMap<Address, Arc<ConnectionManager>>,
    /// Who was said to have a slot that we thought elsewhere: it knows best.
    pub(super) newest: Option<Address>,
}

/// These nodes, any of them first: clients begin at different ones.
pub(super) fn in_turn(mut nodes: Vec<Address>) -> Vec<Address> {
    let turn = usize::try_from(random_u64() >> 32).unwrap_or(0);
    let first = turn.checked_rem(nodes.len()).unwrap_or(0);
    nodes.rotate_left(first);
    nodes
}

impl Cluster {
    pub(super) fn owner(&self, slot: u16) -> Option<Address> {
        lock(&self.map).topology.owner(slot).cloned()
    }

    pub(super) fn primaries(&self) -> Vec<Address> {
        lock(&self.map).topology.primaries().to_vec()
    }

    /// How to reach each primary.
    pub(crate) fn nodes(&self) -> Vec<RedisOptions> {
        let primaries = self.primaries();
        primaries.iter().map(|node| self.options.at(node)).collect()
    }

    /// The connections to all primaries.
    pub(crate) fn links(self: &Arc<Self>) -> Vec<Arc<ConnectionManager>> {
        let primaries = self.primaries();
        primaries.iter().map(|node| self.link(node)).collect()
    }

    /// How often the map has changed.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// The connection to a node, which may be down or still being opened.
    pub(super) fn link(self: &Arc<Self>, address: &Address) -> Arc<ConnectionManager> {
        let mut map = lock(&self.map);
        if let Some(link) = map.links.get(address) {
            return Arc::clone(link);
        }
        let link = self.start(self.endpoint(address), false);
        map.links.insert(address.clone(), Arc::clone(&link));
        link
    }

    /// Connects to a node. A connection which comes back, or which is `new` with what its node took
    /// over from another, makes every claim ask where it stands. One that is lost makes us look at
    /// the map again.
    pub(super) fn start(self: &Arc<Self>, endpoint: Endpoint, new: bool) -> Arc<ConnectionManager> {
        let (inbox, cluster) = (Arc::clone(&self.inbox), Arc::downgrade(self));
        let on_loss: OnLoss = Box::new(move || cluster.upgrade().iter().for_each(Self::refresh));
        ConnectionManager::start_as(inbox, endpoint, new, Some(on_loss))
    }

    /// A node says that `slot` has moved.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: Address) {
        let mut map = lock(&self.map);
        map.newest = Some(to.clone());
        map.topology.moved(slot, to);
        drop(map);
        self.changes.send_modify(|changes| *changes += 1);
        self.refresh();
    }

    /// Takes over what a node says of the whole cluster.
    pub(super) fn install(self: &Arc<Self>, topology: Topology) {
        let mut promoted = Vec::new();
        let mut map = lock(&self.map);
        if !map.primaries.is_empty() {
            let new = topology.primaries().iter();
            promoted.extend(new.filter(|node| !map.primaries.contains(node)).cloned());
        }
        map.primaries = topology.primaries().to_vec();
        map.newest = None;
        // Those of other nodes are for slots on their way, as long as they last.
        map.links
            .retain(|node, link| link.is_up() || topology.primaries().contains(node));
        let changed = map.topology != topology;
        map.topology = topology;
        drop(map);
        for node in promoted {
            tracing::debug!(%node, "has slots now");
            // It may have taken over from another, and not know all that one knew.
            let mut map = lock(&self.map);
            if map.links.get(&node).is_some_and(|link| link.is_up()) {
                drop(map);
                self.inbox.push(Push::Reset);
            } else {
                let link = self.start(self.endpoint(&node), true);
                map.links.insert(node, link);
            }
        }
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        self.check_home();
    }
}
