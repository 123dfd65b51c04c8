//! The commands: `leasehold-proof model`, `leasehold-proof mutants`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::catalogue;
use super::checker::Effort;
use crate::report::Printer;

/// What can be run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the models of the queue, the clients and the quorum.
    Model(ModelArgs),
}

/// Which models, and how far.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Only models whose name begins so.
    names: Vec<String>,
    /// For how long each model may run: walks go on till then.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
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

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Command {
    /// Does it.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self {
            Self::Model(args) => models(&args, Printer::new(args.json)),
        }
    }
}

fn models(args: &ModelArgs, printer: Printer) -> ExitCode {
    let mut all = catalogue::all();
    if !args.names.is_empty() {
        all.retain(|entry| args.names.iter().any(|name| entry.name.starts_with(name)));
    }
    if all.is_empty() {
        printer.note("there is no such model; `leasehold-proof model --list` names them");
        return ExitCode::from(2);
    }
    let effort = Effort {
        time: args.time,
        seed: args.seed,
        threads: args.threads.max(1),
    };
    let mut good = true;
    for entry in all {
        let findings = entry.run(effort);
        good &= findings.is_good();
        printer.result(&findings.line(), &findings);
        if let Some(broken) = &findings.broken {
            for line in &broken.trace {
                printer.note(line);
            }
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
