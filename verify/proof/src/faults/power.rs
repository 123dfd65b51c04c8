//! The same schedules, over locks that are known to be broken.
//!
//! A harness that finds nothing has shown nothing until it has found what is there. So it
//! runs on locks with a known fault each, and has to find that two hold at once. Beside each runs leasehold, with the same seeds.

use std::fmt;

use super::campaign::{Done, Job, Row};
use super::check::{Finding, Property};
use super::client::Algorithm::{
    self, DelWithoutOwner, DistributedLock, Leasehold, PlainRedlock, RenewWithoutOwner, Rslock,
    ValidFromAnswer,
};
use super::plan::Choice;
use super::plan::Deployment::{self, Local, Postgres, Redlock3, ServerAof, Zookeeper};
use super::run::Outcome;

/// What is tried, and what came of it so far.
#[derive(Debug)]
pub struct Trials(Vec<Trial>);

#[derive(Debug)]
struct Trial {
    algorithm: Algorithm,
    deployment: Deployment,
    expected: Expected,
    row: Row,
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
const ALL: [(Algorithm, Deployment, Expected); 13] = [
    (DelWithoutOwner, ServerAof, Expected::Broken),
    (RenewWithoutOwner, ServerAof, Expected::Broken),
    (ValidFromAnswer, ServerAof, Expected::Broken),
    (PlainRedlock, Redlock3, Expected::Broken),
    (Leasehold, ServerAof, Expected::Sound),
    (Leasehold, Redlock3, Expected::Sound),
    (Leasehold, Local, Expected::Sound),
    (Leasehold, Postgres, Expected::Sound),
    (Leasehold, Zookeeper, Expected::Sound),
    // The published ones; what they are known for depends on their versions.
    (Rslock, ServerAof, Expected::Open),
    (Rslock, Redlock3, Expected::Open),
    (DistributedLock, ServerAof, Expected::Open),
    (DistributedLock, Redlock3, Expected::Open),
];

impl Trials {
    /// The trials of some algorithms, or of all that there are.
    pub fn of(algorithms: &[Algorithm], has_peers: bool) -> Self {
        let wanted = ALL.into_iter().filter(|(it, _, expected)| {
            let is_here = has_peers || *expected != Expected::Open;
            is_here && (algorithms.is_empty() || algorithms.contains(it))
        });
        let trial = |(algorithm, deployment, expected)| Trial {
            algorithm,
            deployment,
            expected,
            row: Row::default(),
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
            Err(why) => return Some(format!("NOT RUN: {command}: {why}")),
        };
        trial.row.outcomes.push((**outcome).clone());
        let seen = two_at_once(outcome)?;
        Some(format!("{command}: {}", seen.what))
    }

    /// Whether a schedule may still show something new.
    pub fn is_open(&self, job: &Job) -> bool {
        let of = (job.choice.algorithm, job.choice.deployment);
        let mut trials = self.0.iter();
        let trial = trials.find(|trial| (trial.algorithm, trial.deployment) == of);
        trial.is_some_and(|trial| match trial.expected {
            Expected::Sound => trial.row.outcomes.len() < ENOUGH,
            Expected::Broken | Expected::Open => trial.found() == 0,
        })
    }

    /// Whether all that are broken were found out, and none of the sound was blamed.
    #[must_use]
    pub fn all_as_they_should_be(&self) -> bool {
        let is_right = |trial: &Trial| match trial.expected {
            Expected::Broken => trial.found() > 0,
            Expected::Sound => trial.found() == 0 && !trial.row.outcomes.is_empty(),
            Expected::Open => true,
        };
        self.0.iter().all(is_right)
    }
}

impl Trial {
    /// In how many schedules two held at once.
    fn found(&self) -> usize {
        self.row.sum(|it| usize::from(two_at_once(it).is_some()))
    }
}

fn two_at_once(outcome: &Outcome) -> Option<&Finding> {
    let mut findings = outcome.findings.iter();
    findings.find(|it| it.property == Property::Exclusion)
}

impl fmt::Display for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "| lock | on | schedules | leases | two held at once in | increments | of them lost \
             | first seen |\n|---|---|---|---|---|---|---|---|\n",
        )?;
        for trial in &self.0 {
            let (lock, on) = (trial.algorithm.name(), trial.deployment.name());
            let (row, found) = (&trial.row, trial.found());
            let (schedules, leases) = (row.outcomes.len(), row.sum(|it| it.grants));
            let taken = row.sum(|it| it.unfenced.taken);
            let lost = row.sum(|it| it.unfenced.lost);
            let mut outcomes = row.outcomes.iter();
            let first = outcomes.find_map(|it| Some((it, two_at_once(it)?)));
            let first = first.map(|(it, seen)| format!("`{}`: {}", it.plan.command(), seen.what));
            let first = first.unwrap_or_default();
            writeln!(
                f,
                "| {lock} | `{on}` | {schedules} | {leases} | {found} | {taken} | {lost} | {first} |"
            )?;
        }
        Ok(())
    }
}
