//! The arguments as typed. What they mean is decided by the subcommands.

mod admin;
mod inspect;
mod run;
mod shared;
mod usage;

use std::ffi::OsString;
use std::path::Path;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{child, env, exit};

pub(crate) use admin::{
    BenchArgs, BreakArgs, CompletionsArgs, ConfigArgs, InitArgs, ManArgs, ResizeArgs,
};
pub(crate) use inspect::{DeadlocksArgs, DoctorArgs, LogArgs, LsArgs, ShowArgs};
#[cfg(feature = "console")]
pub(crate) use inspect::{ServeArgs, TopArgs};
pub(crate) use run::{ElectArgs, HoldArgs, ReleaseArgs, RenewArgs, RunArgs, WaitForArgs};
pub(crate) use shared::{
    CommonArgs, GuardArgs, LockArgs, MetricsArgs, PatternArgs, StoreArgs, WaitArgs,
};
pub(crate) use usage::usage;

/// Distributed locks for any program: fair, fenced, on one machine or on many
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    color = colour(),
    after_help = "Example:\n  leasehold run nightly-report -- ./report.sh\n\n\
                  `leasehold help run` says more, with the exit statuses, and `leasehold config` which\n\
                  settings are in force.",
    after_long_help = tables()
)]
// Read by `parse`: clap alone leaves the settings empty.
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Whether help may have colours. A terminal of unknown kind has none; clap knows only `dumb`.
fn colour() -> ColorChoice {
    match std::env::var_os("TERM") {
        Some(kind) if kind.is_empty() => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

/// Reads the arguments.
///
/// Building all subcommands takes longer than taking a lock. So only the one that was named is
/// built; all are built for help and errors.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let typed = match Cli::command().try_get_matches_from(&arguments) {
        Ok(typed) => typed,
        Err(_) => with_all_usages().try_get_matches_from(arguments)?,
    };
    let mut cli = Cli::from_arg_matches(&typed)?;
    if let (Some(store), Some((_, typed))) = (cli.command.store(), typed.subcommand()) {
        store.settings = shared::typed_settings(typed);
    }
    Ok(cli)
}

/// All subcommands, built so that help and errors are complete.
///
/// What an error shows of the usage is the same as in the help: clap would show what was typed as
/// if it had to be.
fn with_all_usages() -> clap::Command {
    let mut all = Cli::command();
    all.build();
    all.mut_subcommands(|mut command| {
        let usage = command.render_usage().to_string();
        let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
        command.override_usage(usage)
    })
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
    #[cfg(feature = "console")]
    Top(TopArgs),
    Deadlocks(DeadlocksArgs),
    #[cfg(feature = "console")]
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

    /// What those have that use a store, and print.
    pub(crate) fn common(&mut self) -> Option<&mut CommonArgs> {
        match self {
            Self::Run(args) => Some(&mut args.common),
            Self::Hold(args) => Some(&mut args.common),
            Self::Wait(args) => Some(&mut args.common),
            Self::Renew(args) => Some(&mut args.common),
            Self::Release(args) => Some(&mut args.common),
            Self::Elect(args) => Some(&mut args.common),
            Self::Show(args) => Some(&mut args.common),
            Self::Ls(args) => Some(&mut args.common),
            Self::Log(args) => Some(&mut args.common),
            Self::Deadlocks(args) => Some(&mut args.common),
            #[cfg(feature = "console")]
            Self::Serve(args) => Some(&mut args.common),
            Self::Break(args) => Some(&mut args.common),
            Self::Resize(args) => Some(&mut args.common),
            Self::Doctor(args) => Some(&mut args.common),
            Self::Init(args) => Some(&mut args.common),
            Self::Bench(args) => Some(&mut args.common),
            Self::Config(args) => Some(&mut args.common),
            #[cfg(feature = "console")]
            Self::Top(_) => None,
            Self::Completions(_) | Self::Man(_) => None,
        }
    }

    /// Whether it takes a lock, or waits for one: then it says what happens.
    pub(crate) fn is_job(&self) -> bool {
        matches!(
            self,
            Self::Run(_) | Self::Hold(_) | Self::Elect(_) | Self::Wait(_)
        )
    }

    /// What those have that use a store.
    pub(crate) fn store(&mut self) -> Option<&mut StoreArgs> {
        #[cfg(feature = "console")]
        if let Self::Top(args) = self {
            return Some(&mut args.store);
        }
        Some(&mut self.common()?.store)
    }
}

/// What the help and the manual say after all options.
pub(crate) const TABLES: [(&str, &str); 4] = [
    ("Exit status", exit::TABLE),
    (
        "Processes that the command leaves running",
        child::LEFT_RUNNING,
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
