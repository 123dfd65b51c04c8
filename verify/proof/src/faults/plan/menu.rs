//! What can go wrong in a schedule of each deployment.

use fastrand::Rng;

use super::Deployment::{
    Acknowledged, Cluster, Local, Postgres, PostgresPooled, PostgresStandby, Redlock3, Redlock5,
    Sentinel, Server, ServerAof, ServerQuarantine, Zookeeper, ZookeeperEnsemble,
};
use super::draw::{Draw, Drawing};
use super::{Data, Fault, Way, Which};
use crate::faults::client::Algorithm;

/// A grant that is told late, and whoever comes next is told in time.
const TOLD_LATE: Draw = |it, random| {
    let late = random.u64(200..500);
    Fault::Delay(it.which(random), Way::Back, late, late + 100)
};

/// What is wrong with any network.
const NETWORK: [Draw; 6] = [
    |it, random| Fault::Reset(it.which(random)),
    |it, random| Fault::Refuse(it.which(random), it.a_while(random)),
    |it, random| {
        let (which, way) = (it.which(random), way(random));
        Fault::Delay(which, way, random.u64(5..300), it.a_while(random))
    },
    |it, random| Fault::Hold(it.which(random), way(random), it.a_while(random)),
    |it, random| Fault::BlackHole(it.which(random), way(random), it.a_while(random)),
    |it, random| Fault::HalfOpen(it.which(random)),
];

/// What befalls servers of Redis.
const REDIS: [Draw; 6] = [
    |it, random| Fault::Swallow(it.which(random), random.u64(1..4)),
    |it, random| Fault::LoseRequest(it.which(random)),
    STOP,
    |it, random| Fault::SlowScript(it.which(random)),
    |it, random| Fault::MemoryFull(it.which(random), it.a_while(random)),
    |it, random| Fault::ForgetScripts(it.which(random)),
];

const LOSE_ANSWERS: Draw = |it, random| Fault::LoseAnswers(it.which(random), random.u64(1..100));
const CUT_OFF: Draw = |it, random| Fault::CutOff(it.which(random), it.a_while(random));
const PART: Draw = |it, random| Fault::Part(it.which(random), it.a_while(random));
const STOP: Draw = |it, random| Fault::Stop(it.which(random), it.a_while(random));
const KILL: Draw = |it, random| Fault::Kill(it.which(random), it.a_while(random));
/// Killed, and back at once.
const CRASH: Draw = |it, random| Fault::Kill(it.which(random), 0);
const RESTART: Draw = |it, random| Fault::Restart(it.which(random), Data::Kept);
const RESTART_EMPTY: Draw = |it, random| Fault::Restart(it.which(random), Data::Lost);
const FLUSH: Draw = |it, random| Fault::Flush(it.which(random));
const EVICT: Draw = |it, random| Fault::Evict(it.which(random), random.u64(20..200));
const KILL_ALL: Draw = |_, random| Fault::KillAll(random.u64(0..300));
const BACK: Draw = |it, random| Fault::StepClock(it.which(random), -random.i64(100..5_000));
const BACK_BY_A_LEASE: Draw =
    |it, random| Fault::StepClock(it.which(random), -random.i64(100..2_000));
/// All of them together are less than the quarantine.
const LITTLE_BACK: Draw = |it, random| Fault::StepClock(it.which(random), -random.i64(10..100));
const FORWARD: Draw = |it, random| {
    let which = it.which(random);
    Fault::StepClock(which, forward(it, random))
};
/// Of PostgreSQL, whichever is in front of it.
const DATABASE_BACK: Draw = |_, random| Fault::StepClock(Which::At(0), -random.i64(100..5_000));
const DATABASE_FORWARD: Draw = |it, random| Fault::StepClock(Which::At(0), forward(it, random));
const CRASH_DATABASE: Draw = |_, _| Fault::Kill(Which::At(0), 0);
const KILL_STANDBY: Draw = |_, random| Fault::Kill(Which::At(1), random.u64(0..400));
const STOP_REPLICA: Draw =
    |_, random| Fault::Stop(Which::Replica(random.usize(0..2)), random.u64(100..2000));
const STOP_FIRST_REPLICA: Draw = |_, random| Fault::Stop(Which::Replica(0), random.u64(100..1000));
const STOP_SENTINEL: Draw =
    |_, random| Fault::StopSentinel(random.usize(0..3), random.u64(200..2500));
const FAIL_OVER: Draw = |_, _| Fault::FailOver;
const KILL_PRIMARY: Draw = |_, _| Fault::KillPrimary;
const STOP_PRIMARY: Draw = |_, _| Fault::StopPrimary;
const CUT_OFF_PRIMARY: Draw = |_, _| Fault::CutOffPrimary;
const PROMOTE_STALE: Draw = |_, _| Fault::PromoteStale;
const TAKE_OVER: Draw = |_, _| Fault::TakeOver { agreed: true };
const TAKE_OVER_BY_FORCE: Draw = |_, _| Fault::TakeOver { agreed: false };
const MOVE_SLOT: Draw = |_, _| Fault::MoveSlot;
const END_SESSIONS: Draw = |_, _| Fault::EndSessions;
const LOCK_TABLE: Draw = |it, random| Fault::LockTable(it.a_while(random));
const DELETE_RECORDS: Draw = |_, _| Fault::DeleteRecords;

impl Drawing {
    /// What the deployment claims to survive. What stands there twice is drawn twice as often.
    pub(super) fn menu(&self) -> Vec<Draw> {
        if self.algorithm == Algorithm::ValidFromAnswer {
            // All that it is wrong about.
            return vec![TOLD_LATE];
        }
        let mut menu: Vec<Draw> = Vec::new();
        if self.deployment != Local {
            menu.extend(NETWORK);
        }
        if self.deployment.is_redis() {
            menu.extend(REDIS);
        }
        let own: &[Draw] = match self.deployment {
            Local => &[],
            Server => &[RESTART, BACK],
            ServerQuarantine => &[
                RESTART,
                RESTART_EMPTY,
                KILL,
                CRASH,
                CRASH,
                FLUSH,
                LITTLE_BACK,
            ],
            ServerAof => &[RESTART, KILL, CRASH, BACK],
            Sentinel => &[STOP_REPLICA, STOP_SENTINEL],
            Acknowledged => &[
                STOP_REPLICA,
                STOP_SENTINEL,
                FAIL_OVER,
                FAIL_OVER,
                KILL_PRIMARY,
                KILL_PRIMARY,
                STOP_PRIMARY,
                STOP_PRIMARY,
                CUT_OFF_PRIMARY,
                CUT_OFF_PRIMARY,
            ],
            Cluster => &[
                STOP_FIRST_REPLICA,
                MOVE_SLOT,
                MOVE_SLOT,
                MOVE_SLOT,
                TAKE_OVER,
                TAKE_OVER,
                TAKE_OVER,
            ],
            Postgres | PostgresPooled => &[
                LOSE_ANSWERS,
                CUT_OFF,
                STOP,
                RESTART,
                KILL,
                CRASH,
                DATABASE_BACK,
                END_SESSIONS,
                LOCK_TABLE,
            ],
            // Of the commits of a server that has restarted the standby may lack the last for a while.
            PostgresStandby => &[
                LOSE_ANSWERS,
                CUT_OFF,
                STOP,
                KILL_STANDBY,
                KILL_PRIMARY,
                KILL_PRIMARY,
                STOP_PRIMARY,
                STOP_PRIMARY,
                END_SESSIONS,
                LOCK_TABLE,
            ],
            Zookeeper => &[LOSE_ANSWERS, CUT_OFF, STOP, KILL, CRASH, BACK],
            // Whichever is struck may lead.
            ZookeeperEnsemble => &[
                LOSE_ANSWERS,
                CUT_OFF,
                STOP,
                KILL,
                KILL_PRIMARY,
                KILL_PRIMARY,
                STOP_PRIMARY,
                STOP_PRIMARY,
                PART,
                CUT_OFF_PRIMARY,
                CUT_OFF_PRIMARY,
            ],
            Redlock3 | Redlock5 => &[
                CUT_OFF,
                KILL,
                CRASH,
                RESTART,
                RESTART_EMPTY,
                FLUSH,
                KILL_ALL,
                BACK_BY_A_LEASE,
            ],
        };
        menu.extend(own);
        menu
    }

    /// What it does not.
    pub(super) fn menu_beyond(&self) -> &'static [Draw] {
        match self.deployment {
            Local => &[DELETE_RECORDS],
            Server => &[FORWARD, FLUSH, CRASH, RESTART_EMPTY, EVICT],
            ServerQuarantine => &[FORWARD, EVICT],
            ServerAof => &[FORWARD, FLUSH, EVICT],
            Sentinel => &[
                FAIL_OVER,
                KILL_PRIMARY,
                STOP_PRIMARY,
                CUT_OFF_PRIMARY,
                PROMOTE_STALE,
            ],
            Acknowledged => &[PROMOTE_STALE],
            Cluster => &[KILL_PRIMARY, PROMOTE_STALE, TAKE_OVER_BY_FORCE],
            // Its commits are not synced there.
            Postgres | PostgresPooled => &[
                DATABASE_FORWARD,
                DELETE_RECORDS,
                CRASH_DATABASE,
                CRASH_DATABASE,
            ],
            PostgresStandby => &[DELETE_RECORDS, KILL_PRIMARY, STOP_PRIMARY],
            Zookeeper => &[FORWARD, DELETE_RECORDS, RESTART_EMPTY],
            // The clock of a new leader may be that of one that was behind, too.
            ZookeeperEnsemble => &[FORWARD, BACK, DELETE_RECORDS, RESTART_EMPTY],
            // Nobody waits there until what was forgotten is over.
            Redlock3 | Redlock5 if self.algorithm != Algorithm::Leasehold => &[KILL_ALL],
            Redlock3 | Redlock5 => &[FORWARD, EVICT, KILL_ALL],
        }
    }
}

fn forward(it: &Drawing, random: &mut Rng) -> i64 {
    random.i64(200..=i64::try_from(it.ttl * 2).unwrap_or(2000))
}

fn way(random: &mut Rng) -> Way {
    if random.bool() { Way::There } else { Way::Back }
}
