//! The servers of a deployment, and the proxies in front of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Index;
use std::sync::{Mutex, MutexGuard};

use super::{Answer, until};
use crate::proxy::{Peers, Proxy};
use crate::server::{Port, RedisServer, RedisServerBuilder};

/// The servers of a deployment, which know each other by what they announce: their own addresses,
/// or those of the proxies in front of them.
#[derive(Debug)]
pub struct Members {
    servers: Vec<RedisServer>,
    /// For clients and replicas, one for each server; none without proxies.
    doors: Vec<Proxy>,
    /// For the other nodes of a Cluster, likewise.
    buses: Vec<Proxy>,
    /// The places of those that are cut off.
    cut_off: Mutex<BTreeSet<usize>>,
}

/// The addresses of servers that do not run yet.
#[derive(Debug)]
pub(super) struct Reserved {
    ports: Vec<Port>,
    doors: Vec<Proxy>,
    buses: Vec<Proxy>,
}

/// Where the server at that place connects to others from, so that their proxies know it.
fn source(at: usize) -> IpAddr {
    let number = u8::try_from(at + 1).expect("a deployment has less than 255 servers");
    Ipv4Addr::new(127, 0, 77, number).into()
}

impl Reserved {
    /// Addresses for so many servers. Nodes of a Cluster have a second one each, for their peers.
    pub(super) fn new(count: usize, is_cluster: bool, behind_proxies: bool) -> Self {
        let reserve = match is_cluster {
            true => Port::reserve_with_bus,
            false => Port::reserve,
        };
        let ports: Vec<_> = (0..count).map(|_| reserve()).collect();
        let proxied = || ports.iter().filter(|_| behind_proxies);
        let doors = proxied().map(|it| Proxy::start(it.address()));
        let buses = proxied().filter(|_| is_cluster);
        let buses = buses.map(|it| Proxy::start(it.bus()));
        Self {
            doors: doors.collect(),
            buses: buses.collect(),
            ports,
        }
    }

    pub(super) fn announced(&self, at: usize) -> u16 {
        let own = self.ports[at].address().port();
        self.doors.get(at).map_or(own, Proxy::port)
    }

    /// Starts them, as `builder` makes the one at each place.
    pub(super) fn start(self, builder: impl Fn(&Self, usize) -> RedisServerBuilder) -> Members {
        let count = self.ports.len();
        let builders = (0..count).map(|at| self.introduce(at, builder(&self, at)));
        let builders: Vec<_> = builders.collect();
        let servers = builders.into_iter().zip(self.ports);
        Members {
            servers: servers.map(|(it, port)| it.start_at(port)).collect(),
            doors: self.doors,
            buses: self.buses,
            cut_off: Mutex::default(),
        }
    }

    /// Has a server behind proxies announce those, and connect from an address of its own.
    fn introduce(&self, at: usize, mut builder: RedisServerBuilder) -> RedisServerBuilder {
        let has_tls = builder.has_tls();
        assert!(!has_tls, "servers of a deployment do not speak TLS");
        let Some(door) = self.doors.get(at) else {
            return builder;
        };
        let mut announce = |what: &str, value: &str| {
            builder = builder.clone().config(what, value);
        };
        let port = door.port().to_string();
        announce("replica-announce-ip", "127.0.0.1");
        announce("replica-announce-port", &port);
        if let Some(bus) = self.buses.get(at) {
            announce("cluster-announce-ip", "127.0.0.1");
            announce("cluster-announce-port", &port);
            announce("cluster-announce-bus-port", &bus.port().to_string());
        }
        builder.source_address(source(at))
    }
}

impl Index<usize> for Members {
    type Output = RedisServer;

    fn index(&self, at: usize) -> &RedisServer {
        &self.servers[at]
    }
}

impl Members {
    /// All of them, up or down.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    pub(super) fn up(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|server| server.is_up())
    }

    /// Those that are up and not cut off.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &RedisServer> {
        let cut_off = self.cut_off_places().clone();
        let servers = self.servers.iter().enumerate();
        let up = servers.filter(move |(at, server)| server.is_up() && !cut_off.contains(at));
        up.map(|(_, server)| server)
    }

    fn cut_off_places(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.cut_off.lock().expect("nobody panics with it")
    }

    /// Its place among them.
    pub(super) fn place(&self, server: &RedisServer) -> usize {
        let mut servers = self.servers.iter();
        let place = servers.position(|it| it.port() == server.port());
        place.expect("a server of this deployment")
    }

    /// The address by which others know it.
    pub(super) fn address(&self, server: &RedisServer) -> SocketAddr {
        let door = self.doors.get(self.place(server));
        door.map_or_else(|| server.address(), Proxy::address)
    }

    pub(super) fn port(&self, server: &RedisServer) -> u16 {
        self.address(server).port()
    }

    /// Where it expects the other nodes of its Cluster.
    pub(super) fn bus_port(&self, server: &RedisServer) -> u16 {
        let bus = self.buses.get(self.place(server));
        bus.map_or_else(|| server.bus_address().port(), Proxy::port)
    }

    /// Whom others know by that port.
    pub(super) fn known_as(&self, port: u16) -> Result<&RedisServer, String> {
        let mut servers = self.servers.iter();
        let server = servers.find(|server| self.port(server) == port);
        server.ok_or_else(|| format!("who has port {port} is a stranger"))
    }

    /// The URL of all: `scheme://[:password@]127.0.0.1:1,127.0.0.1:2/`.
    pub(super) fn url(&self, scheme: &str, password: Option<&String>) -> String {
        let credentials = password.map(|word| format!(":{word}@"));
        let credentials = credentials.unwrap_or_default();
        let addresses = self.servers.iter().map(|it| self.address(it).to_string());
        let addresses = addresses.collect::<Vec<_>>().join(",");
        format!("{scheme}://{credentials}{addresses}/")
    }

    pub(super) async fn until<T>(&self, what: &'static str, check: impl FnMut() -> Answer<T>) -> T {
        until(what, &[&self.servers], check).await
    }

    // ---- partitions

    /// The proxy in front of a server, with all its faults, if the deployment was started with
    /// `behind_proxies`.
    ///
    /// # Panics
    ///
    /// When there are no proxies.
    pub fn proxy(&self, server: &RedisServer) -> &Proxy {
        let door = self.doors.get(self.place(server));
        door.expect("start the deployment with `behind_proxies`")
    }

    fn proxies(&self, at: usize) -> impl Iterator<Item = &Proxy> {
        let is_proxied = !self.doors.is_empty();
        assert!(is_proxied, "start the deployment with `behind_proxies`");
        self.doors.get(at).into_iter().chain(self.buses.get(at))
    }

    /// Cuts a server off from clients, Sentinels and all other servers, without a word to anybody: it
    /// goes on, and what it is sent gets lost. Only its own [`url`](RedisServer::url) still leads to
    /// it, past the proxies, for the test and for clients on its side of the partition.
    ///
    /// # Panics
    ///
    /// When there are no proxies.
    pub fn cut_off(&self, server: &RedisServer) {
        let at = self.place(server);
        self.cut_off_places().insert(at);
        self.around(at)
            .for_each(|(proxy, whom)| proxy.isolate(whom));
    }

    /// The proxies on the way to a server and from it, each with the peers that it is about.
    fn around(&self, at: usize) -> impl Iterator<Item = (&Proxy, Peers)> {
        (0..self.servers.len()).flat_map(move |other| {
            let from_it = Peers::At(source(at));
            let whom = if other == at { Peers::All } else { from_it };
            self.proxies(other).map(move |proxy| (proxy, whom))
        })
    }

    /// Cuts two servers off from each other only: replication between them stands still, and clients
    /// and Sentinels still reach both. As [`cut_off`](Self::cut_off), otherwise.
    ///
    /// # Panics
    ///
    /// When there are no proxies.
    pub fn separate(&self, one: &RedisServer, other: &RedisServer) {
        for (from, to) in [(one, other), (other, one)] {
            let whom = Peers::At(source(self.place(from)));
            let proxies = self.proxies(self.place(to));
            proxies.for_each(|proxy| proxy.isolate(whom));
        }
    }

    /// Connects a server with all others and with clients again. Its connections from before are
    /// reset.
    ///
    /// # Panics
    ///
    /// When there are no proxies.
    pub fn rejoin(&self, server: &RedisServer) {
        let at = self.place(server);
        self.around(at).for_each(|(proxy, whom)| proxy.rejoin(whom));
        self.cut_off_places().remove(&at);
    }
}
