//! Drawing a schedule from a seed.

use std::time::Duration;

use fastrand::Rng;
use leasehold::Mode;

use super::{Choice, Deployment, Fault, Plan, Timed, Which};
use crate::faults::client::{Algorithm, Task};
use crate::faults::promise::spoils_audit;

impl Plan {
    /// Draws a schedule.
    pub fn draw(choice: Choice, seed: u64) -> Self {
        // So that deployments do not all have the same.
        let place = choice.deployment as u64;
        let mut random = Rng::with_seed(seed.wrapping_mul(64).wrapping_add(place));
        let (deployment, algorithm) = (choice.deployment, choice.algorithm);
        // Drawn in any case, so that a choice changes nothing else.
        let drawn = random.u8(0..4) == 0;
        let beyond = choice.beyond.unwrap_or(drawn);
        let ours = algorithm == Algorithm::Leasehold;
        let takes_time = deployment.takes_time();
        let ttl = if takes_time { 2000..4000 } else { 500..1500 };
        let ttl = Duration::from_millis(random.u64(ttl));
        let clients = clients(deployment, ours, &mut random);
        let lasts = Duration::from_millis(random.u64(8_000..11_000));
        let drawing = Drawing {
            deployment,
            beyond,
            ttl: millis(ttl),
            clients: clients.len(),
            algorithm,
        };
        let acknowledge = (deployment == Deployment::Acknowledged).then_some({
            // One of two does not bind who is promoted.
            if beyond { 1 } else { 2 }
        });
        let quarantine = ours
            && match deployment {
                Deployment::ServerQuarantine => true,
                it => it.is_redlock() && !(beyond && random.bool()),
            };
        Self {
            seed,
            deployment,
            algorithm,
            beyond,
            ttl,
            acknowledge,
            quarantine,
            servers: drawing.servers(millis(lasts), &mut random),
            people: drawing.people(millis(lasts), &mut random),
            clients,
            lasts,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// 3 to 6 processes with 1 to 3 tasks each. Every key has several tasks that want it.
fn clients(deployment: Deployment, ours: bool, random: &mut Rng) -> Vec<Vec<Task>> {
    let (fair, unfair) = ((Mode::EXCLUSIVE, true), (Mode::EXCLUSIVE, false));
    let kinds = if deployment.is_redlock() || !ours {
        // Those of others have mutexes, and not all have an order.
        vec![unfair]
    } else {
        let (readers, permits) = ((Mode::SHARED, true), (Mode::permits(3, 1), true));
        let mut kinds = vec![fair, unfair, readers, permits];
        random.shuffle(&mut kinds);
        kinds.truncate(random.usize(1..3));
        kinds
    };
    let task = |random: &mut Rng| {
        let at = random.usize(0..kinds.len());
        let (mode, fair) = kinds[at];
        let key = format!("key {at}");
        Task { key, mode, fair }
    };
    let count = random.usize(3..7);
    (0..count)
        .map(|_| (0..random.usize(1..4)).map(|_| task(random)).collect())
        .collect()
}

pub(super) struct Drawing {
    pub(super) deployment: Deployment,
    beyond: bool,
    pub(super) ttl: u64,
    clients: usize,
    pub(super) algorithm: Algorithm,
}

impl Drawing {
    /// One after the other, with pauses.
    fn servers(&self, lasts: u64, random: &mut Rng) -> Vec<Timed> {
        let menu = self.menu();
        let beyond = self.menu_beyond();
        // Most faults of a set take the promise of its audit log away: half of the schedules have others.
        let keeps_audit = self.deployment.is_redlock()
            && self.algorithm == Algorithm::Leasehold
            && !self.beyond
            && random.bool();
        let mut at = random.u64(300..1000);
        let mut faults = Vec::new();
        while at < lasts {
            let forbidden = self.beyond && random.u8(0..3) == 0;
            let menu = if forbidden { &beyond } else { &menu };
            at += random.u64(300..1700);
            if menu.is_empty() {
                continue;
            }
            let name = menu[random.usize(0..menu.len())];
            let fault = self.draw(name, random);
            if keeps_audit && spoils_audit(self.deployment, fault) {
                continue;
            }
            faults.push(Timed::new(at, name, fault));
        }
        // Beyond what is assumed means that it happens.
        if self.beyond && !faults.is_empty() {
            let place = random.usize(0..faults.len());
            let name = beyond[random.usize(0..beyond.len())];
            faults[place] = Timed::new(faults[place].at, name, self.draw(name, random));
        }
        faults
    }

    fn people(&self, lasts: u64, random: &mut Rng) -> Vec<Timed> {
        let mut at = random.u64(500..2000);
        let mut faults = Vec::new();
        while at < lasts {
            let client = random.usize(0..self.clients);
            let stop = random.u64(self.ttl * 3 / 4..self.ttl * 2);
            let (name, fault) = match random.u8(0..10) {
                0 => ("kill-client", Fault::KillClient(client)),
                1 | 2 => ("kill-holder", Fault::KillHolder),
                3 => ("stop-client", Fault::StopClient(client, stop)),
                // Clocks of clients matter to those who take the time from them.
                4 | 5 if self.deployment.clients_have_clocks() => {
                    let most = i64::try_from(MAX_TTL * 8 / 10).unwrap_or(0);
                    // Half of it each way: no two differ by more.
                    let by = random.i64(-most / 2..=most / 2);
                    ("step-client-clock", Fault::StepClientClock(client, by))
                }
                _ => ("stop-holder", Fault::StopHolder(stop)),
            };
            faults.push(Timed::new(at, name, fault));
            at += random.u64(600..2800);
        }
        faults
    }

    pub(super) fn which(&self, random: &mut Rng) -> Which {
        match self.deployment {
            Deployment::Sentinel | Deployment::Acknowledged | Deployment::Cluster => Which::Primary,
            _ => Which::At(random.usize(0..self.deployment.servers().max(1))),
        }
    }

    /// How long something may last that is not to lead to a fail-over.
    pub(super) fn a_while(&self, random: &mut Rng) -> u64 {
        if self.deployment == Deployment::ZookeeperEnsemble {
            // It may lead to one, of a leader that was silent for two seconds.
            random.u64(50..2_500)
        } else if self.deployment.takes_time() {
            random.u64(50..400)
        } else {
            random.u64(50..self.ttl * 5 / 4)
        }
    }
}

/// The longest TTL that a set of servers allows, in milliseconds; the quarantine is twice this.
pub(in crate::faults) const MAX_TTL: u64 = 1500;

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn drawn(deployment: Deployment, seed: u64) -> Plan {
        Plan::draw(Choice::ours(deployment, None), seed)
    }

    #[test]
    fn a_seed_is_a_schedule() {
        for deployment in Deployment::value_variants() {
            let draw = |seed| drawn(*deployment, seed);
            assert_eq!(draw(7), draw(7));
            assert_ne!(draw(7), draw(8));
        }
    }

    #[test]
    fn every_schedule_has_rivals_and_faults_and_ttls_that_its_set_allows() {
        for deployment in Deployment::value_variants() {
            for plan in (0..100).map(|seed| drawn(*deployment, seed)) {
                assert!((3..=6).contains(&plan.clients.len()), "{plan}");
                assert!(plan.faults().count() > 2, "{plan}");
                let fits = !deployment.is_redlock() || millis(plan.ttl) <= MAX_TTL;
                assert!(fits, "{plan}");
            }
        }
    }

    #[test]
    fn every_name_on_a_menu_is_that_of_a_fault() {
        let mut random = Rng::with_seed(1);
        for deployment in Deployment::value_variants() {
            for algorithm in Algorithm::value_variants() {
                let drawing = Drawing {
                    deployment: *deployment,
                    beyond: true,
                    ttl: 1000,
                    clients: 3,
                    algorithm: *algorithm,
                };
                for name in [drawing.menu(), drawing.menu_beyond()].concat() {
                    drawing.draw(name, &mut random);
                }
            }
        }
    }
}
