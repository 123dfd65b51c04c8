//! What can go wrong in a schedule of each deployment.

use fastrand::Rng;

use super::draw::{Draw, Drawing};
use super::{Data, Deployment, Fault, Way, Which};
use crate::faults::client::Algorithm;

impl Drawing {
    /// What the deployment claims to survive.
    pub(super) fn menu(&self) -> Vec<Draw> {
        if self.algorithm == Algorithm::ValidFromAnswer {
            // All that it is wrong about: a grant that is told late, and whoever comes next
            // is told in time.
            return vec![|it, random| {
                let late = random.u64(200..500);
                Fault::Delay(it.which(random), Way::Back, late, late + 100)
            }];
        }
        use Deployment::{
            Acknowledged, Cluster, Local, Postgres, PostgresPooled, PostgresStandby, Redlock3,
            Redlock5, Sentinel, Server, ServerAof, ServerQuarantine, Zookeeper, ZookeeperEnsemble,
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
        if self.deployment.is_redis() {
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
            // Of the commits of a server that has restarted the standby may lack the last for a while.
            PostgresStandby => menu.extend::<[Draw; 10]>([
                |it, random| Fault::LoseAnswers(it.which(random), random.u64(1..100)),
                |it, random| Fault::CutOff(it.which(random), it.a_while(random)),
                |it, random| Fault::Stop(it.which(random), it.a_while(random)),
                |_, random| Fault::Kill(Which::At(1), random.u64(0..400)),
                |_, _| Fault::KillPrimary,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::EndSessions,
                |it, random| Fault::LockTable(it.a_while(random)),
            ]),
            Zookeeper => menu.extend::<[Draw; 6]>([
                |it, random| Fault::LoseAnswers(it.which(random), random.u64(1..100)),
                |it, random| Fault::CutOff(it.which(random), it.a_while(random)),
                |it, random| Fault::Stop(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), 0),
                |it, random| Fault::StepClock(it.which(random), -random.i64(100..5_000)),
            ]),
            // Whichever is struck may lead.
            ZookeeperEnsemble => menu.extend::<[Draw; 11]>([
                |it, random| Fault::LoseAnswers(it.which(random), random.u64(1..100)),
                |it, random| Fault::CutOff(it.which(random), it.a_while(random)),
                |it, random| Fault::Stop(it.which(random), it.a_while(random)),
                |it, random| Fault::Kill(it.which(random), it.a_while(random)),
                |_, _| Fault::KillPrimary,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::StopPrimary,
                |_, _| Fault::StopPrimary,
                |it, random| Fault::Part(it.which(random), it.a_while(random)),
                |_, _| Fault::CutOffPrimary,
                |_, _| Fault::CutOffPrimary,
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
    pub(super) fn menu_beyond(&self) -> Vec<Draw> {
        use Deployment::{
            Acknowledged, Cluster, Local, Postgres, PostgresPooled, PostgresStandby, Redlock3,
            Redlock5, Sentinel, Server, ServerAof, ServerQuarantine, Zookeeper, ZookeeperEnsemble,
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
            PostgresStandby => vec![
                |_, _| Fault::DeleteRecords,
                |_, _| Fault::KillPrimary,
                |_, _| Fault::StopPrimary,
            ],
            Zookeeper => vec![forward, |_, _| Fault::DeleteRecords, |it, random| {
                Fault::Restart(it.which(random), Data::Lost)
            }],
            // The clock of a new leader may be that of one that was behind, too.
            ZookeeperEnsemble => vec![
                forward,
                |it, random| Fault::StepClock(it.which(random), -random.i64(100..5_000)),
                |_, _| Fault::DeleteRecords,
                |it, random| Fault::Restart(it.which(random), Data::Lost),
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

fn way(random: &mut Rng) -> Way {
    if random.bool() { Way::There } else { Way::Back }
}
