//! The node at which a client subscribes. It receives all messages of the cluster.
//!
//! `PUBLISH` reaches all nodes, so any node can be used. The connection is separate: it can be
//! lost and opened at another node without effect on steps, and a node that is busy with steps
//! delays no push. Each connection is an epoch. An answer has the epoch that was current before
//! its step was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_store::{ErrorKind, Listening, Push, PushSink, StoreError};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::Cluster;
use super::topology::Address;
use crate::connection::connect::Target;
use crate::connection::inbox::OwnInbox;
use crate::connection::manager::ConnectionManager;
use crate::connection::subscription::Subscription;
use crate::lock::lock;

/// How often the node is asked whether it is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How long it may take to say so.
const SILENCE: Duration = Duration::from_secs(2);

/// The inbox of a client.
pub(super) struct SubscriptionNode {
    pub(super) inbox: Arc<OwnInbox>,
    /// The receiver of pushes, if there is one.
    sink: Mutex<Option<Arc<dyn PushSink>>>,
    /// The connection on which pushes are received.
    link: Mutex<Option<Arc<ConnectionManager>>>,
}

impl SubscriptionNode {
    pub(super) fn new() -> Self {
        Self {
            inbox: Arc::new(OwnInbox::random()),
            sink: Mutex::default(),
            link: Mutex::default(),
        }
    }

    /// Zero while the client is not subscribed.
    pub(super) fn epoch(&self) -> u64 {
        let link = lock(&self.link);
        let wire = link.as_ref().and_then(|link| link.current());
        wire.map_or(0, |wire| wire.epoch())
    }

    /// To the claims of the client, if it is subscribed.
    pub(super) fn push(&self, push: Push) {
        let sink = lock(&self.sink).clone();
        if let Some(sink) = sink {
            sink.push(push);
        }
    }

    /// Handles a changed map: a node that is not on it receives nothing.
    pub(super) fn check(&self, cluster: &Cluster) {
        let link = lock(&self.link).clone();
        let wire = link.and_then(|link| link.current());
        if let Some(wire) = wire
            && let Some(named) = &wire.server.named
            && !lock(&cluster.map)
                .topology
                .nodes()
                .any(|node| (&node.host, node.port) == (&named.primary.0, named.primary.1))
        {
            wire.leave();
        }
    }
}

/// Opens the inbox, on one of the primaries, whichever can.
pub(super) async fn listen(
    cluster: &Arc<Cluster>,
    sink: Arc<dyn PushSink>,
) -> Result<ClusterSubscription, StoreError> {
    let home = &cluster.home;
    {
        let mut current = lock(&home.sink);
        if current.is_some() {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                "the inbox of this store is already open",
            ));
        }
        *current = Some(Arc::clone(&sink));
    }
    let mut ear = ClusterSubscription {
        cluster: Arc::clone(cluster),
        heard: None,
    };
    if !home.inbox.hears() {
        // Those who wait ask.
        return Ok(ear);
    }
    let weak = Arc::downgrade(cluster);
    let (found, lost) = (weak.clone(), weak);
    let tried = AtomicBool::new(false);
    let nodes = move || {
        let Some(cluster) = found.upgrade() else {
            return Vec::new();
        };
        if tried.swap(true, Ordering::AcqRel) {
            // None could be reached, or the last is lost.
            cluster.refresh();
        }
        let nodes = cluster.primaries_in_turn().into_iter();
        nodes.map(|Address { host, port }| (host, port)).collect()
    };
    let observer = move |up: bool| {
        if let (false, Some(cluster)) = (up, lost.upgrade()) {
            cluster.refresh();
        }
    };
    let any = cluster.options.at(&Address::new("", 0));
    let target = Target::any(&any, nodes, &cluster.common);
    let inbox = Arc::clone(&home.inbox);
    let link = ConnectionManager::start_as(inbox, target, Some(Box::new(observer)));
    *lock(&home.link) = Some(Arc::clone(&link));
    let task = tokio::spawn(look_after(Arc::downgrade(&link)));
    ear.heard = Some((task.abort_handle(), link.listen(sink).await?));
    Ok(ear)
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

/// An open inbox; closed on drop.
pub(super) struct ClusterSubscription {
    cluster: Arc<Cluster>,
    heard: Option<(AbortHandle, Subscription)>,
}

impl Listening for ClusterSubscription {}

impl Drop for ClusterSubscription {
    fn drop(&mut self) {
        if let Some((task, _)) = &self.heard {
            task.abort();
        }
        // With its connection, which is its subscription.
        lock(&self.cluster.home.link).take();
        lock(&self.cluster.home.sink).take();
    }
}
