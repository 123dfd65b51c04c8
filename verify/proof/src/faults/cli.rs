//! The commands.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks to its user"
)]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use futures_util::future::{BoxFuture, ready};
use leasehold_testkit::process::overload;

use super::campaign::{self, Done, How, Job, Row, Table};
use super::client::{self, Algorithm, Failure, OpenPeer, Opened, Spec, runtime};
use super::history::Micros;
use super::plan::{Choice, Deployment, Plan};
use super::power::Trials;
use super::run::{self, Outcome};

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Many schedules of faults on real servers, and what they have shown.
    Faults(Faults),
    /// The same over locks that are known to be broken: each has to be found out.
    Power(Power),
    /// One schedule of faults on real servers, by its seed.
    Schedule(Schedule),
    /// A client process of a schedule.
    #[command(hide = true)]
    Client {
        /// What it is to do.
        spec: String,
    },
}

/// Many schedules.
#[derive(Debug, Args)]
pub struct Faults {
    /// Where the locks are; everywhere unless said.
    deployments: Vec<Deployment>,
    /// How many schedules of each: 3 unless said, or as many as fit in the time.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: Option<u64>,
    #[command(flatten)]
    how: How,
    /// Whether they stay within what the deployment assumes. Drawn unless said: one in four does
    /// not.
    #[arg(long, value_enum)]
    assumptions: Option<Assumptions>,
}

/// Trials of broken locks.
#[derive(Debug, Args)]
pub struct Power {
    /// Whose locks; all that this program is built with, unless said.
    #[arg(long, value_enum)]
    algorithm: Vec<Algorithm>,
    /// How many schedules of each.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,
    /// Leaves a lock alone once it has been found out.
    #[arg(long)]
    until_found: bool,
    #[command(flatten)]
    how: How,
}

/// One schedule.
#[derive(Debug, Args)]
pub struct Schedule {
    /// Where the locks are.
    deployment: Deployment,
    /// Which schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whether it stays within what the deployment assumes. Drawn unless said.
    #[arg(long, value_enum)]
    assumptions: Option<Assumptions>,
    /// Whose locks.
    #[arg(long, value_enum, default_value_t = Algorithm::Leasehold)]
    algorithm: Algorithm,
    /// Keeps all files in this directory, which must not exist.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Prints the whole outcome as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Assumptions {
    Within,
    Beyond,
}

impl Assumptions {
    fn is_beyond(self) -> bool {
        self == Self::Beyond
    }
}

/// Something other than a finding has gone wrong.
const TROUBLE: u8 = 2;

/// More than fit in a day.
const AS_MANY_AS_FIT: u64 = 100_000;

/// No schedule takes longer, unless its servers hang.
const LIMIT: Duration = Duration::from_secs(150);

impl Command {
    /// Runs it. `peer` opens locks of others.
    pub fn run(self, peer: OpenPeer) -> ExitCode {
        let status = match self {
            Self::Faults(faults) => faults.run(),
            Self::Power(power) => power.run(peer),
            Self::Schedule(schedule) => schedule.run(),
            Self::Client { spec } => match serde_json::from_str(&spec) {
                Ok(spec) => return client::main(spec, peer),
                Err(error) => Err(error.into()),
            },
        };
        conclude(status)
    }
}

/// Whether all was well, as a program says it.
pub fn conclude(status: io::Result<bool>) -> ExitCode {
    match status {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("leasehold-proof: {error}");
            ExitCode::from(TROUBLE)
        }
    }
}

/// For a program that is built without the locks of others.
pub fn no_peer(_: &Spec) -> BoxFuture<'_, Opened> {
    let why = "only `peers/` is built with the locks of others";
    Box::pin(ready(Err(Failure::new("unsupported", &why))))
}

impl Faults {
    fn run(&self) -> io::Result<bool> {
        let deployments = match &self.deployments[..] {
            [] => Deployment::value_variants(),
            named => named,
        };
        let beyond = self.assumptions.map(Assumptions::is_beyond);
        let as_many = self.how.limit.map_or(3, |_| AS_MANY_AS_FIT);
        let seeds = self.how.seeds(self.schedules.unwrap_or(as_many));
        // One of each in turn, so that a run that is cut short has had all.
        let jobs = seeds.flat_map(|seed| {
            deployments.iter().map(move |deployment| Job {
                choice: Choice::ours(*deployment, beyond),
                seed,
            })
        });
        let mut table = Table::default();
        let campaign = self.how.run(jobs, |done, _| count(&mut table, done));
        let run = runtime()?.block_on(campaign);
        println!("\n{table}");
        run?;
        let has_run = |deployment: &Deployment| table.0.contains_key(&deployment.name());
        if !deployments.iter().all(has_run) {
            let why = "not every deployment had a schedule: give it more time with --for";
            return Err(io::Error::other(why));
        }
        let sound = |row: &Row| row.broken() == 0 && row.failed == 0;
        Ok(table.0.values().all(sound))
    }
}

/// Tells of a schedule, and counts it in.
fn count(table: &mut Table, done: &Done) {
    let name = done.plan.deployment.name();
    let row = table.0.entry(name).or_default();
    match &done.outcome {
        Ok(outcome) => {
            row.outcomes.push((**outcome).clone());
            println!("{}: {}", done.plan.command(), line(outcome));
            if outcome.broken() > 0 {
                println!("BROKEN. Again with: {}", done.plan.command());
                for finding in &outcome.findings {
                    println!("  {finding}");
                }
            }
        }
        Err(why) => {
            row.failed += 1;
            println!("NOT RUN: {}: {why}", done.plan.command());
        }
    }
}

impl Power {
    fn run(&self, peer: OpenPeer) -> io::Result<bool> {
        let has_peers = !std::ptr::fn_addr_eq(peer, no_peer as OpenPeer);
        let mut trials = Trials::of(&self.algorithm, has_peers);
        let seeds = self.how.seeds(self.schedules);
        let jobs: Vec<_> = seeds.flat_map(|seed| trials.jobs(seed)).collect();
        let campaign = self.how.run(jobs.into_iter(), |done, to_come| {
            if let Some(told) = trials.add(done) {
                println!("{told}");
            }
            if self.until_found {
                to_come.retain(|job| trials.is_open(job));
            }
        });
        let run = runtime()?.block_on(campaign);
        println!("\n{trials}");
        run?;
        Ok(trials.all_as_they_should_be())
    }
}

impl Schedule {
    fn run(&self) -> io::Result<bool> {
        let choice = Choice {
            deployment: self.deployment,
            beyond: self.assumptions.map(Assumptions::is_beyond),
            algorithm: self.algorithm,
        };
        let plan = Plan::draw(choice, self.seed);
        if !self.json {
            print!("{plan}");
        }
        give_up_after(LIMIT);
        let temporary = campaign::temporary().tempdir()?;
        let directory = match &self.keep {
            Some(keep) => {
                std::fs::create_dir(keep)?;
                keep.clone()
            }
            None => temporary.path().to_owned(),
        };
        let outcome = runtime()?.block_on(run::run(plan, &directory))?;
        if self.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            tell(&outcome);
        }
        Ok(outcome.broken() == 0)
    }
}

/// Ends the process, and with it its servers, if it hangs; later on a machine that is overloaded.
fn give_up_after(limit: Duration) {
    let (never, end) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let (_never, mut waited) = (never, Duration::ZERO);
        while waited < limit * overload() {
            let _ = end.recv_timeout(limit / 10);
            waited += limit / 10;
        }
        eprintln!("leasehold-proof: not over after {waited:?}");
        std::process::abort();
    });
}

fn tell(outcome: &Outcome) {
    for fault in &outcome.injected {
        let millis = |time: Micros| time / 1000;
        let (took, gap) = (millis(fault.to - fault.from), millis(fault.gap));
        println!("{}: {took} ms, {gap} ms without a grant", fault.name);
    }
    println!("{}", line(outcome));
    for finding in &outcome.findings {
        let promised = outcome.promise.covers(finding.property);
        let heading = if promised { "BROKEN" } else { "not promised" };
        println!("{heading}: {finding}");
    }
}

/// An outcome in a line.
fn line(outcome: &Outcome) -> String {
    let (claims, grants, lost) = (outcome.claims, outcome.grants, outcome.lost);
    let (failures, replayed) = (&outcome.failures, outcome.replayed);
    let (fenced, unfenced, promise) = (outcome.fenced, outcome.unfenced, outcome.promise);
    let recovered = outcome
        .recovered_in
        .map_or_else(|| "never".to_owned(), |it| format!("{} ms", it / 1000));
    format!(
        "{claims} claims, {grants} leases, {lost} lost, {failures:?}; {replayed} replayed; \
         fenced {fenced:?}, unfenced {unfenced:?}; {} fail-overs; longest gap {} ms, served \
         again in {recovered}; {promise:?}; violations {:?}, of promises {}",
        outcome.fail_overs,
        outcome.longest_gap / 1000,
        outcome.violations,
        outcome.broken(),
    )
}
