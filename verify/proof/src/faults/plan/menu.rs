//! What can go wrong in a schedule of each deployment.

use fastrand::Rng;

use super::Deployment::{
    Acknowledged, Cluster, Local, Postgres, PostgresPooled, PostgresStandby, Redlock3, Redlock5,
    Sentinel, Server, ServerAof, ServerQuarantine, Zookeeper, ZookeeperEnsemble,
};
use super::draw::Drawing;
use super::{Data, Fault, Way, Which};
use crate::faults::client::Algorithm;

/// What is wrong with any network.
const NETWORK: &str = "reset refuse delay hold black-hole half-open";

/// What befalls servers of Redis.
const REDIS: &str = "swallow lose-request stop slow-script memory-full forget-scripts";

impl Drawing {
    /// What the deployment claims to survive, by names. What stands there twice is drawn twice as
    /// often.
    pub(super) fn menu(&self) -> Vec<&'static str> {
        if self.algorithm == Algorithm::ValidFromAnswer {
            // All that it is wrong about.
            return vec!["told-late"];
        }
        let (is_local, is_redis) = (self.deployment == Local, self.deployment.is_redis());
        let network = if is_local { "" } else { NETWORK };
        let redis = if is_redis { REDIS } else { "" };
        let own = match self.deployment {
            Local => "",
            Server => "restart back",
            ServerQuarantine => "restart restart-empty kill crash crash flush little-back",
            ServerAof => "restart kill crash back",
            Sentinel => "stop-replica stop-sentinel",
            Acknowledged => {
                "stop-replica stop-sentinel fail-over fail-over kill-primary kill-primary \
                 stop-primary stop-primary cut-off-primary cut-off-primary"
            }
            Cluster => {
                "stop-first-replica move-slot move-slot move-slot take-over take-over take-over"
            }
            Postgres | PostgresPooled => {
                "lose-answers cut-off stop restart kill crash database-back end-sessions lock-table"
            }
            // Of the commits of a server that has restarted the standby may lack the last for a while.
            PostgresStandby => {
                "lose-answers cut-off stop kill-standby kill-primary kill-primary \
                 stop-primary stop-primary end-sessions lock-table"
            }
            Zookeeper => "lose-answers cut-off stop kill crash back",
            // Whichever is struck may lead.
            ZookeeperEnsemble => {
                "lose-answers cut-off stop kill kill-primary kill-primary \
                 stop-primary stop-primary part cut-off-primary cut-off-primary"
            }
            Redlock3 | Redlock5 => {
                "cut-off kill crash restart restart-empty flush kill-all back-by-a-lease"
            }
        };
        let all = [network, redis, own].into_iter();
        all.flat_map(str::split_whitespace).collect()
    }

    /// What it does not.
    pub(super) fn menu_beyond(&self) -> Vec<&'static str> {
        let all = match self.deployment {
            Local => "delete-records",
            Server => "forward flush crash restart-empty evict",
            ServerQuarantine => "forward evict",
            ServerAof => "forward flush evict",
            Sentinel => "fail-over kill-primary stop-primary cut-off-primary promote-stale",
            Acknowledged => "promote-stale",
            Cluster => "kill-primary promote-stale take-over-by-force",
            // Its commits are not synced there.
            Postgres | PostgresPooled => {
                "database-forward delete-records crash-database crash-database"
            }
            PostgresStandby => "delete-records kill-primary stop-primary",
            Zookeeper => "forward delete-records restart-empty",
            // The clock of a new leader may be that of one that was behind, too.
            ZookeeperEnsemble => "forward back delete-records restart-empty",
            // Nobody waits there until what was forgotten is over.
            Redlock3 | Redlock5 if self.algorithm != Algorithm::Leasehold => "kill-all",
            Redlock3 | Redlock5 => "forward evict kill-all",
        };
        all.split_whitespace().collect()
    }

    /// A fault by its name on a menu.
    pub(super) fn draw(&self, name: &str, random: &mut Rng) -> Fault {
        match name {
            // A grant that is told late, and whoever comes next is told in time.
            "told-late" => {
                let late = random.u64(200..500);
                Fault::Delay(self.which(random), Way::Back, late, late + 100)
            }
            "reset" => Fault::Reset(self.which(random)),
            "refuse" => Fault::Refuse(self.which(random), self.a_while(random)),
            "delay" => {
                let (which, way) = (self.which(random), way(random));
                Fault::Delay(which, way, random.u64(5..300), self.a_while(random))
            }
            "hold" => Fault::Hold(self.which(random), way(random), self.a_while(random)),
            "black-hole" => Fault::BlackHole(self.which(random), way(random), self.a_while(random)),
            "half-open" => Fault::HalfOpen(self.which(random)),
            "swallow" => Fault::Swallow(self.which(random), random.u64(1..4)),
            "lose-request" => Fault::LoseRequest(self.which(random)),
            "lose-answers" => Fault::LoseAnswers(self.which(random), random.u64(1..100)),
            "cut-off" => Fault::CutOff(self.which(random), self.a_while(random)),
            "part" => Fault::Part(self.which(random), self.a_while(random)),
            "stop" => Fault::Stop(self.which(random), self.a_while(random)),
            "kill" => Fault::Kill(self.which(random), self.a_while(random)),
            // Killed, and back at once.
            "crash" => Fault::Kill(self.which(random), 0),
            "restart" => Fault::Restart(self.which(random), Data::Kept),
            "restart-empty" => Fault::Restart(self.which(random), Data::Lost),
            "slow-script" => Fault::SlowScript(self.which(random)),
            "memory-full" => Fault::MemoryFull(self.which(random), self.a_while(random)),
            "forget-scripts" => Fault::ForgetScripts(self.which(random)),
            "flush" => Fault::Flush(self.which(random)),
            "evict" => Fault::Evict(self.which(random), random.u64(20..200)),
            "kill-all" => Fault::KillAll(random.u64(0..300)),
            "back" => Fault::StepClock(self.which(random), -random.i64(100..5_000)),
            "back-by-a-lease" => Fault::StepClock(self.which(random), -random.i64(100..2_000)),
            // All of them together are less than the quarantine.
            "little-back" => Fault::StepClock(self.which(random), -random.i64(10..100)),
            "forward" => Fault::StepClock(self.which(random), self.forward(random)),
            // Of PostgreSQL, whichever is in front of it.
            "database-back" => Fault::StepClock(Which::At(0), -random.i64(100..5_000)),
            "database-forward" => Fault::StepClock(Which::At(0), self.forward(random)),
            "crash-database" => Fault::Kill(Which::At(0), 0),
            "kill-standby" => Fault::Kill(Which::At(1), random.u64(0..400)),
            "stop-replica" => {
                Fault::Stop(Which::Replica(random.usize(0..2)), random.u64(100..2000))
            }
            "stop-first-replica" => Fault::Stop(Which::Replica(0), random.u64(100..1000)),
            "stop-sentinel" => Fault::StopSentinel(random.usize(0..3), random.u64(200..2500)),
            "fail-over" => Fault::FailOver,
            "kill-primary" => Fault::KillPrimary,
            "stop-primary" => Fault::StopPrimary,
            "cut-off-primary" => Fault::CutOffPrimary,
            "promote-stale" => Fault::PromoteStale,
            "take-over" => Fault::TakeOver { agreed: true },
            "take-over-by-force" => Fault::TakeOver { agreed: false },
            "move-slot" => Fault::MoveSlot,
            "end-sessions" => Fault::EndSessions,
            "lock-table" => Fault::LockTable(self.a_while(random)),
            "delete-records" => Fault::DeleteRecords,
            _ => unreachable!("{name} is no fault"),
        }
    }

    fn forward(&self, random: &mut Rng) -> i64 {
        random.i64(200..=i64::try_from(self.ttl * 2).unwrap_or(2000))
    }
}

fn way(random: &mut Rng) -> Way {
    if random.bool() { Way::There } else { Way::Back }
}
