//! Drawing a schedule from a seed.

use std::time::Duration;

use fastrand::Rng;

use super::{Choice, Data, Deployment, Fault, Kind, Plan, Timed, Way, Which};
use crate::faults::client::{Algorithm, Task};
use crate::faults::promise::spoils_audit;

impl Plan {
    /// Draws a schedule.
    #[must_use]
    pub fn draw(choice: Choice, seed: u64) -> Self {
        // So that deployments do not all have the same.
        let place = choice.deployment as u64;
        let mut random = Rng::with_seed(seed.wrapping_mul(64).wrapping_add(place));
        let Choice {
            deployment,
            algorithm,
            ..
        } = choice;
        // Drawn in any case, so that a choice changes nothing else.
        let drawn = random.u8(0..4) == 0;
        let beyond = choice.beyond.unwrap_or(drawn);
        let ours = algorithm == Algorithm::Leasehold;
        let ttl = if takes_time(deployment) {
            2000..4000
        } else {
            500..1500
        };
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

/// Whether a fail-over is part of it.
fn takes_time(deployment: Deployment) -> bool {
    use Deployment::{Acknowledged, Cluster, Sentinel};
    matches!(deployment, Sentinel | Acknowledged | Cluster)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// 3 to 6 processes with 1 to 3 tasks each. Every key has several tasks that want it.
fn clients(deployment: Deployment, ours: bool, random: &mut Rng) -> Vec<Vec<Task>> {
    let kinds = if deployment.is_redlock() || !ours {
        // Those of others have mutexes, and not all have an order.
        vec![Kind::Unfair]
    } else {
        let mut kinds = vec![Kind::Fair, Kind::Unfair, Kind::ReadWrite, Kind::Semaphore];
        random.shuffle(&mut kinds);
        kinds.truncate(random.usize(1..3));
        kinds
    };
    let task = |random: &mut Rng| {
        let at = random.usize(0..kinds.len());
        Task {
            key: format!("key {at}"),
            mode: kinds[at].mode(),
            fair: kinds[at] != Kind::Unfair,
        }
    };
    let count = random.usize(3..7);
    (0..count)
        .map(|_| (0..random.usize(1..4)).map(|_| task(random)).collect())
        .collect()
}

struct Drawing {
    deployment: Deployment,
    beyond: bool,
    ttl: u64,
    clients: usize,
    algorithm: Algorithm,
}

type Draw = fn(&Drawing, &mut Rng) -> Fault;

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
            let fault = menu[random.usize(0..menu.len())](self, random);
            if keeps_audit && spoils_audit(self.deployment, fault) {
                continue;
            }
            faults.push(Timed { at, fault });
        }
        // Beyond what is assumed means that it happens.
        if self.beyond && !faults.is_empty() {
            let place = random.usize(0..faults.len());
            faults[place].fault = beyond[random.usize(0..beyond.len())](self, random);
        }
        faults
    }

    fn people(&self, lasts: u64, random: &mut Rng) -> Vec<Timed> {
        let mut at = random.u64(500..2000);
        let mut faults = Vec::new();
        while at < lasts {
            let client = random.usize(0..self.clients);
            let stop = random.u64(self.ttl * 3 / 4..self.ttl * 2);
            let fault = match random.u8(0..10) {
                0 => Fault::KillClient(client),
                1 | 2 => Fault::KillHolder,
                3 => Fault::StopClient(client, stop),
                // Clocks of clients matter to those who take the time from them.
                4 | 5 if self.steps_clients() => {
                    let most = i64::try_from(self.max_ttl() * 8 / 10).unwrap_or(0);
                    // Half of it each way: no two differ by more.
                    Fault::StepClientClock(client, random.i64(-most / 2..=most / 2))
                }
                _ => Fault::StopHolder(stop),
            };
            faults.push(Timed { at, fault });
            at += random.u64(600..2800);
        }
        faults
    }

    fn steps_clients(&self) -> bool {
        let it = self.deployment;
        // PostgreSQL gives its own time: theirs must not matter.
        it.is_redlock() || it.is_postgres() || it == Deployment::Local
    }

    /// The longest TTL that a set of servers allows.
    fn max_ttl(&self) -> u64 {
        MAX_TTL
    }

    fn which(&self, random: &mut Rng) -> Which {
        match self.deployment {
            Deployment::Sentinel | Deployment::Acknowledged | Deployment::Cluster => Which::Primary,
            _ => Which::At(random.usize(0..self.deployment.servers().max(1))),
        }
    }

    /// How long something may last that is not to lead to a fail-over.
    fn a_while(&self, random: &mut Rng) -> u64 {
        if takes_time(self.deployment) {
            random.u64(50..400)
        } else {
            random.u64(50..self.ttl * 5 / 4)
        }
    }

    /// What the deployment claims to survive.
    fn menu(&self) -> Vec<Draw> {
        if self.algorithm == Algorithm::ValidFromAnswer {
            // All that it is wrong about: a grant that is told late, and whoever comes next
            // is told in time.
            return vec![|it, random| {
                let late = random.u64(200..500);
                Fault::Delay(it.which(random), Way::Back, late, late + 100)
            }];
        }
        use Deployment::{
            Acknowledged, Cluster, Local, Postgres, PostgresPooled, Redlock3, Redlock5, Sentinel,
            Server, ServerAof, ServerQuarantine,
        };
        let mut menu: Vec<Draw> = Vec::new();
        if self.deployment != Local {
            menu.extend::<[Draw; 6]>([
                |it, random| Fault::Reset(it.which(random)),
                |it, random| Fault::Refuse(it.which(random), it.a_while(random)),
                |it, random| {
                    Fault::Delay(
                        it.which(random),
                        way(random),
                        random.u64(5..300),
                        it.a_while(random),
                    )
                },
                |it, random| Fault::Hold(it.which(random), way(random), it.a_while(random)),
                |it, random| Fault::BlackHole(it.which(random), way(random), it.a_while(random)),
                |it, random| Fault::HalfOpen(it.which(random)),
            ]);
        }
        if self.deployment != Local && !self.deployment.is_postgres() {
            menu.extend::<[Draw; 6]>([
                |it, random| Fault::Swallow(it.which(random), random.u64(1..4)),
                |it, random| Fault::LoseRequest(it.which(random)),
                |it, random| Fault::Stop(it.which(random), it.a_while(random)),
                |it, random| Fault::SlowScript(it.which(random)),
                |it, random| Fault::MemoryFull(it.which(random), it.a_while(random)),
                |it, random| Fault::ForgetScripts(it.which(random)),
            ]);
        }
        match self.deployment {
            Local => {}
            Server => menu.extend::<[Draw; 2]>([
                |it, random| Fault::Restart(it.which(random), Data::Kept),
                |it, random| Fault::StepClock(it.which(random), -random.i64(100..5_000)),
            ]),
            // Little steps: all of them together are less than the quarantine.
            ServerQuarantine => menu.extend::<[Draw; 7]>([
                |it, random| Fault::Restart(it.which(random), Data::Kept),
                |it, random| Fault::Restart(it.which(random), Data::Lost),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::Flush(it.which(random)),
                |it, random| Fault::StepClock(it.which(random), -random.i64(10..100)),
            ]),
            ServerAof => menu.extend::<[Draw; 4]>([
                |it, random| Fault::Restart(it.which(random), Data::Kept),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::StepClock(it.which(random), -random.i64(100..5_000)),
            ]),
            Sentinel => menu.extend::<[Draw; 2]>([
                |_, random| Fault::Stop(Which::Replica(random.usize(0..2)), random.u64(100..2000)),
                |_, random| Fault::StopSentinel(random.usize(0..3), random.u64(200..2500)),
            ]),
            Acknowledged => menu.extend::<[Draw; 10]>([
                |_, random| Fault::Stop(Which::Replica(random.usize(0..2)), random.u64(100..2000)),
                |_, random| Fault::StopSentinel(random.usize(0..3), random.u64(200..2500)),
                |_, _| Fault::FailOver,
                |_, _| Fault::FailOver,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::CutOffPrimary,
                |_, _| Fault::CutOffPrimary,
            ]),
            Cluster => menu.extend::<[Draw; 7]>([
                |_, random| Fault::Stop(Which::Replica(0), random.u64(100..1000)),
                |_, _| Fault::MoveSlot,
                |_, _| Fault::MoveSlot,
                |_, _| Fault::MoveSlot,
                |_, _| Fault::TakeOver { agreed: true },
                |_, _| Fault::TakeOver { agreed: true },
                |_, _| Fault::TakeOver { agreed: true },
            ]),
            Postgres | PostgresPooled => menu.extend::<[Draw; 9]>([
                |it, random| Fault::LoseAnswers(it.which(random), random.u64(1..100)),
                |it, random| Fault::CutOff(it.which(random), it.a_while(random)),
                |it, random| Fault::Stop(it.which(random), it.a_while(random)),
                |it, random| Fault::Restart(it.which(random), Data::Kept),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), 0),
                |_, random| Fault::StepClock(Which::At(0), -random.i64(100..5_000)),
                |_, _| Fault::EndSessions,
                |it, random| Fault::LockTable(it.a_while(random)),
            ]),
            Redlock3 | Redlock5 => menu.extend::<[Draw; 8]>([
                |it, random| Fault::CutOff(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::Restart(it.which(random), Data::Kept),
                |it, random| Fault::Restart(it.which(random), Data::Lost),
                |it, random| Fault::Flush(it.which(random)),
                |_, random| Fault::KillAll(random.u64(0..300)),
                |it, random| Fault::StepClock(it.which(random), -random.i64(100..2_000)),
            ]),
        }
        menu
    }

    /// What it does not.
    fn menu_beyond(&self) -> Vec<Draw> {
        use Deployment::{
            Acknowledged, Cluster, Local, Postgres, PostgresPooled, Redlock3, Redlock5, Sentinel,
            Server, ServerAof, ServerQuarantine,
        };
        let forward: Draw = |it, random| {
            Fault::StepClock(
                it.which(random),
                random.i64(200..=i64::try_from(it.ttl * 2).unwrap_or(2000)),
            )
        };
        let flush: Draw = |it, random| Fault::Flush(it.which(random));
        match self.deployment {
            Local => vec![|_, _| Fault::DeleteRecords],
            Server => vec![
                forward,
                flush,
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::Restart(it.which(random), Data::Lost),
                |it, random| Fault::Evict(it.which(random), random.u64(20..200)),
            ],
            ServerQuarantine => vec![forward, |it, random| {
                Fault::Evict(it.which(random), random.u64(20..200))
            }],
            ServerAof => vec![forward, flush, |it, random| {
                Fault::Evict(it.which(random), random.u64(20..200))
            }],
            Sentinel => vec![
                |_, _| Fault::FailOver,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::CutOffPrimary,
                |_, _| Fault::PromoteStale,
            ],
            Acknowledged => vec![|_, _| Fault::PromoteStale],
            Cluster => vec![
                |_, _| Fault::KillPrimary,
                |_, _| Fault::PromoteStale,
                |_, _| Fault::TakeOver { agreed: false },
            ],
            // Its commits are not synced there.
            Postgres | PostgresPooled => vec![
                |it, random| {
                    let most = i64::try_from(it.ttl * 2).unwrap_or(2000);
                    Fault::StepClock(Which::At(0), random.i64(200..=most))
                },
                |_, _| Fault::DeleteRecords,
                |_, _| Fault::Kill(Which::At(0), 0),
                |_, _| Fault::Kill(Which::At(0), 0),
            ],
            // Nobody waits there until what was forgotten is over.
            Redlock3 | Redlock5 if self.algorithm != Algorithm::Leasehold => {
                vec![|_, random| Fault::KillAll(random.u64(0..300))]
            }
            Redlock3 | Redlock5 => vec![
                forward,
                |it, random| Fault::Evict(it.which(random), random.u64(20..200)),
                |_, random| Fault::KillAll(random.u64(0..300)),
            ],
        }
    }
}

/// In milliseconds; the quarantine is twice this.
pub(in crate::faults) const MAX_TTL: u64 = 1500;

fn way(random: &mut Rng) -> Way {
    if random.bool() { Way::There } else { Way::Back }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(deployment: Deployment) -> Choice {
        Choice {
            deployment,
            beyond: None,
            algorithm: Algorithm::Leasehold,
        }
    }

    #[test]
    fn a_seed_is_a_schedule() {
        for deployment in Deployment::ALL {
            let draw = |seed| Plan::draw(choice(deployment), seed);
            assert_eq!(draw(7), draw(7));
            assert_ne!(draw(7), draw(8));
        }
    }

    #[test]
    fn every_schedule_has_rivals_and_faults_and_ttls_that_its_set_allows() {
        for (deployment, seed) in Deployment::ALL
            .into_iter()
            .flat_map(|it| (0..100).map(move |seed| (it, seed)))
        {
            let plan = Plan::draw(choice(deployment), seed);
            assert!((3..=6).contains(&plan.clients.len()), "{plan}");
            assert!(plan.faults().count() > 2, "{plan}");
            assert!(
                !deployment.is_redlock() || millis(plan.ttl) <= MAX_TTL,
                "{plan}"
            );
        }
    }
}
