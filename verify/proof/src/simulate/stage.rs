//! The hosts of a run: servers, clients and the resource; how they start and end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::memory::MemoryStore;
use leasehold_store::sync::lock;

use super::book::{Book, Fact};
use super::chance::Chance;
use super::client::{Common, live};
use super::flaws::Flaw;
use super::invariants::Deployment;
use super::plan::{Plan, servers};
use super::register::RESOURCE;
use super::server::{Data, Disk, Server};
use super::world::{Net, Rate, World};

/// Clocks are wrong by as much as four thousandths: two of them by less than the
/// hundredth that is allowed.
const DRIFT: i64 = 4_000;
/// Too wrong.
const WILD_DRIFT: i64 = 200_000;
/// Times of day differ by less than a lease lives.
const WALL: i64 = 200_000;

/// A machine with a disk.
pub(crate) struct Site {
    pub(crate) host: usize,
    pub(crate) disk: Disk,
    pub(crate) server: Option<Arc<Server>>,
}

impl Site {
    /// Fills the memory, or frees it.
    pub(crate) fn fill(&self, full: bool) {
        lock(&self.disk).full = full;
    }

    /// Loses all that is on the disk.
    pub(crate) fn erase(&self) {
        *lock(&self.disk) = Data::default();
    }
}

/// A client's machine.
pub(crate) struct Guest {
    pub(crate) host: usize,
    number: usize,
    chance: Chance,
}

pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) common: Arc<Common>,
    pub(crate) servers: Vec<Site>,
    pub(crate) guests: Vec<Guest>,
    pub(crate) resource: Site,
    chance: Chance,
}

impl Stage {
    pub(crate) fn new(plan: Plan, net: Net) -> io::Result<Self> {
        let mut chance = Chance::new(plan.seed, "stage");
        let flaw = plan.flaw;
        let drift = match flaw {
            Some(Flaw::WildClocks) => WILD_DRIFT,
            _ => DRIFT,
        };
        let add = |world: &mut World, chance: &mut Chance, name: &str| {
            let ppm = chance.either_way(drift);
            world.add(name, Rate { ppm }, chance.either_way(WALL))
        };
        let mut world = World::new(net.clone());
        let site = |world: &mut World, chance: &mut Chance, name: &str| Site {
            host: add(world, chance, name),
            disk: Arc::default(),
            server: None,
        };
        let names = servers(plan.deployment);
        let servers = names.iter().map(|it| site(&mut world, &mut chance, it));
        let servers = servers.collect();
        let resource = site(&mut world, &mut chance, RESOURCE);
        let shared = plan.deployment == Deployment::Memory;
        let mut guests: Vec<Guest> = Vec::new();
        for number in 0..plan.clients {
            let host = match guests.first() {
                Some(guest) if shared => guest.host,
                _ => add(&mut world, &mut chance, &format!("client-{number}")),
            };
            guests.push(Guest {
                host,
                number,
                chance: chance.fork(),
            });
        }
        let memory = shared.then(|| world.look_from(guests[0].host, MemoryStore::new));
        let common = Arc::new(Common {
            plan,
            book: Book::default(),
            net,
            quiet: AtomicBool::new(false),
            gone: AtomicUsize::new(0),
            memory,
        });
        if flaw == Some(Flaw::ClockSleeps) {
            let hosts = world.hosts.iter_mut();
            hosts.for_each(|host| host.clock_sleeps = true);
        }
        let mut stage = Self {
            world,
            common,
            servers,
            guests,
            resource,
            chance,
        };
        stage.set_up()?;
        Ok(stage)
    }

    fn set_up(&mut self) -> io::Result<()> {
        for at in 0..self.servers.len() {
            self.start_server(at)?;
        }
        let run_id = self.chance.number(0..=u64::MAX);
        let flaw = self.common.plan.flaw;
        start(&mut self.world, &mut self.resource, run_id, flaw)?;
        for at in 0..self.guests.len() {
            self.start_client(at)?;
        }
        Ok(())
    }

    pub(crate) fn start_server(&mut self, at: usize) -> io::Result<()> {
        let (run_id, flaw) = (self.chance.number(0..=u64::MAX), self.common.plan.flaw);
        start(&mut self.world, &mut self.servers[at], run_id, flaw)
    }

    pub(crate) fn kill_server(&mut self, at: usize, silently: bool) {
        let site = &mut self.servers[at];
        site.server = None;
        self.world.kill(site.host, silently);
    }

    pub(crate) fn start_client(&mut self, at: usize) -> io::Result<()> {
        let guest = &mut self.guests[at];
        let (host, chance) = (guest.host, guest.chance.fork());
        let life = live(Arc::clone(&self.common), guest.number, chance);
        if self.world.hosts[host].is_up() {
            return self.world.spawn(host, life);
        }
        self.world.start(host, false, || drop(tokio::spawn(life)))
    }

    pub(crate) fn kill_client(&mut self, at: usize, silently: bool) {
        let Guest { host, number, .. } = self.guests[at];
        self.world.kill(host, silently);
        self.note(Fact::Died { client: number });
    }

    /// Writes down what happens outside of all hosts.
    pub(crate) fn note(&self, fact: Fact) {
        self.common.book.note_at(self.world.now, fact);
    }

    /// A store has lost its data; of several, a majority remembers, or waits.
    pub(crate) fn forgot(&self) {
        let plan = &self.common.plan;
        if plan.deployment == Deployment::Redis {
            let holders = !plan.quarantine && !plan.overclaims;
            self.note(Fact::Forgot { holders });
        }
    }

    /// A store's clock was stepped ahead: it ends leases, and a quarantine, too early.
    pub(crate) fn clock_jumped(&self) {
        let holders = !self.common.plan.overclaims;
        self.note(Fact::Forgot { holders });
    }

    pub(crate) fn all_gone(&self) -> bool {
        self.common.gone.load(Ordering::Relaxed) == self.guests.len()
    }

    /// How long it has been going.
    pub(crate) fn now(&self) -> Duration {
        self.world.now
    }
}

fn start(world: &mut World, site: &mut Site, run_id: u64, flaw: Option<Flaw>) -> io::Result<()> {
    let server = Server::new(Arc::clone(&site.disk), run_id, flaw);
    let server = server.map_err(io::Error::other)?;
    let (net, host) = (world.net.clone(), site.host);
    world.start(host, true, || server.serve(&net, host))?;
    site.server = Some(server);
    Ok(())
}
