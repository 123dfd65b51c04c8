//! Several servers that elect a leader.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{ANSWER, ZooKeeper, patiently};
use crate::deployment::{until, until_blocking};
use crate::proxy::{Peers, Proxy};
use crate::server::Port;

/// Running ZooKeeper servers, three unless said otherwise, of which a majority is enough to serve.
///
/// ```no_run
/// # async fn example() {
/// use leasehold_testkit::zookeeper::Ensemble;
///
/// let ensemble = Ensemble::start();
/// let old = ensemble.leader();
/// ensemble.server(old).kill(); // … clients go on at `ensemble.url_of("/orders")` …
/// let new = ensemble.until_led().await;
/// assert_ne!(new, old);
/// ensemble.start_again(old);
/// # }
/// ```
///
/// Servers are known by their place: 0, 1 and 2. Each is a [`ZooKeeper`], with the limits and the end
/// of one. One that is alone counts as the leader. Followers give a silent leader up after two
/// seconds.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    ways: Vec<Way>,
    /// The place of the server that is [parted](Ensemble::part) from the others, or [`NOBODY`].
    parted: AtomicUsize,
}

const NOBODY: usize = usize::MAX;

/// From one server to a port of another.
#[derive(Debug)]
struct Way {
    from: usize,
    to: usize,
    port: u16,
    proxy: Proxy,
}

impl Ensemble {
    /// Starts three servers, and returns when one leads and the others follow.
    pub fn start() -> Self {
        Self::start_by(vec![Vec::new(); 3], |_| Vec::new())
    }

    /// The same, as many as there are environments. Each server reaches the others through proxies, so
    /// that one can be [parted](Self::part) from them, and has more variables in its environment, also
    /// when it is started again. A library that these preload has to lead connections there:
    /// `LEASEHOLD_WAYS` has `port=port,…`, the ports of the others and of the proxies.
    pub fn start_parting(environments: Vec<Vec<(String, String)>>) -> Self {
        Self::start_by(environments, ways)
    }

    fn start_by(
        environments: Vec<Vec<(String, String)>>,
        ways: impl FnOnce(&[ZooKeeper]) -> Vec<Way>,
    ) -> Self {
        // One for data, one for elections.
        let ports = || vec![Port::reserve(), Port::reserve()];
        let prepare = |environment| ZooKeeper::prepare(ports(), environment);
        let mut servers: Vec<_> = environments.into_iter().map(prepare).collect();
        let ways = ways(&servers);
        for (at, server) in servers.iter_mut().enumerate() {
            let ours = ways.iter().filter(|way| way.from == at);
            let ours = ours.map(|way| format!("{}={}", way.port, way.proxy.port()));
            let ours = ours.collect::<Vec<_>>().join(",");
            server.environment.push(("LEASEHOLD_WAYS".to_owned(), ours));
        }
        let mut lines = "initLimit=25\nsyncLimit=10\n".to_owned();
        let several = servers.iter().filter(|_| servers.len() > 1);
        for (number, server) in (1..).zip(several) {
            let ports = server.more_ports.iter().map(|it| it.address().port());
            let ports = ports.map(|port| format!(":{port}")).collect::<String>();
            lines += &format!("server.{number}=127.0.0.1{ports}\n");
        }
        for (number, server) in (1..).zip(&servers) {
            let name = server.scratch.path("data/myid");
            fs::write(name, format!("{number}\n")).expect("a file can be written");
            server.configure(&lines);
            server.launch();
        }
        let ensemble = Self {
            servers,
            ways,
            parted: AtomicUsize::new(NOBODY),
        };
        let led = patiently(|limit| ensemble.led(limit));
        until_blocking("an ensemble to elect a leader", &[], led);
        ensemble
    }

    /// What clients connect to: `127.0.0.1:<port>,127.0.0.1:<port>,127.0.0.1:<port>`.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(ZooKeeper::hosts).collect();
        hosts.join(",")
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        self.url_of("")
    }

    /// The URL of a chroot.
    pub fn url_of(&self, chroot: &str) -> String {
        format!("zookeeper://{}{chroot}", self.hosts())
    }

    /// The path of a node that nobody else uses; see [`ZooKeeper::chroot`].
    pub fn chroot(&self) -> String {
        self.servers[0].chroot()
    }

    /// The server at a place.
    pub fn server(&self, at: usize) -> &ZooKeeper {
        &self.servers[at]
    }

    /// The place of the server that leads now.
    ///
    /// # Panics
    ///
    /// When none does, or more than one says so; [`Self::until_led`] waits for one.
    pub fn leader(&self) -> usize {
        self.leads(ANSWER).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Waits until one server leads, and all others that are neither down, paused nor parted follow.
    /// Returns the leader's place.
    pub async fn until_led(&self) -> usize {
        // The clients of this runtime wait as long as a server does not answer.
        let led = patiently(|limit| self.led(limit));
        until("an ensemble to elect a leader", &[], led).await
    }

    fn leads(&self, limit: Duration) -> Result<usize, String> {
        let modes = (0..self.servers.len()).map(|at| {
            let up = self.is_there(at).then(|| self.servers[at].mode(limit));
            up.unwrap_or_else(|| Err("down, paused or parted".to_owned()))
        });
        let modes: Vec<_> = modes.collect();
        let leads = |at: &usize| matches!(modes[*at].as_deref(), Ok("leader" | "standalone"));
        match *(0..modes.len()).filter(leads).collect::<Vec<_>>() {
            [one] => Ok(one),
            _ => Err(format!("there is not one leader: {modes:?}")),
        }
    }

    fn led(&self, limit: Duration) -> Result<usize, String> {
        for at in (0..self.servers.len()).filter(|at| self.is_there(*at)) {
            self.servers[at].started(limit)?;
        }
        self.leads(limit)
    }

    fn is_there(&self, at: usize) -> bool {
        self.servers[at].is_wanted() && self.parted.load(Ordering::Relaxed) != at
    }

    /// Parts the server at a place from the others, and from no client: nothing passes between them
    /// until [`Self::join`], and nobody is told.
    ///
    /// # Panics
    ///
    /// When one is parted already, or it was not started by [`Self::start_parting`].
    pub fn part(&self, at: usize) {
        let is_whole = self.ways.is_empty();
        assert!(!is_whole, "there is nothing between the servers");
        let before = self.parted.swap(at, Ordering::Relaxed);
        assert_eq!(before, NOBODY, "one is parted from two");
        let proxies = self.ways_of(at);
        proxies.for_each(|proxy| proxy.isolate(Peers::All));
    }

    /// Ends [`Self::part`].
    pub fn join(&self) {
        let at = self.parted.swap(NOBODY, Ordering::Relaxed);
        self.ways_of(at).for_each(|proxy| proxy.rejoin(Peers::All));
    }

    fn ways_of(&self, at: usize) -> impl Iterator<Item = &Proxy> {
        let ways = self.ways.iter();
        let ours = ways.filter(move |way| way.from == at || way.to == at);
        ours.map(|way| &way.proxy)
    }

    /// Starts the server at a place again, and returns when it serves sessions; at once if too few
    /// are up for that.
    pub fn start_again(&self, at: usize) {
        let server = &self.servers[at];
        server.launch();
        let up = (0..self.servers.len()).filter(|at| self.is_there(*at));
        if up.count() > self.servers.len() / 2 {
            let started = patiently(|limit| server.started(limit));
            until_blocking("ZooKeeper to serve sessions", &[], started);
        }
    }
}

/// A proxy for each port by which a server is reached by another.
fn ways(servers: &[ZooKeeper]) -> Vec<Way> {
    let places = 0..servers.len();
    let pairs = places
        .clone()
        .flat_map(|from| places.clone().map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from != to);
    let ports = pairs.flat_map(|(from, to)| {
        let ports = servers[to].more_ports.iter();
        ports.map(move |port| (from, to, port.address()))
    });
    let way = |(from, to, address): (_, _, std::net::SocketAddr)| Way {
        from,
        to,
        port: address.port(),
        proxy: Proxy::start(address),
    };
    ports.map(way).collect()
}
