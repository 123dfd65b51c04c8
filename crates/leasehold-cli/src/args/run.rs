//! The arguments of those that take locks: `run`, `hold`, `wait`, `renew`, `release`, `elect`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::shared::{LeaseOptions, RetryOption};
use super::{CommonArgs, GuardArgs, LockArgs, MetricsArgs, WaitArgs, tables};
use crate::config::parse_wait;
use crate::duration;
use crate::lifetime::LifetimeArgs;

/// Run a command while holding a lock
///
/// The command gets INT, TERM, HUP, QUIT, USR1 and USR2 when leasehold gets them, and the terminal
/// if there is one. Before another can get the lock, leasehold asks the command to stop, and kills
/// it if it does not. When leasehold itself is killed, the command is killed too. On Linux this
/// includes every process that the command has started, also in other groups and sessions and under
/// other users, as far as leasehold may signal them. On other systems it is the command's process
/// group.
#[derive(Debug, Args)]
#[command(
    after_help = include_str!("run_short_help.txt").trim_ascii_end(),
    after_long_help = long_help(RUN_EXAMPLES)
)]
#[command(mut_arg("json", |json| json.help("Print events as lines of JSON on standard error")))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// The command and its arguments, after `--`
    #[arg(
        last = true, required_unless_present = "shell", value_name = "COMMAND", help_heading = None
    )]
    pub(crate) command: Vec<OsString>,
    /// Run this line in /bin/sh, in place of a command
    #[arg(short = 'c', long = "shell", value_name = "LINE", conflicts_with = "command", help_heading = None,
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) shell: Option<String>,
    /// Run once in each period; otherwise say why not, and end with status 0
    ///
    /// For schedulers; it does not wait. Several machines may start the job at the same time: one
    /// of them runs it, if all name the same store. If no store is named, every machine runs it,
    /// and a warning says so. The lock stays taken for the period less a tenth of it, or less 30s
    /// if that is shorter. Make the period shorter than the shortest time between two starts, for
    /// example 12h for a daily job. A job that fails or crashes does not free the lock sooner. -q
    /// prints nothing when the job is skipped; -E chooses another status.
    #[arg(
        long, help_heading = "Jobs", value_name = "DURATION", value_parser = duration::at_least("1s"),
        conflicts_with_all = [
            "wait", "deadlock_timeout", "shared", "limit", "reentrant", "keys", "min_hold", "recover_as"
        ]
    )]
    pub(crate) every: Option<Duration>,
    /// After a crash, let a restart with the same name on this host take the lease over
    ///
    /// For jobs that a service manager restarts. leasehold keeps the claim id in a file that only
    /// this user can read, in $XDG_STATE_HOME/leasehold, else ~/.local/state/leasehold, and for
    /// root in /var/lib/leasehold. While the previous process, or a process that its command has
    /// started, still runs, the restart waits in the queue.
    #[arg(
        long, help_heading = "Jobs", value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with_all = ["shared", "limit", "reentrant", "keys"], hide_short_help = true
    )]
    pub(crate) recover_as: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    lease: LeaseOptions,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Hold a lock until a signal arrives
///
/// Prints the fencing token once it has the lock; with several keys, a line with token and key for
/// each. Ends with status 0 on a signal, and with 79 when the lock is lost, also if only its release
/// finds that. A script that runs several commands under one lock starts `hold` with --background and
/// --while-parent: then the lock is released when the script ends, also when it is killed. See the
/// examples.
#[derive(Debug, Args)]
#[command(after_help = include_str!("hold_examples.txt").trim_ascii_end())]
#[command(mut_arg("json", |json| json.help(
    "Print an object with the token, and events as lines of JSON on standard error"
)))]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    #[command(flatten)]
    pub(crate) lifetime: LifetimeArgs,
    /// Save the lease to this file, for `leasehold renew` and `leasehold release`
    ///
    /// Only this user can read the file: whoever has it can renew and release the lease. leasehold
    /// removes it at the end. If another removes it before, the lock is released within a second.
    /// A file of another kind is not replaced, nor a saved lease that still holds.
    #[arg(long, help_heading = "Scripts", value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// End as soon as the lease is saved, without releasing it
    ///
    /// The lease then ends with its TTL unless `leasehold renew FILE` renews it. For a lock that
    /// several jobs of a pipeline share, also on different machines. Not available on local:, where
    /// a lock ends with its process.
    #[arg(
        long, help_heading = "Scripts", requires = "save", conflicts_with_all = ["while_parent", "fd"]
    )]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    lease: LeaseOptions,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Wait until nobody holds a lock, without taking it
///
/// Ends with 0 as soon as the key is free, and with 75 when the time of -w is over. Another may
/// take the lock right after that: to run a command under the lock, use `run`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold wait -w 10m migrate/app && ./server")]
#[command(mut_arg("json", |json| json.help("Print events as lines of JSON on standard error")))]
pub(crate) struct WaitForArgs {
    /// The key to wait for
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Give up after this long (500ms, 30s, 5m, 1h30m) [env: LEASEHOLD_WAIT] [default: forever]
    #[arg(short, long, value_name = "DURATION", value_parser = parse_wait)]
    wait: Option<Duration>,
    /// The exit status when the key was not free in time [default: 75]
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    retry: RetryOption,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Renew a lease that `hold --save` has saved
///
/// Ends with 79 if the lease has already ended.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold renew --ttl 10m deploy.lease")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per key")))]
pub(crate) struct RenewArgs {
    /// The file of `hold --save`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How long the lease lasts from now on, unless it is renewed again [default: the TTL of
    /// `hold`]
    // Not the setting, which is what a lease is acquired with.
    #[arg(id = "new_ttl", long = "ttl", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Release a lease that `hold --save` has saved
///
/// Removes the file. If that `hold` still runs, it ends with status 0. Ends with 79 if the lease
/// had already ended: another may have held the lock since.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold release deploy.lease")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per key")))]
pub(crate) struct ReleaseArgs {
    /// The file of `hold --save`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Run a command on one machine of many: the leader
///
/// Each candidate waits until it leads, then runs the command. When the lock is lost, the command
/// is stopped before another can lead, as with `run`. When the command ends, with any status, the
/// leader resigns, so that another candidate leads. It then pauses for one second, and twice as
/// long after each term shorter than 10s, up to 30s, and is a candidate again. A signal goes to the
/// command; when the command has ended, leasehold ends with its status. (SIGHUP ends leasehold only
/// if it ended the command.) While the store is unavailable, leasehold tries again, also at the
/// start. A store must be named: in local: each machine would have a leader of its own. Use -S
/// local: if that is wanted.
#[derive(Debug, Args)]
#[command(after_help = ELECT_EXAMPLES, after_long_help = long_help(ELECT_EXAMPLES))]
#[command(mut_arg("json", |json| json.help(
    "Print lines of JSON: leaders on standard output, events on standard error"
)))]
pub(crate) struct ElectArgs {
    /// The election, e.g. scheduler
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The command and its arguments, after `--`
    #[arg(
        last = true,
        required_unless_present = "observe",
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
    /// A text that observers see while this candidate leads, e.g. an address
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// End with the command's status when it has ended, instead of being a candidate again
    ///
    /// When the lock was lost, it is a candidate again, and the command runs again.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print who leads, and each change, until a signal arrives
    #[arg(long, conflicts_with_all = ["command", "note", "once", "metrics_file", "with_children"])]
    pub(crate) observe: bool,
    #[command(flatten)]
    retry: RetryOption,
    #[command(flatten)]
    lease: LeaseOptions,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

const RUN_EXAMPLES: &str = include_str!("run_examples.txt").trim_ascii_end();

const ELECT_EXAMPLES: &str = include_str!("elect_examples.txt").trim_ascii_end();

fn long_help(examples: &str) -> String {
    format!(
        "{examples}\n\n{}\n\n\
         A leasehold that is stopped renews nothing: after Ctrl-Z or SIGSTOP the lock ends with its TTL.\n\
         When leasehold continues after that, it kills the command and ends with status 79.",
        tables()
    )
}
