//! A schedule: which servers and clients there are, and what goes wrong when. Drawn from
//! a seed; the same seed is the same schedule.

mod deployment;
mod draw;
mod menu;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{Algorithm, Task};
pub use deployment::Deployment;
pub(super) use draw::MAX_TTL;

/// A way through the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Requests.
    There,
    /// Answers and pushes.
    Back,
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// By its place.
    At(usize),
    /// The primary; of a cluster, that of the first key; of an ensemble, the leader.
    Primary,
    /// A replica of that primary, by its place among them.
    Replica(usize),
}

/// What becomes of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// It is kept.
    Kept,
    /// It is lost.
    Lost,
}

/// Something that goes wrong, for so many milliseconds if it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// All connections are reset.
    Reset(Which),
    /// As that, and none is accepted for a while.
    Refuse(Which, u64),
    /// Everything one way comes so many milliseconds late, for a while.
    Delay(Which, Way, u64, u64),
    /// Everything one way stands still, and then goes on.
    Hold(Which, Way, u64),
    /// Everything one way gets lost without a word.
    BlackHole(Which, Way, u64),
    /// As that, both ways.
    CutOff(Which, u64),
    /// Connections end at the server, and the clients are not told.
    HalfOpen(Which),
    /// The next commands are carried out and not answered.
    Swallow(Which, u64),
    /// The next script is neither carried out nor answered.
    LoseRequest(Which),
    /// What comes for a while is carried out and not answered; then all connections are reset.
    LoseAnswers(Which, u64),
    /// Stopped in its tracks.
    Stop(Which, u64),
    /// Killed, and started again: with what is on its disk.
    Kill(Which, u64),
    /// Shut down in an orderly way (ZooKeeper: killed) and started again.
    Restart(Which, Data),
    /// Killed all at once, and started again.
    KillAll(u64),
    /// A script that computes for long, so that others are told `BUSY`.
    SlowScript(Which),
    /// Its memory is full, and it evicts nothing.
    MemoryFull(Which, u64),
    /// Its memory is full, and it evicts anything.
    Evict(Which, u64),
    /// It knows no script any more.
    ForgetScripts(Which),
    /// `FLUSHALL`.
    Flush(Which),
    /// Its clock steps by so many milliseconds.
    StepClock(Which, i64),
    /// The Sentinels are told to fail over.
    FailOver,
    /// The primary dies, is replaced, and comes back (PostgreSQL: not).
    KillPrimary,
    /// The primary stands still until it is replaced, and goes on (PostgreSQL: is killed).
    StopPrimary,
    /// The primary cannot be reached (ZooKeeper: by the other servers) until it is replaced, and comes
    /// back.
    CutOffPrimary,
    /// A server cannot be reached by the others, and can by clients.
    Part(Which, u64),
    /// A replica that had been cut off from its primary takes its place.
    PromoteStale,
    /// A replica takes the place of its primary: in agreement with it, or not.
    TakeOver {
        /// Whether the primary agrees.
        agreed: bool,
    },
    /// The slot of the first key moves to another primary.
    MoveSlot,
    /// A Sentinel stands still.
    StopSentinel(usize, u64),
    /// All sessions are terminated by the server.
    EndSessions,
    /// Somebody has locked the table of the keys.
    LockTable(u64),
    /// The files of the local store are deleted, or the rows of the database, or the nodes.
    DeleteRecords,
    /// A client is killed, and another started in its place.
    KillClient(usize),
    /// A client stands still.
    StopClient(usize, u64),
    /// As those, but whoever gets a key next.
    KillHolder,
    /// Likewise.
    StopHolder(u64),
    /// A client's time of day steps by so many milliseconds.
    StepClientClock(usize, i64),
}

/// A fault, and when it begins: so many milliseconds after the start, or when the one
/// before it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Milliseconds after the start.
    pub at: u64,
    /// Its name on the menu, and in tables.
    pub name: String,
    /// What.
    pub fault: Fault,
}

impl Timed {
    pub(super) fn new(at: u64, name: &str, fault: Fault) -> Self {
        let name = name.to_owned();
        Self { at, name, fault }
    }
}

/// What is drawn, besides a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Where the locks are.
    pub deployment: Deployment,
    /// Whether things happen that the deployment does not claim to survive. Drawn unless given.
    pub beyond: Option<bool>,
    /// Whose locks.
    pub algorithm: Algorithm,
}

impl Choice {
    /// With our own locks.
    pub fn ours(deployment: Deployment, beyond: Option<bool>) -> Self {
        let algorithm = Algorithm::Leasehold;
        Self {
            deployment,
            beyond,
            algorithm,
        }
    }
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// Where the locks are.
    pub deployment: Deployment,
    /// Whose locks.
    pub algorithm: Algorithm,
    /// Whether things happen that the deployment does not claim to survive.
    pub beyond: bool,
    /// How long leases live.
    pub ttl: Duration,
    /// How many have to acknowledge a grant, if any.
    pub acknowledge: Option<u32>,
    /// Whether restarted servers wait before they grant, or vote.
    pub quarantine: bool,
    /// The tasks of each client.
    pub clients: Vec<Vec<Task>>,
    /// What happens to servers and the network, one after the other.
    pub servers: Vec<Timed>,
    /// What happens to clients, one after the other.
    pub people: Vec<Timed>,
    /// How long it goes on.
    pub lasts: Duration,
}

impl Plan {
    /// All that goes wrong.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        self.servers.iter().chain(&self.people).map(|it| it.fault)
    }

    /// The keys, each once.
    pub fn keys(&self) -> Vec<&str> {
        let keys = self.clients.iter().flatten().map(|task| &*task.key);
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Whether the server answers before a commit is on its disk.
    pub fn is_unsynced(&self) -> bool {
        self.deployment.is_postgres() && self.beyond
    }

    /// How to do it again.
    pub fn command(&self) -> String {
        let (deployment, seed) = (self.deployment.name(), self.seed);
        let beyond = if self.beyond { "beyond" } else { "within" };
        let mut command =
            format!("leasehold-proof schedule {deployment} --seed {seed} --assumptions {beyond}");
        if self.algorithm != Algorithm::Leasehold {
            command += &format!(" --algorithm {}", self.algorithm.name());
        }
        command
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: usize = self.clients.iter().map(Vec::len).sum();
        let (clients, ttl, lasts) = (self.clients.len(), self.ttl, self.lasts);
        writeln!(f, "{}", self.command())?;
        writeln!(
            f,
            "{clients} clients, {tasks} tasks, TTL {ttl:?}, {lasts:?}"
        )?;
        for Timed { at, fault, .. } in self.servers.iter().chain(&self.people) {
            writeln!(f, "{at:>6} ms {fault:?}")?;
        }
        Ok(())
    }
}
