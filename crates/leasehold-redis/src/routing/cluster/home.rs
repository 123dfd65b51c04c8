//! Where a client listens: on one node, which hears what is published on any.
//!
//! `PUBLISH` reaches all nodes, so any will do. The connection is one of its own:
//! it can be lost and found elsewhere without a step noticing, and a node that is
//! busy with steps of others delays no push. Each home is an epoch; a step carries
//! the one that was there before it was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use leasehold_core::Backoff;
use leasehold_store::{ErrorKind, Listening, Push, PushSink, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::keeper::first_answer;
use super::topology::Address;
use super::{Cluster, FIRST_PAUSE, lock};
use crate::codec::push;
use crate::refusal;

/// How often the home is asked whether it is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How long it may take to say so.
const SILENCE: Duration = Duration::from_secs(2);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The inbox of a client.
pub(super) struct Home {
    channel: String,
    /// Whether anything can be heard, once that is known.
    hears: OnceLock<bool>,
    sink: Mutex<Option<Arc<dyn PushSink>>>,
    place: Mutex<Option<Arc<Place>>>,
    /// Zero while nobody listens, or can.
    epoch: AtomicU64,
    epochs: AtomicU64,
}

/// One node that was chosen, for one epoch.
struct Place {
    node: Address,
    /// Zero until it is subscribed.
    epoch: AtomicU64,
    lost: Notify,
}

impl Home {
    pub(super) fn new(channel: String) -> Self {
        Self {
            channel,
            hears: OnceLock::new(),
            sink: Mutex::default(),
            place: Mutex::default(),
            epoch: AtomicU64::new(0),
            epochs: AtomicU64::new(0),
        }
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Whether anything is heard, as far as is known.
    pub(super) fn hears(&self) -> bool {
        self.hears.get().copied().unwrap_or(true)
    }

    /// That was found out at the first node.
    pub(super) fn decide(&self, hears: bool) {
        self.hears.get_or_init(|| hears);
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Makes every claim ask where it stands, if anybody listens.
    pub(super) fn reset(&self) {
        self.tell(Push::Reset);
    }

    /// The map has changed: a node that is not on it hears nothing.
    pub(super) fn check(&self, cluster: &Cluster) {
        if let Some(place) = &*lock(&self.place)
            && !lock(&cluster.map)
                .topology
                .nodes()
                .any(|node| *node == place.node)
        {
            place.lost.notify_one();
        }
    }

    /// From now on pushes are heard at `place`; not if nobody listens any more.
    fn move_to(&self, place: &Arc<Place>) -> bool {
        let sink = lock(&self.sink);
        if sink.is_none() {
            return false;
        }
        let epoch = self.epochs.fetch_add(1, Ordering::AcqRel) + 1;
        tracing::debug!(node = %place.node, epoch, "listens");
        place.epoch.store(epoch, Ordering::Release);
        *lock(&self.place) = Some(Arc::clone(place));
        self.epoch.store(epoch, Ordering::Release);
        true
    }

    /// Nothing is heard any more.
    fn leave(&self) {
        let mut sink = lock(&self.sink);
        self.epoch.store(0, Ordering::Release);
        *lock(&self.place) = None;
        *sink = None;
    }

    fn tell(&self, push: Push) {
        let sink = lock(&self.sink).clone();
        if let Some(sink) = sink {
            sink.push(push);
        }
    }

    /// Takes the pushes of a connection; called on the connection's own task.
    fn pushed(&self, info: &PushInfo, place: &Place) {
        match info.kind {
            PushKind::Disconnection => place.lost.notify_one(),
            PushKind::Message => {
                let [Value::BulkString(channel), Value::BulkString(message)] = info.data.as_slice()
                else {
                    return;
                };
                let epoch = place.epoch.load(Ordering::Acquire);
                // Not of a home that was left.
                if epoch == self.epoch() && epoch > 0 && channel == self.channel.as_bytes() {
                    push::read(message, epoch).for_each(|push| self.tell(push));
                }
            }
            _ => {}
        }
    }
}

/// Opens the inbox.
pub(super) async fn listen(
    cluster: &Arc<Cluster>,
    sink: Arc<dyn PushSink>,
) -> Result<Ear, StoreError> {
    {
        let mut current = lock(&cluster.home.sink);
        if current.is_some() {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                "the inbox of this store is open already",
            ));
        }
        *current = Some(sink);
    }
    let mut ear = Ear {
        cluster: Arc::clone(cluster),
        task: None,
    };
    if !cluster.home.hears() {
        // Those who wait ask.
        return Ok(ear);
    }
    let (place, connection) = settle(cluster).await?;
    let task = tokio::spawn(stay(Arc::downgrade(cluster), place, connection));
    ear.task = Some(task.abort_handle());
    Ok(ear)
}

/// Listens on one of the primaries, whichever can.
async fn settle(cluster: &Arc<Cluster>) -> Result<(Arc<Place>, MultiplexedConnection), StoreError> {
    let mut nodes = cluster.primaries();
    // Clients spread over the nodes, and go on to the next.
    let turn = cluster.turn.fetch_add(1, Ordering::Relaxed) as u64;
    let name = u64::from_str_radix(cluster.inboxes.0.as_str(), 16).unwrap_or(0);
    if !nodes.is_empty() {
        let first = name.wrapping_add(turn) % nodes.len() as u64;
        nodes.rotate_left(usize::try_from(first).unwrap_or(0));
    }
    let settled = first_answer(nodes, |node| subscribe(cluster, node)).await;
    let (place, connection) = settled.inspect_err(|_| cluster.refresh())?;
    if cluster.home.move_to(&place) {
        Ok((place, connection))
    } else {
        Err(refusal::no_connection(None))
    }
}

async fn subscribe(
    cluster: &Arc<Cluster>,
    node: Address,
) -> Result<(Arc<Place>, MultiplexedConnection), StoreError> {
    let target = cluster.target(&node)?;
    let place = Arc::new(Place {
        node,
        epoch: AtomicU64::new(0),
        lost: Notify::new(),
    });
    let (listener, here) = (Arc::downgrade(cluster), Arc::clone(&place));
    let opened = target
        .connect(move |info: PushInfo| {
            if let Some(cluster) = listener.upgrade() {
                cluster.home.pushed(&info, &here);
            }
            Ok::<(), ()>(())
        })
        .await?;
    let mut connection = opened.connection;
    let subscribed = connection.subscribe(&cluster.home.channel).await;
    subscribed.map_err(refusal::of_connection)?;
    Ok((place, connection))
}

/// Keeps the inbox open: when its home is lost, on another node.
async fn stay(
    cluster: Weak<Cluster>,
    mut place: Arc<Place>,
    mut connection: MultiplexedConnection,
) {
    loop {
        while timeout(LOOK, place.lost.notified()).await.is_err() {
            let ping = redis::cmd("PING");
            let answer = timeout(SILENCE, connection.send_packed_command(&ping)).await;
            if !matches!(answer, Ok(Ok(_))) {
                break;
            }
        }
        drop(connection);
        let Some(lost) = cluster.upgrade() else {
            return;
        };
        tracing::debug!(node = %place.node, "listens no more");
        lost.home.epoch.store(0, Ordering::Release);
        lost.refresh();
        let name = u64::from_str_radix(lost.inboxes.0.as_str(), 16).unwrap_or(0);
        drop(lost);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, name);
        (place, connection) = loop {
            let Some(cluster) = cluster.upgrade() else {
                return;
            };
            match settle(&cluster).await {
                Ok(settled) => {
                    cluster.home.reset();
                    break settled;
                }
                Err(error) => tracing::debug!(%error, "cannot listen"),
            }
            drop(cluster);
            sleep(backoff.pause()).await;
        };
    }
}

/// An open inbox; closed on drop.
pub(super) struct Ear {
    cluster: Arc<Cluster>,
    task: Option<AbortHandle>,
}

impl Listening for Ear {}

impl Drop for Ear {
    fn drop(&mut self) {
        self.cluster.home.leave();
        // With its connection, which is its subscription.
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
