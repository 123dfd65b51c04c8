//! How a Cluster is to be, and how it comes to be.

use std::time::Duration;

use super::super::members::Reserved;
use super::super::until_blocking;
use super::Cluster;
use crate::server::RedisServerBuilder;

/// How many slots there are.
const SLOTS: u16 = 16_384;

/// Options for a [`Cluster`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ClusterBuilder {
    server: RedisServerBuilder,
    primaries: Option<usize>,
    replicas: Option<usize>,
    node_timeout: Option<Duration>,
    behind_proxies: bool,
}

impl ClusterBuilder {
    /// Makes every node like this one. Without TLS.
    pub fn server(mut self, server: RedisServerBuilder) -> Self {
        self.server = server;
        self
    }

    /// How many primaries share the slots: three, unless said otherwise, and not fewer, since two
    /// make no majority without each other.
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = Some(primaries);
        self
    }

    /// How many replicas each primary has: one, unless said otherwise.
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = Some(each);
        self
    }

    /// How long a node does not answer before another takes it for down (`cluster-node-timeout`):
    /// 1.5 s, unless said otherwise. Much less, and a busy machine fails over by itself.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = Some(time);
        self
    }

    /// Puts a proxy in front of each node, which all others know it by: for
    /// [`cut_off`](crate::deployment::Members::cut_off), and for all other faults.
    pub fn behind_proxies(mut self) -> Self {
        self.behind_proxies = true;
        self
    }

    /// Starts the nodes, makes them a Cluster, and waits until it is sound: about two seconds, since
    /// a primary does not serve earlier.
    ///
    /// # Panics
    ///
    /// When that does not come true within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start(self) -> Cluster {
        let timeout = self.node_timeout.map_or(1500, |time| time.as_millis());
        let node = (self.server.clone().cluster())
            .config("cluster-node-timeout", &timeout.to_string())
            // However long it has heard nothing from its primary, a replica may be promoted.
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-migration-barrier", "1000");
        let primaries = self.primaries.unwrap_or(3);
        let count = primaries * (1 + self.replicas.unwrap_or(1));
        let members = Reserved::new(count, true, self.behind_proxies).start(|_, _| node.clone());
        let nodes = members.servers().iter();
        let ids = nodes.map(|node| node.query(&["CLUSTER", "MYID"]));
        let cluster = Cluster {
            ids: ids.collect(),
            password: self.server.password,
            members,
        };
        cluster.form(primaries);
        cluster
    }
}

impl Cluster {
    /// Makes a Cluster of the nodes: the first ones are primaries.
    fn form(&self, primaries: usize) {
        let share = |at: usize| u16::try_from(at * usize::from(SLOTS) / primaries);
        for (at, node) in self.nodes().iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if let (Ok(first), Ok(end), true) = (share(at), share(at + 1), at < primaries) {
                // Ranges came with Redis 7.
                let slots: Vec<_> = (first..end).map(|slot| slot.to_string()).collect();
                let mut command = vec!["CLUSTER", "ADDSLOTS"];
                command.extend(slots.iter().map(String::as_str));
                node.command(&command);
            }
            // All with all: they would find each other, but that takes a while.
            for other in &self.nodes()[..at] {
                let port = self.members.port(other).to_string();
                let bus = self.members.bus_port(other).to_string();
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        let all = [self.nodes()];
        until_blocking("nodes that know each other", &all, || {
            let views = self.views()?;
            let stranger = views.iter().find(|view| !view.knows(&self.ids));
            stranger.map_or(Ok(()), |view| Err(format!("{view:?}")))
        });
        for (at, node) in self.nodes().iter().enumerate().skip(primaries) {
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
