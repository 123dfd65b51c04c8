//! A Redis Cluster.

mod slots;
mod view;

use std::fmt;
use std::ops::Index;
use std::time::Duration;

use super::{listed, replication, until, until_blocking};
use crate::server::{RedisServer, RedisServerBuilder};
pub use slots::SlotMove;
use view::{Known, View};

/// How many slots there are.
const SLOTS: u16 = 16_384;

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
/// A primary that was killed is replaced in two to four times the [node
/// time-out](ClusterBuilder::node_timeout). Replicas stay with their primary (Redis would move them
/// to one that has lost its own).
pub struct Cluster {
    nodes: Vec<RedisServer>,
    /// Their names in the Cluster, in the same order.
    ids: Vec<String>,
    password: Option<String>,
}

/// How a replica takes the place of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// In agreement with the primary, which stops writing until the replica has everything
    /// (`CLUSTER FAILOVER`).
    Agreed,
    /// By the vote of the other primaries, without asking the primary (`FORCE`).
    Voted,
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
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            server: RedisServer::builder(),
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_millis(1500),
        }
    }

    /// The URL with all nodes, and the password if there is one:
    /// `redis-cluster://[:password@]127.0.0.1:<port>,…/`.
    pub fn url(&self) -> String {
        let credentials = self.password.as_ref().map(|word| format!(":{word}@"));
        let nodes = listed(&self.nodes);
        format!(
            "redis-cluster://{}{nodes}/",
            credentials.unwrap_or_default()
        )
    }

    /// All nodes, those first that were primaries at the start; `cluster[0]` is the first of them.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The name of a node in the Cluster.
    ///
    /// # Panics
    ///
    /// When it is another Cluster's.
    pub fn id_of(&self, node: &RedisServer) -> &str {
        let at = self.nodes.iter().position(|it| it.port() == node.port());
        &self.ids[at.expect("a node of this Cluster")]
    }

    /// The slot that a key is in.
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.nodes.iter().find(|it| it.is_up());
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

    /// The nodes that are up and say that they are primaries.
    pub fn primaries(&self) -> Vec<&RedisServer> {
        let up = self.nodes.iter().filter(|it| it.is_up());
        up.filter(|it| replication(it).is_ok_and(|it| it.is_primary()))
            .collect()
    }

    /// The nodes that are up and say that they follow this one.
    pub fn replicas_of(&self, primary: &RedisServer) -> Vec<&RedisServer> {
        let port = primary.port();
        let up = self.nodes.iter().filter(|it| it.is_up());
        up.filter(|it| replication(it).is_ok_and(|it| it.primary() == Some(port)))
            .collect()
    }

    /// Waits until all nodes that are up agree: every slot has an owner that is up, the state is
    /// `ok`, and every replica has everything that its primary had.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_until_ok(&self) {
        until("a sound Cluster", &[&self.nodes], || self.sound()).await;
    }

    /// Waits until all nodes that are up agree that another node than `old` has the slot, and that
    /// it works; returns that node.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_for_another_owner(&self, slot: u16, old: &RedisServer) -> &RedisServer {
        until("another owner of a slot", &[&self.nodes], || {
            let owner = self.agreed_owner(slot)?;
            if owner.port() == old.port() {
                return Err("it is still the old one".to_owned());
            }
            Ok(owner)
        })
        .await
    }

    /// Has a replica take the place of its primary, as soon as all nodes that are up agree on who is
    /// what, and waits until they know.
    ///
    /// # Panics
    ///
    /// When it does not within [`PATIENCE`](crate::process::PATIENCE), or is none.
    pub async fn fail_over(&self, replica: &RedisServer, how: Takeover) {
        let mut command = vec!["CLUSTER", "FAILOVER"];
        match how {
            Takeover::Agreed => {}
            Takeover::Voted => command.push("FORCE"),
            Takeover::Unasked => command.push("TAKEOVER"),
        }
        until("nodes that agree", &[&self.nodes], || self.agreed()).await;
        replica.command(&command);
        let id = self.id_of(replica);
        until("a take-over", &[&self.nodes], || {
            for view in self.views()? {
                let known = view.of(id).ok_or("it is not known")?;
                if !known.is_primary() || known.slots.is_empty() {
                    return Err(format!("{view:?}"));
                }
            }
            Ok(())
        })
        .await;
    }

    /// What the nodes that are up say of all.
    fn views(&self) -> Result<Vec<View>, String> {
        let up = self.nodes.iter().filter(|it| it.is_up());
        let views = up.map(View::of_node).collect::<Result<Vec<_>, _>>()?;
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
        self.node(latest.ok_or_else(|| format!("nobody has slot {slot}"))?)
    }

    fn agreed_owner(&self, slot: u16) -> Result<&RedisServer, String> {
        let owner = self.owner(slot)?;
        if !owner.is_up() {
            return Err(format!("{owner:?} is not up"));
        }
        for view in self.views()? {
            let known = view.owner_of(slot).ok_or("a node knows no owner")?;
            if known.port != owner.port() {
                return Err(format!("{owner:?} has it, or {known:?}"));
            }
            view.ok()?;
        }
        Ok(owner)
    }

    fn node(&self, known: &Known) -> Result<&RedisServer, String> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.port() == known.port);
        node.ok_or_else(|| format!("{known:?} is a stranger"))
    }

    fn sound(&self) -> Result<(), String> {
        let views = self.agreed()?;
        for view in &views {
            view.ok()?;
        }
        for known in views[0].primaries() {
            let primary = self.node(known)?;
            if !primary.is_up() {
                return Err(format!("{primary:?} is not up"));
            }
        }
        for node in self.nodes.iter().filter(|it| it.is_up()) {
            let here = replication(node)?;
            let Some(port) = here.primary() else { continue };
            let mut nodes = self.nodes.iter();
            let primary = nodes.find(|it| it.port() == port && it.is_up());
            let there = replication(primary.ok_or_else(|| format!("{node:?} follows nobody"))?)?;
            if !here.follows(port) || here.offset() < there.offset() {
                return Err(format!("{node:?} lags: {here:?}, {there:?}"));
            }
        }
        Ok(())
    }
}

impl Index<usize> for Cluster {
    type Output = RedisServer;

    fn index(&self, at: usize) -> &RedisServer {
        &self.nodes[at]
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Cluster")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// Options for a [`Cluster`].
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    server: RedisServerBuilder,
    primaries: usize,
    replicas: usize,
    node_timeout: Duration,
}

impl ClusterBuilder {
    /// Makes every node like this one.
    #[must_use]
    pub fn server(mut self, server: RedisServerBuilder) -> Self {
        self.server = server;
        self
    }

    /// How many primaries share the slots: three, unless said otherwise, and not fewer, since two
    /// make no majority without each other.
    #[must_use]
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// How many replicas each primary has: one, unless said otherwise.
    #[must_use]
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = each;
        self
    }

    /// How long a node does not answer before another takes it for down (`cluster-node-timeout`):
    /// 1.5 s, unless said otherwise. Much less, and a busy machine fails over by itself.
    #[must_use]
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = time;
        self
    }

    /// Starts the nodes, makes them a Cluster, and waits until it is sound: about two seconds, since
    /// a primary does not serve earlier.
    ///
    /// # Panics
    ///
    /// When that does not come true within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start(self) -> Cluster {
        let node = (self.server.clone().cluster())
            .config(
                "cluster-node-timeout",
                &self.node_timeout.as_millis().to_string(),
            )
            // However long it has heard nothing from its primary, a replica may be promoted.
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-migration-barrier", "1000");
        let count = self.primaries * (1 + self.replicas);
        let nodes: Vec<_> = (0..count).map(|_| node.clone().start()).collect();
        let ids = nodes.iter().map(|node| node.query(&["CLUSTER", "MYID"]));
        let cluster = Cluster {
            ids: ids.collect(),
            password: self.server.password,
            nodes,
        };
        cluster.form(self.primaries);
        cluster
    }
}

impl Cluster {
    /// Makes a Cluster of the nodes: the first ones are primaries.
    fn form(&self, primaries: usize) {
        let share = |at: usize| u16::try_from(at * usize::from(SLOTS) / primaries);
        for (at, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if let (Ok(first), Ok(end), true) = (share(at), share(at + 1), at < primaries) {
                // Ranges came with Redis 7.
                let slots: Vec<_> = (first..end).map(|slot| slot.to_string()).collect();
                let mut command = vec!["CLUSTER", "ADDSLOTS"];
                command.extend(slots.iter().map(String::as_str));
                node.command(&command);
            }
            // All with all: they would find each other, but that takes a while.
            for other in &self.nodes[..at] {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        let all = [&self.nodes[..]];
        until_blocking("nodes that know each other", &all, || {
            let views = self.views()?;
            let stranger = views.iter().find(|view| !view.knows(&self.ids));
            stranger.map_or(Ok(()), |view| Err(format!("{view:?}")))
        });
        for (at, node) in self.nodes.iter().enumerate().skip(primaries) {
            node.command(&["CLUSTER", "REPLICATE", &self.ids[at % primaries]]);
        }
        until_blocking("a sound Cluster with all its replicas", &all, || {
            self.sound()?;
            let found = self.primaries().len();
            (found == primaries)
                .then_some(())
                .ok_or_else(|| format!("{found} primaries"))
        });
    }
}
