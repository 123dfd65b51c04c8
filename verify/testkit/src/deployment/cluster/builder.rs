//! How a Cluster comes to be.

use super::super::members::Reserved;
use super::super::{DeploymentBuilder, until_blocking};
use super::Cluster;

/// How many slots there are.
const SLOTS: u16 = 16_384;

/// How many primaries share the slots: two make no majority without each other.
const PRIMARIES: usize = 3;

impl DeploymentBuilder<Cluster> {
    /// Starts the nodes, makes them a Cluster, and waits until it is sound: about two seconds, since
    /// a primary does not serve earlier.
    ///
    /// # Panics
    ///
    /// When that does not come true within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start(self) -> Cluster {
        let timeout = self.down_after.as_millis().to_string();
        let node = (self.servers[0].clone().cluster())
            .config("cluster-node-timeout", &timeout)
            // However long it has heard nothing from its primary, a replica may be promoted.
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-migration-barrier", "1000");
        let count = PRIMARIES * (1 + self.replicas);
        let members = Reserved::new(count, true, self.behind_proxies).start(|_, _| node.clone());
        let nodes = members.servers().iter();
        let ids = nodes.map(|node| node.query(&["CLUSTER", "MYID"]));
        let cluster = Cluster {
            ids: ids.collect(),
            password: node.password,
            members,
        };
        cluster.form();
        cluster
    }
}

impl Cluster {
    /// Makes a Cluster of the nodes: the first ones are primaries.
    fn form(&self) {
        let share = |at: usize| u16::try_from(at * usize::from(SLOTS) / PRIMARIES);
        for (at, node) in self.nodes().iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if let (Ok(first), Ok(end), true) = (share(at), share(at + 1), at < PRIMARIES) {
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
        for (at, node) in self.nodes().iter().enumerate().skip(PRIMARIES) {
            node.command(&["CLUSTER", "REPLICATE", &self.ids[at % PRIMARIES]]);
        }
        until_blocking("a sound Cluster with all its replicas", &all, || {
            self.sound()?;
            let found = self.primaries().len();
            let all = (found == PRIMARIES).then_some(());
            all.ok_or_else(|| format!("{found} primaries"))
        });
    }
}
