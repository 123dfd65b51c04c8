//! What a run is, drawn from its seed.

use std::time::Duration;

use leasehold::Settings;
use leasehold::store::redis::{Quarantine, RedisOptions, RedlockOptions, Restart};

use super::chance::Chance;
use super::flaws::Flaw;
use super::invariants::Deployment;

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) deployment: Deployment,
    pub(crate) clients: usize,
    /// Tasks of a client that ask at the same time.
    pub(crate) workers: usize,
    /// For how long there are faults.
    pub(crate) chaos: Duration,
    pub(crate) ttl: Duration,
    waiter_ttl: Duration,
    renew_at: f64,
    operation_timeout: Duration,
    response_timeout: Duration,
    /// The pause between two faults, at most.
    pub(crate) calm: Duration,
    /// How often a lease gets another id.
    rotate_every: Option<Duration>,
    /// Whether servers may lose their data: then one server forgets what it granted.
    pub(crate) loses_data: bool,
    /// Whether one server that may have forgotten waits before it grants again.
    pub(crate) quarantine: bool,
    /// Whether it is held to its promises even then: that has to fail.
    pub(crate) overclaims: bool,
    /// What is broken on purpose.
    pub(crate) flaw: Option<Flaw>,
}

/// The servers of a deployment.
pub(crate) fn servers(deployment: Deployment) -> &'static [&'static str] {
    match deployment {
        Deployment::Memory => &[],
        Deployment::Redis => &["server"],
        Deployment::Redlock => &["server-a", "server-b", "server-c"],
    }
}

impl Plan {
    pub(crate) fn new(seed: u64, deployment: Deployment, clients: Option<usize>) -> Self {
        let mut chance = Chance::new(seed, "plan");
        let seconds = |chance: &mut Chance, low, high| {
            chance.time(Duration::from_secs(low)..=Duration::from_secs(high))
        };
        let ttl = seconds(&mut chance, 1, 6);
        let drawn = 2 + chance.index(5);
        let rotates = chance.percent(30) && deployment != Deployment::Redlock;
        Self {
            seed,
            deployment,
            clients: clients.unwrap_or(drawn),
            workers: 1 + chance.index(3),
            chaos: seconds(&mut chance, 20, 60),
            ttl,
            waiter_ttl: seconds(&mut chance, 1, 6),
            renew_at: [0.2, 1.0 / 3.0, 0.5][chance.index(3)],
            operation_timeout: seconds(&mut chance, 1, 4),
            response_timeout: seconds(&mut chance, 1, 3),
            calm: seconds(&mut chance, 1, 8),
            rotate_every: rotates.then_some(ttl),
            loses_data: chance.percent(40),
            quarantine: deployment == Deployment::Redis && chance.percent(50),
            overclaims: false,
            flaw: None,
        }
    }

    /// With a flaw, where it can show.
    pub(crate) fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        if matches!(flaw, Flaw::NoQuarantine | Flaw::OpenGate) {
            self.loses_data = true;
            self.quarantine = flaw == Flaw::OpenGate;
            self.calm = Duration::from_secs(1);
        }
        self
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::default()
            .with_ttl(self.ttl)
            .with_waiter_ttl(self.waiter_ttl)
            .with_renew_at(self.renew_at)
            .with_operation_timeout(self.operation_timeout)
            .with_rotate_every(self.rotate_every)
    }

    pub(crate) fn server(&self, name: &str) -> RedisOptions {
        let mut options = RedisOptions::tcp(name, 6379);
        options.connect_timeout = self.response_timeout;
        options.response_timeout = self.response_timeout;
        options.retention = Duration::from_secs(3600);
        options.restart = if self.quarantine {
            Restart::Quarantine(Quarantine::new(self.ttl))
        } else {
            Restart::Trust
        };
        options
    }

    pub(crate) fn redlock(&self) -> RedlockOptions {
        let servers = servers(self.deployment).iter().map(|it| self.server(it));
        let mut options = RedlockOptions::new(servers.collect());
        options.max_ttl = self.ttl;
        options
    }

    /// How long a client may have to wait for a key when nothing is disturbed: until
    /// what the dead left has lapsed, a server has got over its restart, and everybody
    /// ahead has had it.
    pub(crate) fn patience(&self) -> Duration {
        let quarantine = if self.quarantine || self.deployment == Deployment::Redlock {
            4 * self.ttl
        } else {
            Duration::ZERO
        };
        let others = u32::try_from(self.clients).unwrap_or(u32::MAX) * Duration::from_millis(500);
        2 * self.ttl
            + quarantine
            + self.response_timeout
            + self.operation_timeout
            + others
            + Duration::from_secs(5)
    }
}
