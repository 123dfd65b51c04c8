//! The same schedules, over locks that are known to be broken.
//!
//! A harness that finds nothing has shown nothing until it has found what is there. So it
//! runs on locks with a known fault each, and has to find that two hold at once. Beside each runs leasehold, with the same seeds.

use std::fmt;

use super::campaign::{Done, Job};
use super::check::Property;
use super::client::Algorithm::{
    self, DelWithoutOwner, DistributedLock, Leasehold, PlainRedlock, RenewWithoutOwner, Rslock,
    ValidFromAnswer,
};
use super::plan::Choice;
use super::plan::Deployment::{self, Local, Postgres, Redlock3, ServerAof, Zookeeper};

/// What is tried, and what came of it so far.
#[derive(Debug)]
pub struct Trials(Vec<Trial>);

#[derive(Debug)]
struct Trial {
    algorithm: Algorithm,
    deployment: Deployment,
    expected: Expected,
    schedules: usize,
    failed: usize,
    leases: usize,
    /// Increments of the resource that compares nothing: taken, and lost.
    increments: (u64, u64),
    /// How many schedules showed two that held at once.
    found: usize,
    /// The first of them: its command, and what was seen.
    first: Option<(String, String)>,
}

/// Whether two hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// They do, and it has to be found.
    Broken,
    /// They do not.
    Sound,
    /// It is to be seen.
    Open,
}

/// How often the sound are tried where nothing is to be found.
const ENOUGH: usize = 3;

/// Locks, where they are tried, and what is known of them.
const KNOWN: [(Algorithm, Deployment, Expected); 9] = [
    (DelWithoutOwner, ServerAof, Expected::Broken),
    (RenewWithoutOwner, ServerAof, Expected::Broken),
    (ValidFromAnswer, ServerAof, Expected::Broken),
    (PlainRedlock, Redlock3, Expected::Broken),
    (Leasehold, ServerAof, Expected::Sound),
    (Leasehold, Redlock3, Expected::Sound),
    (Leasehold, Local, Expected::Sound),
    (Leasehold, Postgres, Expected::Sound),
    (Leasehold, Zookeeper, Expected::Sound),
];

/// The published ones; what they are known for depends on their versions.
const PEERS: [(Algorithm, Deployment, Expected); 4] = [
    (Rslock, ServerAof, Expected::Open),
    (Rslock, Redlock3, Expected::Open),
    (DistributedLock, ServerAof, Expected::Open),
    (DistributedLock, Redlock3, Expected::Open),
];

impl Trials {
    /// The trials of some algorithms, or of all that there are.
    pub fn of(algorithms: &[Algorithm], has_peers: bool) -> Self {
        let peers = PEERS.into_iter().filter(|_| has_peers);
        let all = KNOWN.into_iter().chain(peers);
        let wanted = all.filter(|(it, ..)| algorithms.is_empty() || algorithms.contains(it));
        let trial = |(algorithm, deployment, expected)| Trial {
            algorithm,
            deployment,
            expected,
            schedules: 0,
            failed: 0,
            leases: 0,
            increments: (0, 0),
            found: 0,
            first: None,
        };
        Self(wanted.map(trial).collect())
    }

    /// A schedule of each.
    pub fn jobs(&self, seed: u64) -> Vec<Job> {
        let job = |trial: &Trial| Job {
            choice: Choice {
                deployment: trial.deployment,
                // Redlock has never said that it survives what this one is to be found by.
                beyond: Some(trial.algorithm == PlainRedlock),
                algorithm: trial.algorithm,
            },
            seed,
        };
        self.0.iter().map(job).collect()
    }

    /// Counts a schedule in, and says so if it shows something.
    pub fn add(&mut self, done: &Done) -> Option<String> {
        let of = (done.plan.algorithm, done.plan.deployment);
        let mut trials = self.0.iter_mut();
        let trial = trials.find(|trial| (trial.algorithm, trial.deployment) == of)?;
        let command = done.plan.command();
        let outcome = match &done.outcome {
            Ok(outcome) => outcome,
            Err(why) => {
                trial.failed += 1;
                return Some(format!("NOT RUN: {command}: {why}"));
            }
        };
        trial.schedules += 1;
        trial.leases += outcome.grants;
        trial.increments.0 += outcome.unfenced.taken;
        trial.increments.1 += outcome.unfenced.lost;
        let mut findings = outcome.findings.iter();
        let seen = findings.find(|it| it.property == Property::Exclusion)?;
        trial.found += 1;
        let told = format!("{command}: {}", seen.what);
        trial
            .first
            .get_or_insert_with(|| (command, seen.what.clone()));
        Some(told)
    }

    /// Whether a schedule may still show something new.
    pub fn is_open(&self, job: &Job) -> bool {
        let of = (job.choice.algorithm, job.choice.deployment);
        let mut trials = self.0.iter();
        let trial = trials.find(|trial| (trial.algorithm, trial.deployment) == of);
        trial.is_some_and(|trial| match trial.expected {
            Expected::Sound => trial.schedules < ENOUGH,
            Expected::Broken | Expected::Open => trial.found == 0,
        })
    }

    /// Whether all that are broken were found out, and none of the sound was blamed.
    #[must_use]
    pub fn all_as_they_should_be(&self) -> bool {
        let is_right = |trial: &Trial| match trial.expected {
            Expected::Broken => trial.found > 0,
            Expected::Sound => trial.found == 0 && trial.schedules > 0,
            Expected::Open => true,
        };
        self.0.iter().all(is_right)
    }
}

impl fmt::Display for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "| lock | on | schedules | leases | two held at once in | increments | of them lost \
             | first seen |\n|---|---|---|---|---|---|---|---|\n",
        )?;
        for trial in &self.0 {
            let (lock, on) = (trial.algorithm.name(), trial.deployment.name());
            let (schedules, leases, found) = (trial.schedules, trial.leases, trial.found);
            let (taken, lost) = trial.increments;
            let first = trial.first.as_ref();
            let first = first.map_or_else(String::new, |(it, seen)| format!("`{it}`: {seen}"));
            writeln!(
                f,
                "| {lock} | `{on}` | {schedules} | {leases} | {found} | {taken} | {lost} | {first} |"
            )?;
        }
        Ok(())
    }
}
