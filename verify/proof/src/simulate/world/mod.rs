//! A world of hosts and a network, in virtual time, on one thread.
//!
//! The world goes in windows. In each, every host runs up to the window's end by its
//! own clock: its timers fire at their own times, and what it sends is stamped with
//! them. At the end of the window everything arrives that is due. A window ends when
//! something arrives next, and never lasts longer than [`LONGEST`]: a message is late by
//! that much at most, and only after a silence.

mod here;
mod host;
mod net;
mod stream;
mod traffic;

use std::time::Duration;

pub(crate) use here::{Rate, bring, host as this_host, in_world, time as now, up_for, wall};
pub(crate) use host::Host;
pub(crate) use net::{Net, Way};
pub(crate) use stream::End;

/// The shortest window: what arrives within one arrives together.
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(4);

/// The hosts, the network, the time.
pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) net: Net,
    pub(crate) hosts: Vec<Host>,
}

impl World {
    pub(crate) fn new(net: Net) -> Self {
        Self {
            now: Duration::ZERO,
            net,
            hosts: Vec::new(),
        }
    }

    /// A host of that name; its number.
    pub(crate) fn add(&mut self, name: &str, rate: Rate, wall: i64) -> usize {
        let number = self.hosts.len();
        self.net.name(number, name);
        self.hosts.push(Host::new(number, rate, wall));
        number
    }

    /// Starts a process on a host; `main` is called in it.
    pub(crate) fn start(
        &mut self,
        host: usize,
        listens: bool,
        main: impl FnOnce(),
    ) -> std::io::Result<()> {
        self.net.rise(host, listens);
        self.hosts[host].start(self.now, main)
    }

    /// Starts a task in a host's process.
    pub(crate) fn spawn(
        &self,
        host: usize,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let started = self.hosts[host].spawn(task);
        started
            .then_some(())
            .ok_or_else(|| std::io::Error::other("the host has no process"))
    }

    /// Kills a host's process, or switches the machine off.
    pub(crate) fn kill(&mut self, host: usize, silently: bool) {
        self.net.fall(host, self.now, silently);
        self.hosts[host].kill(self.now);
    }

    /// One window, that ends at `limit` at the latest.
    pub(crate) fn step(&mut self, limit: Duration) {
        let next = self.net.next().unwrap_or(Duration::MAX);
        let end = next
            .clamp(self.now + SHORTEST, self.now + LONGEST)
            .min(limit);
        for host in &mut self.hosts {
            host.run_to(self.now, end);
        }
        self.now = end;
        self.net.deliver(end);
    }

    /// Looks at something as it is on a host, whether or not that runs.
    pub(crate) fn look_from<T>(&self, host: usize, look: impl FnOnce() -> T) -> T {
        let _entered = self.hosts[host].seen_at(self.now).enter();
        look()
    }
}
