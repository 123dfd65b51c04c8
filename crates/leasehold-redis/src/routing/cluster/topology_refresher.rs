//! Refreshes the topology of a cluster in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::Backoff;
use leasehold_store::StoreError;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Cluster;
use super::map::in_turn;
use super::topology::Topology;
use crate::codec::script::{self, Request};
use crate::connection::address::Address;
use crate::connection::dial::first_answer;
use crate::connection::manager::ConnectionManager;
use crate::connection::step::Delivery;
use crate::errors;
use crate::std_ext::lock;

/// How often to look when there is no reason to.
const FROM_TIME_TO_TIME: Duration = Duration::from_secs(30);

/// The shortest pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest while a node is missing.
const TROUBLED: Duration = Duration::from_millis(500);

impl Cluster {
    /// The map may be out of date: sees that it is looked after soon.
    pub(super) fn refresh(self: &Arc<Self>) {
        self.refresh_from_time_to_time();
        self.stale.notify_one();
    }

    /// Starts the task, also if it ended with its runtime.
    pub(super) fn refresh_from_time_to_time(self: &Arc<Self>) {
        self.keeper
            .ensure(keep(Arc::downgrade(self), Arc::clone(&self.stale)));
    }

    /// Asks the seeds for the topology, when nothing is known yet.
    pub(super) async fn find_nodes(self: &Arc<Self>) -> Result<(), StoreError> {
        let seeds = self.options.seeds().collect();
        let found = first_answer(seeds, |seed| async move {
            let endpoint = self.endpoint(&seed).hearing(&self.inbox.channel);
            let link = self.start(endpoint, false);
            link.first_try().await?;
            let hears = link.connection().await?.server.rights.push();
            Ok((self.ask(&link, &seed).await?, seed, link, hears))
        });
        let (topology, seed, link, hears) = found.await?;
        self.inbox.decide(hears);
        if topology.primaries().contains(&seed) {
            lock(&self.map).links.insert(seed, link);
        }
        self.install(topology);
        Ok(())
    }

    /// Asks one node after the other until one answers.
    async fn look_again(self: &Arc<Self>) -> Result<(), StoreError> {
        let topology = first_answer(self.whom_to_ask(), |node| async move {
            let link = self.link(&node);
            self.ask(&link, &node).await
        });
        self.install(topology.await?);
        Ok(())
    }

    /// Those who know best, then those who are there, then all others.
    fn whom_to_ask(&self) -> Vec<Address> {
        let map = lock(&self.map);
        let is_up = |node: &Address| map.links.get(node).is_some_and(|link| link.is_up());
        let known = in_turn(map.topology.nodes().cloned().collect());
        let (up, down): (Vec<_>, Vec<_>) = known.into_iter().partition(is_up);
        let mut nodes: Vec<_> = map.newest.iter().cloned().collect();
        for node in up.into_iter().chain(down).chain(self.options.seeds()) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    async fn ask(
        &self,
        link: &Arc<ConnectionManager>,
        node: &Address,
    ) -> Result<Topology, StoreError> {
        let slots = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let (wire, slots) = (link.connection().await?, Request::Plain(&slots));
        let answer = wire.run(Delivery::Plain, &slots).await?.value;
        if let Value::ServerError(error) = &answer {
            return Err(errors::of_topology(error));
        }
        match Topology::read(&answer, node) {
            Some(topology) if topology.primaries().is_empty() => Err(errors::unavailable(format!(
                "{node} knows no node that serves slots"
            ))
            .with_hint("check that the cluster is created; see redis-cli --cluster create")),
            Some(topology) => Ok(topology),
            None => Err(script::unreadable(&answer)),
        }
    }

    /// Whether a node that has slots cannot be reached.
    fn misses_a_node(&self) -> bool {
        let map = lock(&self.map);
        let is_down = |node: &Address| map.links.get(node).is_some_and(|link| !link.is_up());
        map.topology.primaries().iter().any(is_down)
    }
}

async fn keep(cluster: Weak<Cluster>, stale: Arc<Notify>) {
    let mut backoff = Backoff::new(PAUSE, TROUBLED, 0);
    let mut wait = FROM_TIME_TO_TIME;
    loop {
        // Out of time is as good a reason as any.
        let _ = timeout(wait, stale.notified()).await;
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        let looked = cluster.look_again().await;
        if let Err(error) = &looked {
            tracing::debug!(%error, "cannot read the topology of the cluster");
        }
        wait = if looked.is_err() || cluster.misses_a_node() {
            backoff.pause()
        } else {
            backoff.reset();
            FROM_TIME_TO_TIME
        };
        drop(cluster);
        // Many may find out at the same time.
        sleep(PAUSE).await;
    }
}
