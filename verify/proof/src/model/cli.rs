//! The commands: `leasehold-proof model`, `leasehold-proof mutants`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::catalogue;
use super::checker::Effort;
use super::mutants;
use crate::report::{note, result};

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the models of the queue, the clients and the quorum.
    Model(ModelArgs),
    /// Break the code under test on purpose, and see that the models find it.
    Mutants(MutantArgs),
}

/// Which models, and how far.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Only models whose name begins so.
    names: Vec<String>,
    /// A tenth of the walks, and not the largest models: as for every change.
    #[arg(long, conflicts_with = "time")]
    short: bool,
    /// For how long each model may run: walks go on till then.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// End with the first model that is broken.
    #[arg(long)]
    until_broken: bool,
    /// Only say which models there are.
    #[arg(long)]
    list: bool,
    /// Where random walks come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many threads work.
    #[arg(long, default_value_t = threads())]
    threads: usize,
    /// Write one JSON value a line instead of text.
    #[arg(long)]
    json: bool,
}

/// Which mutants.
#[derive(Debug, Args)]
pub struct MutantArgs {
    /// Only mutants whose name begins so.
    names: Vec<String>,
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Command {
    /// Does it.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self {
            Self::Model(args) => models(&args),
            Self::Mutants(args) => mutants(&args).unwrap_or_else(|error| {
                note(&format!("the mutants cannot be tried: {error}"));
                ExitCode::from(2)
            }),
        }
    }
}

fn is_named(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted))
}

/// The first wanted name with which none of these begins: a slip must not leave out what
/// was to be checked.
fn unknown<'a>(wanted: &'a [String], names: &[&str]) -> Option<&'a String> {
    let is_known = |wanted: &String| names.iter().any(|name| name.starts_with(wanted));
    wanted.iter().find(|wanted| !is_known(wanted))
}

fn models(args: &ModelArgs) -> ExitCode {
    let mut all = catalogue::all();
    all.retain(|entry| !(args.short && entry.long));
    let names: Vec<_> = all.iter().map(|entry| entry.name).collect();
    if let Some(name) = unknown(&args.names, &names) {
        let short = if args.short { " --short" } else { "" };
        note(&format!(
            "there is no model {name}: `leasehold-proof model{short} --list` names them"
        ));
        return ExitCode::from(2);
    }
    all.retain(|entry| is_named(entry.name, &args.names));
    if args.list {
        all.iter()
            .for_each(|entry| result(args.json, entry.name, &entry.name));
        return ExitCode::SUCCESS;
    }
    let effort = Effort {
        time: args.time,
        short: args.short,
        seed: args.seed,
        threads: args.threads.max(1),
    };
    let mut good = true;
    for entry in all {
        let findings = (entry.run)(effort);
        good &= findings.is_good();
        result(args.json, &findings.line(), &findings);
        if let Some(broken) = &findings.broken {
            if !args.json {
                broken.trace.iter().for_each(|line| note(line));
                if let Some(seed) = broken.seed {
                    note(&format!("found by --seed {seed}"));
                }
            }
            if args.until_broken {
                break;
            }
        }
    }
    ExitCode::from(u8::from(!good))
}

fn mutants(args: &MutantArgs) -> std::io::Result<ExitCode> {
    let mut all = mutants::all();
    let names: Vec<_> = all.iter().map(|mutant| mutant.name).collect();
    if let Some(name) = unknown(&args.names, &names) {
        let known = names.join(", ");
        note(&format!("there is no mutant {name}: there are {known}"));
        return Ok(ExitCode::from(2));
    }
    all.retain(|mutant| is_named(mutant.name, &args.names));
    let program = mutants::build()?;
    let mut fates = Vec::new();
    for mutant in all {
        let found = mutant.try_out(&program);
        result(false, &mutant.line(&found), &mutant.name);
        fates.push(found);
    }
    let mut good = fates.iter().all(|found| matches!(found, Ok(Some(_))));
    if args.names.is_empty() {
        let never = mutants::never_broken(&fates);
        good &= never.is_empty();
        note(&match never.is_empty() {
            true => format!("{} mutants; every property was broken by one", fates.len()),
            false => format!("no mutant breaks: {}", never.join(", ")),
        });
    }
    Ok(ExitCode::from(u8::from(!good)))
}
