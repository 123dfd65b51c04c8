//! `leasehold-proof`: runs the evidence.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(feature = "faults")]
use leasehold_proof::faults;
use leasehold_proof::model;

/// Runs the evidence for what leasehold promises.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "faults")]
    #[command(flatten)]
    Faults(faults::cli::Command),
    #[command(flatten)]
    Model(model::cli::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Model(command) => command.run(),
        #[cfg(feature = "faults")]
        Command::Faults(command) => command.run(faults::cli::no_peer),
    }
}
