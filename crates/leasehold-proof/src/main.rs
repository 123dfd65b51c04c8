//! `leasehold-proof`: runs the evidence.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold_proof::faults;

/// Runs the evidence for what leasehold promises.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Faults(faults::cli::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Faults(command) => command.run(faults::cli::no_peer),
    }
}
