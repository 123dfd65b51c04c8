//! A Redis Cluster.

mod builder;
mod slots;
mod view;

use std::ops::Deref;
use std::time::Duration;

use tokio::time::Instant;

use super::members::Members;
use super::{DeploymentBuilder, replication};
use crate::server::RedisServer;
pub use slots::SlotMove;
use view::{Known, View};

/// A Cluster: primaries, each with slots of its own, and their replicas.
///
/// ```no_run
/// # async fn example() {
/// use leasehold_testkit::deployment::{Cluster, Takeover};
///
/// let cluster = Cluster::start();
/// println!("{}", cluster.url()); // redis-cluster://127.0.0.1:…,127.0.0.1:…/
/// let slot = cluster.slot_of("k");
/// let owner = cluster.owner_of(slot);
/// let other = cluster.primaries().into_iter().find(|it| it.port() != owner.port());
/// cluster.move_slot(slot, other.unwrap()).await;
///
/// cluster.owner_of(slot).kill();
/// cluster.wait_for_another_owner(slot, other.unwrap()).await;
/// # }
/// ```
///
/// Nodes that are cut off are not asked when all have to agree.
///
/// A primary that was killed is replaced in two to four times the [node
/// time-out](DeploymentBuilder::down_after). Replicas stay with their primary (Redis would move them
/// to one that has lost its own).
#[derive(Debug)]
pub struct Cluster {
    members: Members,
    /// Their names in the Cluster, in the same order.
    ids: Vec<String>,
    password: Option<String>,
}

/// After how long a take-over that was ordered is ordered again: a node gives up after five seconds.
const AGAIN: Duration = Duration::from_secs(6);

/// How a replica takes the place of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// In agreement with the primary, which stops writing until the replica has everything
    /// (`CLUSTER FAILOVER`).
    Agreed,
    /// Without asking anybody (`TAKEOVER`).
    Unasked,
}

impl Cluster {
    /// Starts six nodes with the defaults of [`Cluster::builder`].
    ///
    /// # Panics
    ///
    /// When a node does not start, or they do not become a Cluster within
    /// [`PATIENCE`](crate::process::PATIENCE).
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a Cluster: by default of three primaries, with one replica each.
    pub fn builder() -> DeploymentBuilder<Self> {
        DeploymentBuilder::new(1, 1, Duration::from_millis(1_500))
    }

    /// The URL with all nodes, and the password if there is one:
    /// `redis-cluster://[:password@]127.0.0.1:<port>,…/`.
    pub fn url(&self) -> String {
        let password = self.password.as_ref();
        self.members.url("redis-cluster", password)
    }

    /// All nodes, those first that were primaries at the start; `cluster[0]` is the first of them.
    pub fn nodes(&self) -> &[RedisServer] {
        self.members.servers()
    }

    /// The name of a node in the Cluster.
    ///
    /// # Panics
    ///
    /// When it is another Cluster's.
    pub fn id_of(&self, node: &RedisServer) -> &str {
        &self.ids[self.members.place(node)]
    }

    /// The slot that a key is in.
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.members.reachable().next();
        let node = node.expect("a node is up");
        node.query(&["CLUSTER", "KEYSLOT", key])
    }

    /// The primary that has a slot: who says so itself, or if nobody does, whom others name (it may
    /// be down). Of several, the latest.
    ///
    /// # Panics
    ///
    /// When nobody has the slot, or no node is up.
    pub fn owner_of(&self, slot: u16) -> &RedisServer {
        self.owner(slot).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The nodes that are up, not cut off, and say that they are primaries.
    pub fn primaries(&self) -> Vec<&RedisServer> {
        let is_primary = |it: &&RedisServer| replication(it).is_ok_and(|it| it.is_primary());
        self.members.reachable().filter(is_primary).collect()
    }

    /// The nodes that are up, not cut off, and say that they follow this one.
    pub fn replicas_of(&self, primary: &RedisServer) -> Vec<&RedisServer> {
        let port = Some(self.members.port(primary));
        let follows = |it: &&RedisServer| replication(it).is_ok_and(|it| it.primary() == port);
        self.members.reachable().filter(follows).collect()
    }

    /// Waits until all nodes that are up agree: every slot has an owner that is up, the state is
    /// `ok`, and every replica has everything that its primary had.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_until_ok(&self) {
        self.members.until("a sound Cluster", || self.sound()).await;
    }

    /// Waits until all nodes that are up agree that another node than `old` has the slot, and that
    /// it works; returns that node.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_for_another_owner(&self, slot: u16, old: &RedisServer) -> &RedisServer {
        let owner = self.members.until("another owner of a slot", || {
            let owner = self.agreed_owner(slot)?;
            if owner.port() == old.port() {
                return Err("it is still the old one".to_owned());
            }
            Ok(owner)
        });
        owner.await
    }

    /// Has a replica take the place of its primary, as soon as all nodes that are up agree on who is
    /// what, and waits until they know.
    ///
    /// # Panics
    ///
    /// When it does not within [`PATIENCE`](crate::process::PATIENCE), or is none.
    pub async fn fail_over(&self, replica: &RedisServer, how: Takeover) {
        let mut command = vec!["CLUSTER", "FAILOVER"];
        if how == Takeover::Unasked {
            command.push("TAKEOVER");
        }
        let agreed = self.members.until("nodes that agree", || self.agreed());
        agreed.await;
        replica.command(&command);
        let mut ordered = Instant::now();
        let id = self.id_of(replica);
        let taken_over = self.members.until("a take-over", || {
            // An attempt may come to nothing: the primary has not stopped in time, say.
            if ordered.elapsed() > AGAIN && replication(replica)?.primary().is_some() {
                ordered = Instant::now();
                let _ = replica.try_command(&command);
            }
            for view in self.views()? {
                let known = view.of(id).ok_or("it is not known")?;
                if !known.is_primary() || known.slots.is_empty() {
                    return Err(format!("{view:?}"));
                }
            }
            Ok(())
        });
        taken_over.await;
    }

    /// What the nodes that are up say of all.
    fn views(&self) -> Result<Vec<View>, String> {
        let views = self.members.reachable().map(View::of_node);
        let views = views.collect::<Result<Vec<_>, _>>()?;
        if views.is_empty() {
            return Err("no node is up".to_owned());
        }
        Ok(views)
    }

    /// The same, once all say the same.
    fn agreed(&self) -> Result<Vec<View>, String> {
        let views = self.views()?;
        let roles = views[0].roles();
        let other = views.iter().find(|view| view.roles() != roles);
        other.map_or(Ok(()), |other| {
            Err(format!("{roles:?}, or {:?}", other.roles()))
        })?;
        Ok(views)
    }

    fn owner(&self, slot: u16) -> Result<&RedisServer, String> {
        let views = self.views()?;
        let epoch = |known: &&Known| known.epoch;
        let owners = views.iter().filter_map(|view| view.is_owner_of(slot));
        // Hearsay, while the owner is down.
        let named = views.iter().filter_map(|view| view.owner_of(slot));
        let latest = owners.max_by_key(epoch).or_else(|| named.max_by_key(epoch));
        let latest = latest.ok_or_else(|| format!("nobody has slot {slot}"))?;
        self.members.known_as(latest.port)
    }

    fn agreed_owner(&self, slot: u16) -> Result<&RedisServer, String> {
        let owner = self.owner(slot)?;
        if !owner.is_up() {
            return Err(format!("{owner:?} is not up"));
        }
        for view in self.views()? {
            let known = view.owner_of(slot).ok_or("a node knows no owner")?;
            if known.port != self.members.port(owner) {
                return Err(format!("{owner:?} has it, or {known:?}"));
            }
            view.ok()?;
        }
        Ok(owner)
    }

    fn sound(&self) -> Result<(), String> {
        let views = self.agreed()?;
        for view in &views {
            view.ok()?;
        }
        for known in views[0].primaries() {
            let primary = self.members.known_as(known.port)?;
            if !primary.is_up() {
                return Err(format!("{primary:?} is not up"));
            }
        }
        for node in self.members.reachable() {
            let here = replication(node)?;
            let Some(port) = here.primary() else { continue };
            let there = replication(self.members.known_as(port)?)?;
            if !here.follows(port) || here.offset() < there.offset() {
                return Err(format!("{node:?} lags: {here:?}, {there:?}"));
            }
        }
        Ok(())
    }
}

/// Nodes that are cut off are not asked when all have to agree.
impl Deref for Cluster {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}
