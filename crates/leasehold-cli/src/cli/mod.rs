//! The arguments as typed. What they mean is decided by the subcommands.

mod jobs;
mod looking;
mod managing;
mod shared;
mod store;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::Configurable;
use crate::{env, exit, run_child};

pub(crate) use jobs::{ElectArgs, HoldArgs, ReleaseArgs, RenewArgs, RunArgs, WaitForArgs};
pub(crate) use looking::{
    DeadlocksArgs, DoctorArgs, LogArgs, LsArgs, ServeArgs, ShowArgs, TopArgs,
};
pub(crate) use managing::{
    BenchArgs, BreakArgs, CompletionsArgs, ConfigArgs, InitArgs, ManArgs, ResizeArgs,
};
pub(crate) use shared::{
    CommonArgs, GraceArgs, GuardArgs, LeaseArgs, LockArgs, MetricsArgs, OutputArgs, RetryArgs,
    WaitArgs, WaitLimitArgs, parse_wait,
};
pub(crate) use store::{AccessArgs, FileArgs, StoreArgs, parse_store};

/// Distributed locks for any program: fair, fenced, on one machine or on many
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    after_help = "Example:\n  leasehold run nightly-report -- ./report.sh\n\n\
                  `leasehold help run` says more, with the exit statuses, and `leasehold config` which\n\
                  settings are in force.",
    after_long_help = tables()
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Reads the arguments.
///
/// Building all subcommands takes longer than taking a lock. So only the one that was named is
/// built; all are built for help and errors.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    match Cli::command().try_get_matches_from(&arguments) {
        Ok(matches) => Cli::from_arg_matches(&matches),
        Err(_) => parse_with_all_usages(arguments),
    }
}

/// The definition of all arguments.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Reads the arguments with all subcommands built, so that help and errors are complete.
///
/// What an error shows of the usage is the same as in the help: clap would show what was typed as
/// if it had to be.
fn parse_with_all_usages(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut all = Cli::command();
    all.build();
    let all = all.mut_subcommands(|mut command| {
        let usage = command.render_usage().to_string();
        let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
        command.override_usage(usage)
    });
    Cli::from_arg_matches(&all.try_get_matches_from(arguments)?)
}

/// The subcommands, each in its own file.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Run(RunArgs),
    Hold(HoldArgs),
    Wait(WaitForArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Elect(ElectArgs),
    Show(ShowArgs),
    Ls(LsArgs),
    Log(LogArgs),
    Top(TopArgs),
    Deadlocks(DeadlocksArgs),
    Serve(ServeArgs),
    Break(BreakArgs),
    Resize(ResizeArgs),
    Doctor(DoctorArgs),
    Init(InitArgs),
    Bench(BenchArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Command {
    /// Where metrics are kept, and the key that they are of.
    pub(crate) fn metrics_file(&self) -> Option<(&Path, &str)> {
        let (metrics, key) = match self {
            Self::Run(args) => (&args.metrics, args.lock.first_key()),
            Self::Hold(args) => (&args.metrics, args.lock.first_key()),
            Self::Elect(args) => (&args.metrics, &*args.key),
            _ => return None,
        };
        Some((metrics.metrics_file.as_deref()?, key))
    }

    /// The store, unless a saved lease may name another one.
    pub(crate) fn store(&mut self) -> Option<&StoreArgs> {
        match self {
            Self::Renew(_) | Self::Release(_) => None,
            _ => Some(self.configurable()?.store),
        }
    }

    /// What can be configured; of those that use a store.
    pub(crate) fn configurable(&mut self) -> Option<Configurable<'_>> {
        let store = match self {
            Self::Run(args) => {
                return Some(Configurable {
                    store: &mut args.common.store,
                    lease: Some(&mut args.lease),
                    wait: Some(&mut args.wait.limit.wait),
                    retry_for: Some(&mut args.wait.retry.retry_for),
                    grace: Some(&mut args.guard.grace.grace),
                });
            }
            Self::Hold(args) => {
                return Some(Configurable {
                    store: &mut args.common.store,
                    lease: Some(&mut args.lease),
                    wait: Some(&mut args.wait.limit.wait),
                    retry_for: Some(&mut args.wait.retry.retry_for),
                    grace: None,
                });
            }
            Self::Elect(args) => {
                return Some(Configurable {
                    store: &mut args.common.store,
                    lease: Some(&mut args.lease),
                    wait: None,
                    retry_for: Some(&mut args.retry.retry_for),
                    grace: Some(&mut args.guard.grace.grace),
                });
            }
            Self::Wait(args) => {
                return Some(Configurable {
                    store: &mut args.common.store,
                    lease: None,
                    wait: Some(&mut args.wait),
                    retry_for: Some(&mut args.retry.retry_for),
                    grace: None,
                });
            }
            Self::Renew(args) => &mut args.common.store,
            Self::Release(args) => &mut args.common.store,
            Self::Show(args) => &mut args.common.store,
            Self::Ls(args) => &mut args.common.store,
            Self::Log(args) => &mut args.common.store,
            Self::Top(args) => &mut args.store,
            Self::Deadlocks(args) => &mut args.common.store,
            Self::Serve(args) => &mut args.common.store,
            Self::Break(args) => &mut args.common.store,
            Self::Resize(args) => &mut args.common.store,
            Self::Doctor(args) => &mut args.common.store,
            Self::Init(args) => &mut args.common.store,
            Self::Bench(args) => &mut args.common.store,
            // It shows what there is, and reads it itself.
            Self::Config(_) | Self::Completions(_) | Self::Man(_) => return None,
        };
        Some(Configurable {
            store,
            lease: None,
            wait: None,
            retry_for: None,
            grace: None,
        })
    }
}

/// What the help and the manual say after all options.
pub(crate) const TABLES: [(&str, &str); 4] = [
    ("Exit status", exit::TABLE),
    (
        "Processes that the command leaves running",
        run_child::LEFT_RUNNING,
    ),
    ("Environment", env::READ),
    ("Environment of the command", env::GIVEN),
];

fn tables() -> String {
    let indented = |(title, rows): (&str, &str)| format!("{title}:\n{rows}").replace('\n', "\n  ");
    TABLES.map(indented).join("\n\n")
}

#[cfg(test)]
mod tests;
