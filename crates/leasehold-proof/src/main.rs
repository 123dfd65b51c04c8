//! `leasehold-proof`: runs the evidence.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks to its user"
)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold_proof::faults::client::{self, Algorithm};
use leasehold_proof::faults::plan::{Choice, Deployment, Plan};
use leasehold_proof::faults::{history, run};

/// Runs the evidence for what leasehold promises.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One schedule of faults on real servers, by its seed.
    Schedule(Schedule),
    /// A client process of a schedule.
    #[command(hide = true)]
    Client {
        /// What it is to do.
        spec: String,
    },
}

#[derive(Debug, Args)]
struct Schedule {
    /// Where the locks are.
    deployment: Deployment,
    /// Which schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whether it stays within what the deployment assumes. Drawn unless said.
    #[arg(long, value_enum, default_value_t = Assumptions::Drawn)]
    assumptions: Assumptions,
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
    Drawn,
    Within,
    Beyond,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Schedule(schedule) => run_schedule(&schedule),
        Command::Client { spec } => match serde_json::from_str(&spec) {
            Ok(spec) => client::main(spec),
            Err(error) => {
                eprintln!("leasehold-proof: not a client's task: {error}");
                ExitCode::from(2)
            }
        },
    }
}

/// Something other than a finding has gone wrong.
const TROUBLE: u8 = 2;

/// No schedule takes longer, unless its servers hang.
const LIMIT: Duration = Duration::from_secs(150);

fn run_schedule(schedule: &Schedule) -> ExitCode {
    let choice = Choice {
        deployment: schedule.deployment,
        beyond: match schedule.assumptions {
            Assumptions::Drawn => None,
            Assumptions::Within => Some(false),
            Assumptions::Beyond => Some(true),
        },
        algorithm: schedule.algorithm,
    };
    let plan = Plan::draw(choice, schedule.seed);
    if !schedule.json {
        print!("{plan}");
    }
    give_up_after(LIMIT);
    let trouble = |error: std::io::Error| {
        eprintln!("leasehold-proof: {error}");
        ExitCode::from(TROUBLE)
    };
    let carry_out = || {
        let temporary = tempfile::Builder::new()
            .prefix("leasehold-proof-")
            .tempdir()?;
        let directory = match &schedule.keep {
            Some(keep) => {
                std::fs::create_dir(keep)?;
                keep.clone()
            }
            None => temporary.path().to_owned(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(run::run(plan, &directory))
    };
    match carry_out() {
        Ok(outcome) => tell(&outcome, schedule.json),
        Err(error) => trouble(error),
    }
}

/// Ends the process, and with it its servers, if it hangs.
fn give_up_after(limit: Duration) {
    let (never, end) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _never = never;
        let _ = end.recv_timeout(limit);
        eprintln!("leasehold-proof: not over after {limit:?}");
        std::process::abort();
    });
}

fn tell(outcome: &run::Outcome, json: bool) -> ExitCode {
    if json {
        match serde_json::to_string(outcome) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("leasehold-proof: {error}"),
        }
    } else {
        for fault in &outcome.injected {
            let millis = |time: history::Micros| time / 1000;
            let (took, gap) = (millis(fault.to - fault.from), millis(fault.gap));
            println!("{}: {took} ms, {gap} ms without a grant", fault.name);
        }
        println!("{}", line(outcome));
        for finding in &outcome.findings {
            let promised = outcome.promise.covers(finding.property);
            println!(
                "{}: {finding}",
                if promised { "BROKEN" } else { "not promised" }
            );
        }
    }
    ExitCode::from(u8::from(outcome.broken() > 0))
}

/// An outcome in a line.
fn line(outcome: &run::Outcome) -> String {
    let run::Outcome {
        claims,
        grants,
        lost,
        failures,
        replayed,
        fenced,
        unfenced,
        promise,
        ..
    } = outcome;
    let recovered = outcome
        .recovered_in
        .map_or_else(|| "never".to_owned(), |it| format!("{} ms", it / 1000));
    format!(
        "{claims} claims, {grants} leases, {lost} lost, {failures:?}; {replayed} replayed; fenced {fenced:?}, \
         unfenced {unfenced:?}; {} fail-overs; longest gap {} ms, served again in {recovered}; {promise:?}; \
         violations {:?}, of promises {}",
        outcome.fail_overs,
        outcome.longest_gap / 1000,
        outcome.violations,
        outcome.broken(),
    )
}
