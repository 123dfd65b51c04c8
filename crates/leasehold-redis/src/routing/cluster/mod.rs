//! Redis Cluster (`redis-cluster://`): many primaries, each with some of the keys.
//!
//! Each key belongs to one slot, and each slot to one node. A table has this topology
//! (`topology`), and a task refreshes it (`topology_refresher`). Each node has one connection
//! (`ConnectionManager`), opened when it is first needed. A step goes to the node of its key. If
//! the node answers with a redirection (`redirect`), nothing was carried out, and the same step
//! is sent to the other node. A step without an answer is `Unavailable`, as everywhere.
//!
//! The cluster forwards pushes, so the client subscribes at one node (`subscription_node`).

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod map;
mod options;
mod redirect;
mod subscription_node;
mod topology;
mod topology_refresher;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::Backoff;
use leasehold_store::StoreError;
use leasehold_store::sync::{OnDrop, timeout};
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use self::map::Map;
pub use self::options::RedisClusterOptions;
use self::redirect::Redirect;
use crate::codec::script::Request;
use crate::codec::slots;
use crate::connection::address::Address;
use crate::connection::endpoint::{Endpoint, Place};
use crate::connection::inbox::OwnInbox;
use crate::connection::manager::ConnectionManager;
use crate::connection::multiplexed::Connection;
use crate::connection::step::{Delivery, ScriptAnswer};
use crate::connection::target::{self, Common};
use crate::errors;
use crate::std_ext::{BackgroundTask, lock};

/// The pauses before a node that cannot serve now is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// An answer that takes longer makes us look whether the map is still true.
const LONG: Duration = Duration::from_millis(500);

/// So many nodes in a row may send us on at once; more do not agree yet on who
/// has the slot.
const HOPS: u32 = 3;

const UNANSWERED: &str = "the cluster did not answer in time; the outcome is unknown";

/// What a store on a cluster and its tasks share.
pub(crate) struct Cluster {
    pub(crate) options: RedisClusterOptions,
    /// The URL, without the password.
    pub(crate) redacted: String,
    pub(crate) inbox: Arc<OwnInbox>,
    /// The connection on which pushes are received.
    home: Mutex<Option<Arc<ConnectionManager>>>,
    common: Arc<Common>,
    map: Mutex<Map>,
    /// Counts what changes on the map.
    changes: watch::Sender<u64>,
    /// The map may be out of date.
    stale: Arc<Notify>,
    keeper: BackgroundTask,
}

impl Cluster {
    /// Asks the seeds for the others. The options were checked.
    pub(crate) async fn open(options: RedisClusterOptions) -> Result<Arc<Self>, StoreError> {
        options
            .seeds()
            .try_for_each(|seed| target::check(&options.at(&seed)))?;
        let cluster = Arc::new(Self {
            redacted: options.redacted_url(),
            inbox: Arc::new(OwnInbox::random(&options.node.prefix)),
            home: Mutex::default(),
            options,
            common: Arc::default(),
            map: Mutex::default(),
            changes: watch::Sender::new(0),
            stale: Arc::default(),
            keeper: BackgroundTask::default(),
        });
        cluster.find_nodes().await?;
        cluster.refresh_from_time_to_time();
        Ok(cluster)
    }

    /// A node, and how to connect to it.
    fn endpoint(&self, node: &Address) -> Endpoint {
        let mut endpoint = Endpoint::at(Place::Fixed, &self.options.at(node), &self.common);
        // Whether it says so or not.
        endpoint.of_cluster = true;
        endpoint
    }

    // ---- a step ----

    /// Runs a script at the node of its keys, which all lie in one slot. With several keys, `TRYAGAIN` is an answer.
    pub(crate) async fn run(
        self: &Arc<Self>,
        request: &Request<'_>,
    ) -> Result<ScriptAnswer, StoreError> {
        let slot = slots::common_slot(request.keys()).unwrap_or_default();
        let limit = self.options.node.response_timeout;
        let mut why = errors::silent(limit);
        // Without an answer, also if nobody waits for it any more, the map may be wrong.
        let unsettled = OnDrop::new(|| self.refresh());
        let Ok(answer) = timeout(limit, self.follow(slot, request, &mut why)).await else {
            return Err(why);
        };
        if answer.is_ok() {
            unsettled.cancel();
        }
        answer
    }

    async fn follow(
        self: &Arc<Self>,
        slot: u16,
        request: &Request<'_>,
        why: &mut StoreError,
    ) -> Result<ScriptAnswer, StoreError> {
        // The node to which the slot is on its way, if one was named.
        let (mut asking, mut unlogged, mut hops) = (None, None, 0);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, u64::from(slot));
        loop {
            let mut changes = self.changes.subscribe();
            let (address, delivery) = match asking.take() {
                None => (self.owner(slot), Delivery::Plain),
                node => (node, Delivery::Asking),
            };
            let Some(address) = address else {
                *why = not_served(&format!("no node serves slot {slot}"));
                self.refresh();
                // Somebody may have it when this is over.
                let _ = timeout(backoff.pause(), changes.changed()).await;
                continue;
            };
            let Some(connection) = self.reach(&address, &mut changes, why).await? else {
                continue;
            };
            *why = errors::unavailable(UNANSWERED);
            // Before sending: what is sent before the inbox is open may go without pushes.
            let epoch = self.epoch();
            let asked = connection.run(delivery, unlogged.as_ref().unwrap_or(request));
            let asked = self.unless_replaced(&address, delivery, asked);
            let mut answered = asked.await.unwrap_or_else(|| Err(why.clone()))?;
            answered.epoch = epoch;
            let Value::ServerError(said) = &answered.value else {
                return Ok(answered);
            };
            let Some(redirect) = Redirect::of(said, &address) else {
                return Ok(answered);
            };
            tracing::debug!(slot, %address, answer = said.code(), "sent on");
            hops += 1;
            match redirect {
                Redirect::Moved(slot, node) => self.moved(slot, node),
                Redirect::Ask(node) => asking = Some(node),
                Redirect::Torn if request.keys().nth(1).is_some() => return Ok(answered),
                // The audit log of a slot is a key of its own, and lies on the other node.
                Redirect::Torn => unlogged = request.without_log(),
                Redirect::Elsewhere => {
                    hops += HOPS;
                    *why = not_served(said.details().unwrap_or_else(|| said.code()));
                    self.refresh();
                }
            }
            if hops > HOPS {
                sleep(backoff.pause()).await;
            }
        }
    }

    /// The connection to a node; `None` where the map has changed: another may have the
    /// slot now.
    async fn reach(
        self: &Arc<Self>,
        node: &Address,
        changes: &mut watch::Receiver<u64>,
        why: &mut StoreError,
    ) -> Result<Option<Arc<Connection>>, StoreError> {
        let link = self.link(node);
        if !link.is_up() {
            *why = link.failure();
        }
        tokio::select! {
            connection = link.connection() => connection.map(Some),
            _ = changes.changed() => Ok(None),
        }
    }

    /// Waits for the answer of a node, and looks whether the map is still true while that
    /// takes long: a node that stands still does not say that another has its slots.
    ///
    /// `None`: it has no slots any more. It may have fallen silent for good; whether it
    /// carried out what it was asked is unknown, and who took over may be asked.
    async fn unless_replaced<T>(
        self: &Arc<Self>,
        node: &Address,
        delivery: Delivery<'_>,
        asked: impl Future<Output = T>,
    ) -> Option<T> {
        let mut changes = self.changes.subscribe();
        let replaced = async {
            while lock(&self.map).topology.primaries().contains(node) {
                // The count lives as long as we do.
                let _ = changes.changed().await;
            }
        };
        let wonder = async {
            loop {
                sleep(LONG).await;
                self.refresh();
            }
        };
        tokio::select! {
            biased;
            answer = asked => Some(answer),
            () = replaced, if delivery == Delivery::Plain => None,
            () = wonder => None,
        }
    }
}

fn not_served(reason: &str) -> StoreError {
    errors::unavailable(format!("the cluster cannot serve this key now: {reason}"))
        .with_hint("check CLUSTER INFO on one of its nodes; retrying is safe")
}
