//! The arguments of those that administrators use, and of the rest.

use std::time::Duration;

use clap::Args;

use super::CommonArgs;
use super::shared::{GraceOption, LeaseOptions, RetryOption, WaitLimitOptions};
use crate::duration;

/// Take a lock from its holders, for administrators
///
/// The token is raised first: a resource that checks tokens then refuses the former holder. The
/// holder is told that it has lost the lock. Asks for confirmation at a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leasehold break orders/42\n  \
    leasehold break --yes --token 1795609812345678 orders/42")]
pub(crate) struct BreakArgs {
    /// The key to break
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Only if it is held with this token, as `leasehold show` prints it
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<u64>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Change the number of permits of a semaphore, for administrators
///
/// With more permits, waiters are granted at once. With fewer, holders keep what they have. While
/// the key is in use, a claim with the old --limit is refused.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold resize mailers --from 3 --to 5")]
pub(crate) struct ResizeArgs {
    /// The semaphore's key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The number of permits now; if it is another, nothing is changed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) from: u32,
    /// The new number of permits
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) to: u32,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Make what a store needs before its first use: a schema, nodes, marks, a shared directory
///
/// postgres:// needs a schema, which a role with the right to create one makes. zookeeper:// makes
/// its nodes by itself; `init` makes them beforehand. What is there already is not changed.
///
/// Servers with marks are those of a redlock:// URL, or one with restart=quarantine. A server
/// without a mark may have lost its data: it gives no votes, or grants nothing, for its quarantine
/// (twice max_ttl). `init` declares that servers without a mark are new, so that they can be used
/// at once. Run it once, before the first lock, and never for a server that has lost its data. A
/// server that is already marked does not change. A server of another set, or with other settings,
/// is moved to this set, with a quarantine. `init` fails if a server is not new and is in
/// quarantine.
///
/// local:/dir?group=NAME makes a directory for the members of that group, or adds what is missing
/// in it. Run this as root or as a member. The directory must not exist, or be empty and belong to
/// who runs this.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leasehold init -S redlock://a,b,c,d,e\n  \
    leasehold init -S 'redis://db1/?restart=quarantine'\n  \
    leasehold init -S 'local:/var/lib/ops-locks?group=ops'\n  \
    leasehold init --dry-run -S postgres://app@pg1/app")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per server")))]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Print the SQL that would be sent to PostgreSQL, with the grants that roles need, and do nothing
    #[arg(long, conflicts_with = "json")]
    pub(crate) dry_run: bool,
}

/// Measure what a lock costs here, compared with the raw server
///
/// Measures uncontended locks with 1, 16, 64 and 256 tasks, and one key that 2, 100 and 1,000
/// waiters pass on. The ratios compare with the same server in the same run, through a plain
/// connection. Use a server that is otherwise idle.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold bench -S redis://127.0.0.1/")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per measurement")))]
pub(crate) struct BenchArgs {
    /// How long each measurement takes
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::at_least("1ms"))]
    pub(crate) time: Duration,
    /// How often each measurement is repeated; medians are printed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,
    /// Also hold N leases for 20 s, and print what renewing them costs
    #[arg(long, value_name = "N")]
    pub(crate) leases: Option<usize>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Show the settings that are in force, and where each comes from
///
/// A setting is an option, a variable, a line of leasehold.toml, or a default. Takes the options
/// whose settings it shows, and says which files it looked for. No store is asked, and no password
/// shown. Ends with 64 when a file is wrong.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  leasehold config\n  leasehold config --profile prod --json | \
    jq '.settings[] | select(.key == \"store\")'"
)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    wait: WaitLimitOptions,
    #[command(flatten)]
    retry: RetryOption,
    #[command(flatten)]
    lease: LeaseOptions,
    #[command(flatten)]
    grace: GraceOption,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
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
