//! `leasehold-proof`: runs the evidence.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold_proof::model;
#[cfg(feature = "clients")]
use leasehold_proof::{faults, simulate};

/// Runs the evidence for what leasehold promises.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "clients")]
    #[command(flatten)]
    Faults(faults::cli::Command),
    #[command(flatten)]
    Model(model::cli::Command),
    /// Run whole clients in a world of virtual time that follows from a seed.
    #[cfg(feature = "clients")]
    Simulate(simulate::Options),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Model(command) => command.run(),
        #[cfg(feature = "clients")]
        Command::Faults(command) => command.run(faults::cli::no_peer),
        #[cfg(feature = "clients")]
        Command::Simulate(options) => {
            faults::cli::conclude(simulate::simulate(&options, &mut std::io::stdout()))
        }
    }
}
