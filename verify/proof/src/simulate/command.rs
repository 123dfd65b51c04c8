//! `leasehold-proof simulate`: one seed in this process, or many, each in one of its
//! own.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use leasehold_testkit::process::spawn_tied;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::flaws::Flaw;
use super::invariants::Deployment;
use super::plan::Plan;
use super::run::{Outcome, run};
use crate::value_name::value_name;

/// What to simulate.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The seed, or the first of many. Alone it runs in this process.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// So many seeds, one after another.
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// Seeds for so long.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// How many clients; by the seed unless it is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub clients: Option<u16>,
    /// On what; by the seed unless it is said.
    #[arg(long, value_name = "STORE")]
    pub store: Option<Deployment>,
    /// Hold stores to their promises even after they have lost their data: shows what is
    /// not promised.
    #[arg(long)]
    pub overclaim: bool,
    /// Break something on purpose: has to fail.
    #[arg(long, value_name = "FLAW")]
    pub flaw: Option<Flaw>,
    /// End at the first seed that fails.
    #[arg(long)]
    pub first: bool,
    /// Print what happens.
    #[arg(long)]
    pub trace: bool,
    /// How many seeds run at a time.
    #[arg(long, value_name = "N", default_value_t = threads())]
    pub jobs: NonZeroUsize,
    /// Print what came of a seed for the program that runs many.
    #[arg(long, hide = true)]
    json: bool,
}

fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// What many runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    attempts: u64,
    grants: u64,
    faults: u64,
    simulated: Duration,
    failed: u64,
}

fn deployment(options: &Options, seed: u64) -> Deployment {
    let all = Deployment::value_variants();
    let by_seed = all[usize::try_from(seed % 3).unwrap_or(0)];
    let shows = options.flaw.map(Flaw::deployment);
    options.store.or(shows).unwrap_or(by_seed)
}

/// Simulates, and writes what came of it; whether everything held.
///
/// # Errors
/// If a run cannot be started, or the output is closed.
pub fn simulate(options: &Options, out: &mut impl Write) -> io::Result<bool> {
    if options.seeds.is_some() || options.time.is_some() {
        // Of many nothing is shown as it happens.
        let trace = false;
        return many(
            &Options {
                trace,
                ..options.clone()
            },
            out,
        );
    }
    let clients = options.clients.map(usize::from);
    let mut plan = Plan::new(options.seed, deployment(options, options.seed), clients);
    plan.overclaims = options.overclaim;
    if let Some(flaw) = options.flaw {
        plan = plan.with_flaw(flaw);
    }
    match run(plan, options.trace) {
        Ok(outcome) => {
            match options.json {
                true => writeln!(out, "{}", serde_json::to_string(&outcome)?)?,
                false => tell(options, &outcome, out)?,
            }
            Ok(outcome.violated.is_none())
        }
        Err(error) => {
            let seed = options.seed;
            writeln!(out, "seed {seed}: the simulation itself: {error}")?;
            tell_how_again(options, seed, out)?;
            Ok(false)
        }
    }
}

fn tell_how_again(options: &Options, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let arguments = again(options, seed);
    writeln!(
        out,
        "again: cargo run -p leasehold-proof -- {arguments} --trace"
    )
}

fn tell(options: &Options, outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    let (seed, store) = (outcome.seed, value_name(&outcome.deployment));
    if let Some(violation) = &outcome.violated {
        for line in violation.trace.iter().filter(|_| !options.trace) {
            writeln!(out, "{line}")?;
        }
        let (invariant, what) = (&violation.invariant, &violation.what);
        writeln!(out, "seed {seed}: {invariant}: {what}")?;
        tell_how_again(options, seed, out)?;
    }
    let (clients, attempts, grants) = (outcome.clients, outcome.attempts, outcome.grants);
    let (faults, bytes, digest) = (outcome.faults, outcome.bytes, outcome.digest);
    let simulated = outcome.simulated.as_millis();
    writeln!(
        out,
        "seed {seed} store {store} clients {clients} attempts {attempts} grants {grants} \
         faults {faults} bytes {bytes} simulated_ms {simulated} digest {digest:016x}"
    )
}

/// Each seed in a process of its own: there the run is the first, and one that hangs or
/// dies takes no other with it.
fn many(options: &Options, out: &mut impl Write) -> io::Result<bool> {
    let began = Instant::now();
    let more = options.seeds.map_or(u64::MAX, |seeds| seeds - 1);
    let seeds = options.seed..=options.seed.saturating_add(more);
    let in_time = |_: &u64| options.time.is_none_or(|time| began.elapsed() < time);
    let begin = |seed| {
        let options = options.clone();
        spawn_blocking(move || apart(&options, seed))
    };
    let runs = stream::iter(seeds.take_while(in_time)).map(begin);
    // In their order: which seed is the first to fail does not depend on the machine.
    let mut runs = pin!(runs.buffered(options.jobs.get()));
    let mut tally = Tally::default();
    let told = async {
        while let Some(told) = runs.next().await {
            let (seed, told) = told??;
            tally.count(options, seed, &told, out)?;
            if options.first && !told.status.success() {
                break;
            }
        }
        io::Result::Ok(())
    };
    Builder::new_current_thread().build()?.block_on(told)?;
    summary(&tally, began.elapsed(), out)?;
    if tally.runs == 0 {
        let why = "no seed was run: give it more time with --for";
        return Err(io::Error::other(why));
    }
    Ok(tally.failed == 0)
}

/// The arguments that run one seed.
fn again(options: &Options, seed: u64) -> String {
    let store = value_name(&deployment(options, seed));
    let mut arguments = format!("simulate --seed {seed} --store {store}");
    if let Some(clients) = options.clients {
        arguments += &format!(" --clients {clients}");
    }
    if options.overclaim {
        arguments += " --overclaim";
    }
    if let Some(flaw) = options.flaw {
        arguments += &format!(" --flaw {}", value_name(&flaw));
    }
    arguments
}

/// What a process says of its seed; it succeeds if everything held.
fn apart(options: &Options, seed: u64) -> io::Result<(u64, Output)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(again(options, seed).split(' ')).arg("--json");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // It may take minutes, which nobody would wait for who has killed this one.
    let told = spawn_tied(command)?.wait_with_output()?;
    Ok((seed, told))
}

impl Tally {
    fn count(
        &mut self,
        options: &Options,
        seed: u64,
        told: &Output,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.runs += 1;
        self.failed += u64::from(!told.status.success());
        let outcome = serde_json::from_slice::<Outcome>(&told.stdout);
        let fits = |it: &Outcome| it.violated.is_none() == told.status.success();
        let Some(outcome) = outcome.ok().filter(fits) else {
            // One that is killed cannot say which it was.
            out.write_all(&told.stdout)?;
            writeln!(out, "seed {seed}: its process has ended: {}", told.status)?;
            return tell_how_again(options, seed, out);
        };
        self.attempts += outcome.attempts;
        self.grants += outcome.grants;
        self.faults += outcome.faults;
        self.simulated += outcome.simulated;
        match outcome.violated {
            Some(_) => tell(options, &outcome, out),
            None => Ok(()),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates for people")]
fn summary(tally: &Tally, took: Duration, out: &mut impl Write) -> io::Result<()> {
    let (runs, failed, faults) = (tally.runs, tally.failed, tally.faults);
    let (attempts, leases) = (tally.attempts, tally.grants);
    let (took, simulated) = (took.as_secs_f64(), tally.simulated.as_secs_f64());
    let counts = [attempts as f64, leases as f64, faults as f64, simulated];
    let [asked, granted, disturbed, passed] = counts.map(|count| count / took.max(0.001));
    writeln!(
        out,
        "{runs} seeds in {took:.1} s, {failed} of them failed: {attempts} attempts ({asked:.0}/s), \
         {leases} leases ({granted:.0}/s), {faults} faults ({disturbed:.1}/s), \
         {simulated:.0} s simulated ({passed:.0} s/s)"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    /// Also where it has said before that all held.
    #[test]
    fn a_seed_whose_process_was_killed_is_named() {
        let options = Cli::parse_from(["simulate"]).options;
        let held = Outcome {
            seed: 7,
            deployment: Deployment::Redis,
            clients: 1,
            simulated: Duration::ZERO,
            attempts: 0,
            grants: 0,
            faults: 0,
            bytes: 0,
            digest: 0,
            violated: None,
        };
        for stdout in [Vec::new(), serde_json::to_vec(&held).unwrap()] {
            let killed = Output {
                status: ExitStatus::from_raw(9),
                stdout,
                stderr: Vec::new(),
            };
            let mut out = Vec::new();
            let mut tally = Tally::default();
            tally.count(&options, 7, &killed, &mut out).unwrap();
            assert_eq!((tally.runs, tally.failed), (1, 1));
            let said = String::from_utf8(out).unwrap();
            let named = said.contains("seed 7: its process has ended: signal: 9");
            assert!(named && said.contains("simulate --seed 7 "), "{said}");
        }
    }
}
