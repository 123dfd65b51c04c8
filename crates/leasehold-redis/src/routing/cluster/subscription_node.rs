//! The node at which a client subscribes. It receives all messages of the cluster.
//!
//! `PUBLISH` reaches all nodes, so any node can be used. The connection is separate: it can be
//! lost and opened at another node without effect on steps, and a node that is busy with steps
//! delays no push. Each connection is an epoch. An answer has the epoch that was current before
//! its step was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_store::{Listening, PushSink, StoreError, opened};
use tokio::time::sleep;

use super::Cluster;
use super::map::in_turn;
use crate::connection::address::Address;
use crate::connection::endpoint::{Endpoint, Place};
use crate::connection::manager::ConnectionManager;
use crate::connection::multiplexed::Connection;
use crate::std_ext::{BackgroundTask, lock};

/// How often the node is asked whether it is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How long it may take to say so.
const SILENCE: Duration = Duration::from_secs(2);

impl Cluster {
    /// The connection of the inbox, if it is up.
    fn home(&self) -> Option<Arc<Connection>> {
        lock(&self.home).as_ref()?.current()
    }

    /// Zero while the client is not subscribed.
    pub(super) fn epoch(&self) -> u64 {
        self.home().map_or(0, |wire| wire.epoch())
    }

    /// Handles a changed map: a node that is not on it receives nothing.
    pub(super) fn check_home(&self) {
        let on_map = |node: &Address| lock(&self.map).topology.nodes().any(|it| it == node);
        if let Some(wire) = self.home()
            && let Some(named) = &wire.server.named
            && !on_map(&named.primary)
        {
            wire.leave();
        }
    }

    /// Opens the inbox, on one of the primaries, whichever can.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        sink: Arc<dyn PushSink>,
    ) -> Result<Box<dyn Listening>, StoreError> {
        self.inbox.open(sink)?;
        let (cluster, looks_after) = (Arc::clone(self), BackgroundTask::default());
        if !self.inbox.hears() {
            // Those who wait ask.
            return Ok(opened(move || cluster.inbox.close()));
        }
        let (weak, tried) = (Arc::downgrade(self), AtomicBool::new(false));
        let nodes = Place::Any(Box::new(move || {
            let Some(cluster) = weak.upgrade() else {
                return Vec::new();
            };
            if tried.swap(true, Ordering::AcqRel) {
                // None could be reached, or the last is lost.
                cluster.refresh();
            }
            in_turn(cluster.primaries())
        }));
        let any = self.options.at(&Address::new("", 0));
        let endpoint = Endpoint::at(nodes, &any, &self.common);
        // Its inbox is open, so it subscribes whenever it connects.
        let link = self.start(endpoint, false);
        *lock(&self.home) = Some(Arc::clone(&link));
        looks_after.start(look_after(Arc::downgrade(&link)));
        let listening = opened(move || {
            // With its connection, which is its subscription.
            lock(&cluster.home).take();
            cluster.inbox.close();
            drop(looks_after);
        });
        link.connection().await?;
        Ok(listening)
    }
}

/// Leaves a node that has fallen silent: nothing else is asked there.
async fn look_after(link: Weak<ConnectionManager>) {
    loop {
        sleep(LOOK).await;
        let Some(link) = link.upgrade() else { return };
        if let Some(wire) = link.current() {
            wire.check(SILENCE).await;
        }
    }
}
