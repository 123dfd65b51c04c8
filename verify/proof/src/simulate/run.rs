//! One run: faults, then quiet, then a look at what is left.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use leasehold_store::sync::lock;
use serde::{Deserialize, Serialize};

use super::book::Fact;
use super::chance::Chance;
use super::faults::Faults;
use super::invariants::{Deployment, History, Invariants};
use super::plan::Plan;
use super::register::Register;
use super::stage::Stage;
use super::trace::Trace;
use super::work::keys;
use super::world::{Net, bring};
use super::{entropy, panics};
use crate::faults::check::Finding;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// From which seed.
    pub(crate) seed: u64,
    /// On what.
    pub(crate) deployment: Deployment,
    /// How many clients there were.
    pub(crate) clients: usize,
    /// How long it was, in virtual time.
    pub(crate) simulated: Duration,
    /// Attempts to get a lease.
    pub(crate) attempts: u64,
    /// Leases.
    pub(crate) grants: u64,
    /// Things that were disturbed.
    pub(crate) faults: u64,
    /// Bytes that arrived over the network.
    pub(crate) bytes: u64,
    /// Of everything that happened and every byte that arrived, when.
    pub(crate) digest: u64,
    /// What does not hold, with the last lines of the trace.
    pub(crate) violated: Option<Violation>,
}

/// Something that must hold and does not: there is no need to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Violation {
    /// Which invariant.
    pub(crate) invariant: String,
    /// What is wrong.
    pub(crate) what: String,
    /// When it was so, unless just now.
    at: Option<Duration>,
    /// What happened last.
    pub(crate) trace: Vec<String>,
}

/// After this, a process in which no client is left has no task.
const LINGER: Duration = Duration::from_secs(5);

/// Runs take seconds, with two hundred clients a minute.
const LONGEST: Duration = Duration::from_secs(600);

struct Run {
    stage: Stage,
    faults: Faults,
    history: History,
    invariants: Invariants,
    trace: Trace,
}

impl Violation {
    fn new(invariant: &str, what: String) -> Self {
        Self {
            invariant: invariant.to_owned(),
            what,
            at: None,
            trace: Vec::new(),
        }
    }
}

impl From<std::io::Error> for Violation {
    fn from(error: std::io::Error) -> Self {
        Self::new("the simulation itself", error.to_string())
    }
}

impl From<Finding> for Violation {
    fn from(found: Finding) -> Self {
        let (key, what) = (found.key, found.what);
        let at = Duration::from_micros(found.at);
        let what = format!("{key} at {at:?}: {what}");
        Self {
            at: Some(at),
            ..Self::new(&found.property.name(), what)
        }
    }
}

/// Runs a seed to its end, on a thread of its own. For the run to repeat to the byte it
/// has to be the first of its process: tokio's seeds are numbered by process.
///
/// # Errors
/// If the thread cannot be started, panics, or does not come to an end: a task that never
/// waits stops the time of its world.
pub(crate) fn run(plan: Plan, shown: bool) -> std::io::Result<Outcome> {
    let thread = std::thread::Builder::new().name("simulation".to_owned());
    let (done, outcome) = mpsc::channel();
    // Nobody who waits for it any more: the process ends.
    thread.spawn(move || done.send(run_here(plan, shown)).ok())?;
    outcome.recv_timeout(LONGEST).unwrap_or_else(|error| {
        Err(std::io::Error::other(match error {
            RecvTimeoutError::Timeout => "it does not come to an end",
            RecvTimeoutError::Disconnected => "it panicked",
        }))
    })
}

/// Runs a plan on this thread, which must be a fresh one, and does nothing else before or after.
pub(super) fn run_here(plan: Plan, shown: bool) -> std::io::Result<Outcome> {
    entropy::follow(plan.seed);
    let net = Net::new(Chance::new(plan.seed, "net"));
    let _world = bring(net.clone());
    let panics = panics::watch();
    let (seed, deployment, clients) = (plan.seed, plan.deployment, plan.clients);
    let stage = Stage::new(plan, net)?;
    let faults = Faults::new(&stage);
    let mut run = Run {
        stage,
        faults,
        history: History::new(deployment),
        invariants: Invariants::default(),
        trace: Trace::default(),
    };
    run.trace.shown = shown;
    let mut violated = run.go_to_the_end().err();
    // What has ended it may have come of this.
    if let Err(found) = run.history.check() {
        violated = Some(found.into());
    }
    if let Some(panic) = lock(&panics).clone() {
        violated = Some(Violation::new("nothing panics", panic));
    }
    if let Some(violation) = &mut violated {
        let (trace, now) = (&mut run.trace, run.stage.now());
        let (invariant, what) = (&violation.invariant, &violation.what);
        trace.note(now, format_args!("VIOLATED: {invariant}: {what}"));
        violation.trace = trace.last(violation.at.unwrap_or(now));
    }
    let (attempts, grants) = run.history.counts();
    let (carried, bytes) = run.stage.world.net.carried();
    run.trace.carried(run.stage.now(), &carried.to_le_bytes());
    Ok(Outcome {
        seed,
        deployment,
        clients,
        simulated: run.stage.now(),
        attempts,
        grants,
        faults: run.faults.count,
        bytes,
        digest: run.trace.digest.value(),
        violated,
    })
}

impl Run {
    fn go_to_the_end(&mut self) -> Result<(), Violation> {
        let chaos = self.stage.common.plan.chaos;
        while self.stage.now() < chaos {
            let limit = self.faults.next().min(chaos);
            self.step(limit)?;
            self.faults.act(&mut self.stage)?;
        }
        self.faults.end(&mut self.stage)?;
        self.stage.note(Fact::Quiet);
        self.stage.common.quiet.store(true, Ordering::Relaxed);
        let plan = &self.stage.common.plan;
        let rounds = u32::try_from(keys(plan.deployment).len()).unwrap_or(u32::MAX) + 3;
        let end = self.stage.now() + plan.patience() * rounds;
        while !self.stage.all_gone() && self.stage.now() < end {
            self.step(end)?;
        }
        let missing = self.stage.guests.len() - self.stage.common.gone.load(Ordering::Relaxed);
        self.remains("clients that do not come to an end", missing);
        self.audit()?;
        // Watchdogs stay for a second.
        let end = self.stage.now() + LINGER;
        self.advance(end)?;
        for at in 0..self.stage.guests.len() {
            let tasks = self.stage.world.hosts[self.stage.guests[at].host].tasks();
            self.remains(&format!("tasks of client {at}"), tasks);
        }
        self.advance(end + Duration::from_millis(1))
    }

    /// Looks at the store and the registers as one more client.
    fn audit(&mut self) -> Result<(), Violation> {
        let (done, mut found) = tokio::sync::oneshot::channel();
        let common = std::sync::Arc::clone(&self.stage.common);
        // What a simulated network needs: where the first client is.
        let host = self.stage.guests[0].host;
        self.stage.world.spawn(host, async move {
            let keys = keys(common.plan.deployment);
            let left = match common.open().await {
                Ok(store) => store.list("*").await.map(|found| found.len()),
                Err(error) => Err(error),
            };
            let what = "keys that somebody holds or waits for".to_owned();
            let count = left.unwrap_or(usize::MAX);
            common.book.note(Fact::Remains(what, count));
            let mut register = Register::new(common.net.clone());
            for wanted in keys.iter().filter(|wanted| wanted.fences) {
                let key = wanted.key;
                let value = register.read(key).await.unwrap_or(0);
                common.book.note(Fact::Stands { key, value });
            }
            // The run waits for it.
            let _ = done.send(());
        })?;
        let end = self.stage.now() + Duration::from_secs(30);
        while found.try_recv().is_err() {
            if self.stage.now() >= end {
                let why = "it does not come to an end".to_owned();
                return Err(Violation::new("the audit", why));
            }
            self.step(end)?;
        }
        self.step(end)
    }

    fn remains(&self, what: &str, count: usize) {
        self.stage.note(Fact::Remains(what.to_owned(), count));
    }

    fn advance(&mut self, end: Duration) -> Result<(), Violation> {
        while self.stage.now() < end {
            self.step(end)?;
        }
        Ok(())
    }

    /// One window, and what the invariants say to it.
    fn step(&mut self, limit: Duration) -> Result<(), Violation> {
        self.stage.world.step(limit);
        self.stage.common.book.look(&self.stage.world);
        for (at, fact) in self.stage.common.book.take() {
            if !matches!(fact, Fact::Believes(..)) {
                self.trace.note(at, format_args!("{fact:?}"));
            }
            self.history.see(at, &fact)?;
            let seen = self.invariants.see(at, &fact);
            seen.map_err(|(name, what)| Violation::new(name, what))?;
        }
        Ok(())
    }
}
