//! One schedule, from its start to what its history shows.

mod clients;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use leasehold::audit::AuditRecord;
use leasehold_testkit::process::overload;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use self::clients::Clients;
use super::check::{self, Finding, Property, Tally};
use super::client::Algorithm;
use super::clock::Shim;
use super::gate::{Gate, Written};
use super::history::{Micros, Op, now};
use super::plan::{Deployment, Fault, Plan, Timed};
use super::promise::Promise;
use super::site::Site;

/// How long everybody has to be served after the faults, on a machine that is not overloaded.
const RECOVERY: Duration = Duration::from_secs(30);

/// How many findings of a kind are told in words.
const TOLD: usize = 5;

/// A fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its name on the menu.
    pub name: String,
    /// When it began.
    pub from: Micros,
    /// When it was over.
    pub to: Micros,
    /// The longest time without a grant on one key that it has a part in, in microseconds.
    pub gap: Micros,
}

/// What a schedule has shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The schedule.
    pub plan: Plan,
    /// What was promised in it.
    pub promise: Promise,
    /// What went wrong.
    pub injected: Vec<Injected>,
    /// How often a primary was replaced, planned or not.
    pub fail_overs: usize,
    /// Claims that were made.
    pub claims: usize,
    /// Leases that were handed out.
    pub grants: usize,
    /// Leases whose holder was told that they were lost.
    pub lost: usize,
    /// Claims without a grant, by the kind of failure.
    pub failures: BTreeMap<String, usize>,
    /// Leases that were replayed on the core's queue.
    pub replayed: usize,
    /// The increments of the resources that compare tokens.
    pub fenced: Tally,
    /// The increments of those that do not.
    pub unfenced: Tally,
    /// The longest time without a grant on one key, in microseconds.
    pub longest_gap: Micros,
    /// How long it took until everybody was served when the faults had ended; `None` if they
    /// were not.
    pub recovered_in: Option<Micros>,
    /// How often each property was violated.
    pub violations: BTreeMap<Property, usize>,
    /// Some of that in words.
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// How many findings break a promise.
    pub fn broken(&self) -> usize {
        let violations = self.violations.iter();
        let broken = violations.filter(|(property, _)| self.promise.covers(**property));
        broken.map(|(_, count)| count).sum()
    }
}

/// What is left of a schedule for the checker.
#[derive(Debug)]
pub struct History {
    ops: Vec<Op>,
    written: Vec<Written>,
    injected: Vec<Injected>,
    /// Who was there to the end: client, task, key.
    tasks: Vec<(usize, usize, String)>,
    from: Micros,
    quiet: Micros,
    to: Micros,
    recovered: bool,
    fail_overs: usize,
    log: Vec<AuditRecord>,
}

/// Carries out a schedule, with all its files in `directory`.
///
/// # Errors
/// What it could not do.
///
/// # Panics
/// When a server does not do what servers do.
pub async fn run(plan: Plan, directory: &Path) -> io::Result<Outcome> {
    let shim = Shim::compile(directory)?;
    let gate = Gate::open(&directory.join("gate"))?;
    let site = Site::start(&plan, &shim, directory).await?;
    let clients = Clients::start(&plan, &site, &shim, directory)?;
    let clients = Mutex::new(clients);
    let from = now();
    let (servers, people) = tokio::join!(
        befall(&plan.servers, from, |fault| site.befall(fault)),
        befall(&plan.people, from, |fault| Clients::befall(
            &clients, &gate, fault
        )),
    );
    sleep_until(from, plan.lasts).await;
    site.heal().await;
    let clients = clients.into_inner();
    clients.heal()?;

    let quiet = now();
    let tasks = clients.tasks();
    let recovered = all_are_served(&plan, &gate, &tasks, quiet).await;
    let to = now();
    let ops = clients.finish().await?;
    let history = History {
        ops,
        log: site.audit_log().await?,
        written: gate.log(),
        injected: [servers, people].concat(),
        tasks,
        from,
        quiet,
        to,
        recovered,
        fail_overs: site.fail_overs(),
    };
    Ok(judge(plan, history))
}

/// Waits until each task has had its turn since the faults. Whether that was soon enough.
async fn all_are_served(
    plan: &Plan,
    gate: &Gate,
    tasks: &[(usize, usize, String)],
    quiet: Micros,
) -> bool {
    let mut served = gate.served();
    let mut all = pin!(served.wait_for(|served| {
        let mut tasks = tasks.iter();
        tasks.all(|(client, task, _)| served.get(&(*client, *task)).is_some_and(|at| *at >= quiet))
    }));
    let mut waited = Duration::ZERO;
    // Whoever is promised nothing may compete for ever: that makes the load.
    let is_promised = plan.algorithm == Algorithm::Leasehold && !plan.beyond;
    while waited < RECOVERY * if is_promised { overload() } else { 1 } {
        if timeout(RECOVERY / 10, &mut all).await.is_ok() {
            return true;
        }
        waited += RECOVERY / 10;
    }
    false
}

async fn sleep_until(from: Micros, after: Duration) {
    let passed = Duration::from_micros(now() - from);
    sleep(after.saturating_sub(passed)).await;
}

/// Lets faults happen, one after the other.
async fn befall<F: Future<Output = ()>>(
    faults: &[Timed],
    from: Micros,
    act: impl Fn(Fault) -> F,
) -> Vec<Injected> {
    let mut injected = Vec::new();
    for Timed { at, name, fault } in faults {
        sleep_until(from, Duration::from_millis(*at)).await;
        let began = now();
        act(*fault).await;
        injected.push(Injected {
            name: name.clone(),
            from: began,
            to: now(),
            gap: 0,
        });
    }
    injected
}

/// What is wrong with the audit log, where the store keeps one. On `local:` a client that is killed
/// between the record and the log leaves a gap.
fn audited(plan: &Plan, ops: &[Op], log: &[AuditRecord]) -> Vec<Finding> {
    if plan.algorithm != Algorithm::Leasehold || !plan.deployment.keeps_audit() {
        return Vec::new();
    }
    let findings = check::audit(ops, log);
    let is_killed = |it: &Fault| matches!(it, Fault::KillClient(_) | Fault::KillHolder);
    let killed = plan.faults().filter(is_killed);
    match plan.deployment {
        Deployment::Local if findings.len() <= killed.count() => Vec::new(),
        _ => findings,
    }
}

/// Reads the history.
fn judge(plan: Plan, history: History) -> Outcome {
    let (ops, written, mut injected) = (history.ops, history.written, history.injected);
    let gaps = check::gaps(&ops, history.from, history.to);
    let length = |gap: check::Gap| gap.end - gap.start;
    let longest = |from, to| check::longest_gap(&gaps, from, to).map_or(0, length);
    for fault in &mut injected {
        // One that is over at once has its effect afterwards.
        fault.gap = longest(fault.from, fault.to + 1);
    }
    let replayed = check::replay(&ops);
    let (fenced, lost_updates) = check::fenced_writes(&ops, &written);
    let found = [
        check::exclusion(&ops),
        check::tokens(&ops),
        lost_updates,
        check::order(&ops),
        replayed.findings,
        check::unserved(&ops, &history.tasks, history.quiet),
        audited(&plan, &ops, &history.log),
    ];
    let mut violations = BTreeMap::new();
    for finding in found.iter().flatten() {
        *violations.entry(finding.property).or_insert(0) += 1;
    }
    let told = found.into_iter().flat_map(|it| it.into_iter().take(TOLD));
    let mut failures = BTreeMap::new();
    for failed in ops.iter().filter_map(|op| op.failed.clone()) {
        *failures.entry(failed).or_insert(0) += 1;
    }
    let grants = ops.iter().filter_map(|op| op.grant.as_ref());
    Outcome {
        promise: Promise::of(&plan, history.fail_overs),
        fail_overs: history.fail_overs,
        claims: ops.len(),
        grants: grants.clone().count(),
        lost: grants.filter(|grant| grant.lost.is_some()).count(),
        failures,
        replayed: replayed.leases,
        fenced,
        unfenced: check::unfenced_writes(&written),
        longest_gap: longest(history.from, history.to),
        recovered_in: history.recovered.then_some(history.to - history.quiet),
        violations,
        findings: told.collect(),
        injected,
        plan,
    }
}
