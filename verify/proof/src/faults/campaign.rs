//! Many schedules, several at once, each in a process of its own.
//!
//! A schedule mostly waits, so that several fit on a small machine. One that fails to run
//! (a server that does not start, say) takes nobody along, and is told apart from one that
//! has found something. Whatever ends a process ends its servers and clients too.

mod table;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use std::{iter, thread};

use clap::Args;
use futures_util::{StreamExt, stream};
use leasehold_store::sync::lock;
use leasehold_testkit::process::spawn_tied;
use tokio::sync::oneshot;

use super::history::now;
use super::plan::{Choice, Plan};
use super::run::Outcome;
pub use table::{Row, Table};

/// How to run many.
#[derive(Debug, Args)]
pub struct How {
    /// Begins no schedule after this time, as in 10m.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub limit: Option<Duration>,
    /// The seed of the first schedule; the next has the next.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many at once.
    #[arg(long, default_value = "6")]
    pub at_once: NonZeroUsize,
    /// Keeps the histories of schedules that broke a promise in this directory.
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

/// One schedule to be run.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// What is given.
    pub choice: Choice,
    /// The rest is drawn.
    pub seed: u64,
}

/// What came of a schedule: its outcome, or why there is none.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub plan: Plan,
    /// What it has shown.
    pub outcome: Result<Box<Outcome>, String>,
}

impl How {
    /// The seeds of so many schedules.
    pub fn seeds(&self, count: u64) -> impl Iterator<Item = u64> {
        let first = self.seed;
        (0..count).map(move |at| first.wrapping_add(at))
    }

    /// Runs all schedules, and tells of each schedule as it ends, with those that are still to
    /// come: what is taken out of them is not run.
    ///
    /// # Errors
    /// That there is no place for files, or that it was interrupted.
    pub async fn run(
        &self,
        jobs: impl Iterator<Item = Job>,
        mut tell: impl FnMut(&Done, &mut VecDeque<Job>),
    ) -> io::Result<()> {
        // Removed with everything in it, also what killed schedules have left.
        let scratch = temporary().tempdir()?;
        if let Some(keep) = &self.keep {
            fs::create_dir_all(keep)?;
        }
        let micros = |limit: Duration| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let end = self.limit.map(|limit| now().saturating_add(micros(limit)));
        let jobs: Mutex<VecDeque<Job>> = Mutex::new(jobs.collect());
        let in_time = || end.is_none_or(|end| now() < end);
        let next = || lock(&jobs).pop_front().filter(|_| in_time());
        let begin = |job: Job| {
            let (scratch, keep) = (scratch.path().to_owned(), self.keep.clone());
            job.in_a_thread(move || job.run(&scratch, keep.as_deref()))
        };
        let results = stream::iter(iter::from_fn(next)).map(begin);
        let mut results = pin!(results.buffer_unordered(self.at_once.get()));
        loop {
            tokio::select! {
                result = results.next() => match result {
                    Some(done) => tell(&done, &mut lock(&jobs)),
                    None => return Ok(()),
                },
                // What has begun is ended; its servers end with it.
                _ = tokio::signal::ctrl_c() => {
                    return Err(io::Error::other("interrupted: not all schedules were run"));
                }
            }
        }
    }
}

impl Job {
    /// One that panics takes nobody along, and was not run.
    async fn in_a_thread(self, run: impl FnOnce() -> Done + Send + 'static) -> Done {
        let (done, result) = oneshot::channel();
        thread::spawn(move || done.send(run()).ok());
        result.await.unwrap_or_else(|_| Done {
            plan: Plan::draw(self.choice, self.seed),
            outcome: Err("it has panicked".to_owned()),
        })
    }

    fn run(self, scratch: &Path, keep: Option<&Path>) -> Done {
        let plan = Plan::draw(self.choice, self.seed);
        let outcome = self.outcome(&plan, scratch, keep).map(Box::new);
        let outcome = outcome.map_err(|error| error.to_string());
        Done { plan, outcome }
    }

    fn outcome(self, plan: &Plan, scratch: &Path, keep: Option<&Path>) -> io::Result<Outcome> {
        let (deployment, algorithm) = (plan.deployment.name(), plan.algorithm.name());
        let mut name = format!("{deployment}-{algorithm}-{}", plan.seed);
        if plan.beyond {
            name += "-beyond";
        }
        // Not by that name: a server's socket in it may have a path of 107 bytes.
        let directory = temporary().prefix("").tempdir_in(scratch)?;
        let directory = directory.path();
        let outcome = start(plan, directory);
        let is_sound = outcome.as_ref().is_ok_and(|it| it.broken() == 0);
        if let (Some(keep), false) = (keep, is_sound) {
            let kept = keep.join(&name);
            let _ = fs::remove_dir_all(&kept);
            copy(directory, &kept)?;
        }
        outcome
    }
}

/// Runs the schedule in a process of its own, and reads its outcome.
fn start(plan: &Plan, directory: &Path) -> io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(plan.command().split(' ').skip(1))
        .args(["--json", "--keep"])
        .arg(directory.join("files"))
        // Temporary files too are gone with the directory.
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(directory.join("stderr"))?);
    let mut child = spawn_tied(command)?;
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    serde_json::from_str(&said).map_err(|_| {
        let complaint = fs::read_to_string(directory.join("stderr")).unwrap_or_default();
        let lines: Vec<_> = complaint.lines().collect();
        // What has failed, and the last that a server has said.
        let (first, rest) = lines.split_at(lines.len().min(6));
        let complaint = [first, &rest[rest.len().saturating_sub(20)..]].concat();
        io::Error::other(format!("{status}: {}", complaint.join(" | ")))
    })
}

/// A directory that is removed. PostgreSQL, which runs as a user of its own if this runs as root, can
/// enter it.
pub(super) fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut directory = tempfile::Builder::new();
    let passable = fs::Permissions::from_mode(0o711);
    directory.prefix("leasehold-proof-").permissions(passable);
    directory
}

/// Copies plain files, and of what servers have left, their logs.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name();
        let log = path.join("log");
        if kind.is_file() {
            fs::copy(&path, to.join(name))?;
        } else if name == "files" {
            copy(&path, &to.join(name))?;
        } else if log.is_file() {
            fs::copy(log, to.join(name).with_extension("log"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::plan::Deployment;
    use super::*;

    /// Else all that were run may be sound, and nobody learns of this one.
    #[tokio::test]
    async fn a_schedule_that_panics_is_told_as_not_run() {
        let choice = Choice::ours(Deployment::Local, None);
        let job = Job { choice, seed: 7 };
        let done = job.in_a_thread(|| panic!("as a bug does")).await;
        assert_eq!(done.plan.seed, 7);
        assert_eq!(done.outcome.unwrap_err(), "it has panicked");
    }

    #[tokio::test]
    async fn a_limit_may_be_longer_than_any_clock_shows() {
        let how = How {
            limit: Some(Duration::MAX),
            seed: 1,
            at_once: NonZeroUsize::MIN,
            keep: None,
        };
        how.run(iter::empty(), |_, _| {}).await.unwrap();
    }
}
