//! The arguments as typed. What they mean is decided by the subcommands.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};

use crate::child::OnLost;
use crate::{duration, env, exit};

/// Distributed locks for any program: fair, fenced, on one machine or on many
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    after_help = "Example:\n  leasehold run nightly-report -- ./report.sh\n\n\
                  `leasehold help run` says more, with the exit statuses.",
    after_long_help = tables()
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands, each in its own file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Hold(HoldArgs),
    Show(ShowArgs),
    Ls(LsArgs),
    Break(BreakArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Where the locks live, and who we are there.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: local:, local:/dir, redis://, rediss:// (TLS), redis+unix:// or valkey://
    ///
    /// `local:` serves the processes of one machine and needs no server. A password in the URL
    /// can be seen by others of this machine in the list of processes, as all arguments can:
    /// better put the URL into LEASEHOLD_STORE, or the password into a file.
    #[arg(
        short = 'S', long = "store", value_name = "URL",
        env = env::STORE, hide_env_values = true, default_value = "local:"
    )]
    pub(crate) url: String,
    /// The user name at the store
    #[arg(long, value_name = "NAME", env = env::USER, hide_env_values = true)]
    pub(crate) user: Option<String>,
    /// A file whose first line is the password at the store
    #[arg(long, value_name = "FILE", env = env::PASSWORD_FILE, hide_env_values = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// PEM file of the certificates to believe, instead of the system's
    #[arg(long, value_name = "FILE", env = env::TLS_CA, hide_env_values = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// PEM file of our certificate
    #[arg(long, value_name = "FILE", env = env::TLS_CERT, hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of our key
    #[arg(long, value_name = "FILE", env = env::TLS_KEY, hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,
}

/// How much is said.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what is going on
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// What is asked for, and for how long.
#[derive(Debug, Args)]
pub(crate) struct AcquireArgs {
    /// Give up at once when the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Give up after so long (500ms, 30s, 5m, 1h30m); without it, wait for ever
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// How long the lock outlives a crash of ours: it is renewed while we live
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
    /// What others see of us, beside host and process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The exit status when the lock was not obtained in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
}

/// Run a command while holding a lock
///
/// The command gets the signals that we get, and the terminal if there is one. It is told to stop
/// before its lock can be somebody else's, and killed when it does not. If we are killed, so is it
/// (on Linux; the processes that it started are not, unless it sees to that).
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  leasehold run -w 5m orders/42 -- ./import.sh --all\n\n\
                  Exit statuses and environment: leasehold run --help",
    after_long_help = run_help()
)]
pub(crate) struct RunArgs {
    /// What is to be protected, e.g. orders/42
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) acquire: AcquireArgs,
    /// What happens to the command when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// How long before the lock's end the command is told to stop [default: TTL/4, at most 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Say what happens as lines of JSON on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Hold a lock until a signal comes
///
/// Prints the fencing token once the lock is held. Ends with status 0 on a signal, and with 79
/// when the lock is lost.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold hold --label maintenance deploy/production")]
pub(crate) struct HoldArgs {
    /// What is to be protected, e.g. orders/42
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) acquire: AcquireArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print an object with the token, and what happens as lines of JSON on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Show who holds a lock and who waits for it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold show orders/42 --json | jq .holders")]
pub(crate) struct ShowArgs {
    /// The key to look at
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// List the locks of a store
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold ls 'orders/*'")]
pub(crate) struct LsArgs {
    /// Which keys: * for any text, ? for any character, \[ab\] for one of these
    #[arg(value_name = "PATTERN", default_value = "*", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) pattern: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Take a lock from whoever holds it, for administrators
///
/// The token is raised first: what checks tokens refuses the old holder from then on. The holder
/// is told that it lost. Asks before it does so.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold break --yes orders/42")]
pub(crate) struct BreakArgs {
    /// The key to break
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Measure what a lock costs here, beside the raw server
///
/// Uncontended locks at 1, 16, 64 and 256 tasks, and one key passed on among 2, 100 and 1,000
/// waiters. Ratios compare with what the same server does in the same run through the same
/// connection. Measure on a server that is idle otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold bench -S redis://127.0.0.1/")]
pub(crate) struct BenchArgs {
    /// How long each measurement takes
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
    pub(crate) time: Duration,
    /// How often each measurement is repeated; medians are printed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,
    /// Also hold so many leases for 20 s, and say what renewing them costs
    #[arg(long, value_name = "N")]
    pub(crate) leases: Option<usize>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print one JSON object per measurement
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold completions bash > \
                        ~/.local/share/bash-completion/completions/leasehold")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold man run | man -l -")]
pub(crate) struct ManArgs {
    /// The page of this subcommand
    #[arg(value_name = "SUBCOMMAND")]
    pub(crate) of: Option<String>,
}

fn run_help() -> String {
    format!(
        "Example:\n  leasehold run -w 5m orders/42 -- ./import.sh --all\n\n{}\n\n\
         Whoever stops leasehold stops the renewals: after Ctrl-Z or SIGSTOP the lock ends with its\n\
         TTL. When leasehold goes on after that, it kills the command, with status 79.",
        tables()
    )
}

/// The exit statuses and the environment.
fn tables() -> String {
    let mut text = String::new();
    for (title, rows) in [
        ("Exit status", exit::TABLE),
        ("Environment", env::READ),
        ("Environment of the command", env::GIVEN),
    ] {
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{title}:");
        let width = rows
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default();
        for (name, meaning) in rows {
            let _ = writeln!(text, "  {name:width$}  {meaning}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.starts_with("Example:\n  leasehold "),
                "{}",
                command.get_name()
            );
        }
    }

    #[test]
    fn what_follows_the_dashes_is_the_commands_own() {
        let typed = ["leasehold", "run", "k", "--", "grep", "-n", "--", "-w"];
        let Command::Run(run) = Cli::try_parse_from(typed).unwrap().command else {
            panic!("another subcommand");
        };
        assert_eq!(run.command, ["grep", "-n", "--", "-w"]);
        assert!(!run.acquire.no_wait);
        assert!(Cli::try_parse_from(["leasehold", "run", "k", "grep", "-n"]).is_err());
    }
}
