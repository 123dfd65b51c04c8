//! The arguments as typed. What they mean is decided by the subcommands.

mod shared;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use leasehold::Wait;

use crate::bound::Inherited;
use crate::config::{Configurable, Setting, typed};
use crate::view::KeyView;
use crate::{duration, env, exit, guarded};

pub(crate) use shared::{
    AccessArgs, CommonArgs, FileArgs, GraceArgs, GuardArgs, LeaseArgs, LockArgs, MetricsArgs,
    OutputArgs, RetryArgs, StoreArgs, WaitArgs, WaitLimitArgs, parse_store, parse_wait,
};

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

/// Run a command while holding a lock
///
/// The command gets the signals that leasehold gets, and the terminal if there is one. Before
/// another can get the lock, leasehold asks the command to stop, and kills it if it does not. When
/// leasehold itself is killed, the command is killed too. On Linux this includes every process that
/// the command has started, also in other groups and sessions and under other users, as far as
/// leasehold may signal them. On other systems it is the command's process group.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  leasehold run -w 5m orders/42 -- ./import.sh --all\n  \
                  leasehold run --limit 3 mailers -- ./send.sh\n  \
                  leasehold run -S redis://host/ --every 1h hourly-report -- ./report.sh\n\n\
                  Exit statuses and environment: leasehold run --help",
    after_long_help = run_help()
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
    #[arg(short = 'c', long = "shell", value_name = "LINE", conflicts_with = "command", help_heading = None)]
    pub(crate) shell: Option<OsString>,
    /// Run once in each period; otherwise say why not, and end with status 0
    ///
    /// For schedulers; it does not wait. Several machines may start the job at the same time: one
    /// of them runs it, if all name the same store. If no store is named, every machine runs it,
    /// and a warning says so. The lock stays taken for the period less a tenth of it, or less 30s
    /// if that is shorter. Make the period shorter than the shortest time between two starts, for
    /// example 12h for a daily job. A job that fails or crashes does not free the lock sooner. -q
    /// prints nothing when the job is skipped; -E chooses another status.
    #[arg(
        long, help_heading = "Jobs", value_name = "DURATION", value_parser = duration::parse_period,
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
        conflicts_with_all = ["shared", "limit", "reentrant", "keys"]
    )]
    pub(crate) recover_as: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

impl RunArgs {
    /// What is run: the command, or a shell with the line.
    pub(crate) fn command(&self) -> Vec<OsString> {
        match &self.shell {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }
}

/// Hold a lock until a signal arrives
///
/// Prints the fencing token once it has the lock; with several keys, a line with token and key for
/// each. Ends with status 0 on a signal, and with 79 when the lock is lost. A script that runs
/// several commands under one lock starts `hold` in the background with --while-parent: then the
/// lock is released when the script ends, also when it is killed. See the examples.
#[derive(Debug, Args)]
#[command(after_help = HOLD_EXAMPLES)]
#[command(mut_arg("json", |json| json.help(
    "Print an object with the token, and events as lines of JSON on standard error"
)))]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// Release the lock when the parent process ends
    ///
    /// The parent is the shell that runs the script. When the lock is lost, the parent gets
    /// SIGTERM, so that the script does not continue without the lock. If sudo starts leasehold,
    /// the parent is sudo and not the script.
    #[arg(long, help_heading = "Scripts")]
    pub(crate) while_parent: bool,
    /// Release the lock at the end of file on descriptor N
    ///
    /// For a pipe whose other end the script keeps open.
    #[arg(long, help_heading = "Scripts", value_name = "N", value_parser = Inherited::parse)]
    pub(crate) fd: Option<Inherited>,
    /// Save the lease to this file, for `leasehold renew` and `leasehold release`
    ///
    /// Only this user can read the file: whoever has it can renew and release the lease. leasehold
    /// removes it at the end. If another removes it before, the lock is released within a second.
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
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

const HOLD_EXAMPLES: &str = r#"Examples:
  leasehold hold --label maintenance deploy/production
  leasehold hold -s --max-hold 10m config

Several commands of one shell script under one lock:
  #!/bin/bash
  exec 3< <(exec leasehold hold --while-parent deploy/production)
  read -r token <&3 || exit   # waits for the lock; at its end there is no token
  ./migrate --fence "$token"
  ./restart                   # the lock is released when the script ends"#;

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
    #[arg(short, long, value_name = "DURATION", value_parser = typed(parse_wait, "--wait"))]
    pub(crate) wait: Option<Setting<Wait>>,
    /// The exit status when the key was not free in time [default: 75]
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
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
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
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
#[command(
    after_help = "Example:\n  leasehold elect -S redis://host/ scheduler --note 10.0.0.7:80 -- ./scheduler\n  \
                  leasehold elect -S redis://host/ scheduler --observe",
    after_long_help = elect_help()
)]
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
    #[arg(long)]
    pub(crate) once: bool,
    /// Print who leads, and each change, until a signal arrives
    #[arg(long, conflicts_with_all = ["command", "note", "once", "metrics_file", "with_children"])]
    pub(crate) observe: bool,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Show who holds a lock and who waits for it
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  leasehold show orders/42 --json | jq .holders\n  \
    leasehold show -q --exit-code orders/42 || echo 'orders/42 is held'"
)]
pub(crate) struct ShowArgs {
    /// The key to look at
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// End with status 1 if the key is held, and 0 if it is free; -q prints nothing
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Check a store: what it promises, and what puts that at risk
///
/// Looks at each server, measures it, and takes a lock of its own there once, which takes a second
/// or two. Ends with 0 if there are no warnings, 1 with warnings, and 2 if locks do not work there
/// or do not exclude anybody.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold doctor -S redis://10.0.0.5/ || mail -s locks ops")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// List the locks of a store
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  leasehold ls 'orders/*'\n  leasehold ls --watch --json | jq .key"
)]
#[command(mut_arg("json", |json| json.help("Print one JSON object per line")))]
pub(crate) struct LsArgs {
    #[arg(
        value_name = "PATTERN", default_value = "*",
        value_parser = NonEmptyStringValueParser::new(),
        help = "Which keys: * for any text, ? for any character, [ab] for one of these"
    )]
    pub(crate) pattern: String,
    /// Print the locks again whenever they change, until a signal arrives
    ///
    /// Reads the store once per interval [default: 1s], at least 100ms apart, and less often if a
    /// reading takes long: it costs the server at most a twentieth of a core. At a terminal, the
    /// table replaces the last one. Otherwise each change is a table of its own after a line with
    /// the time; the remaining time of a lease does not count as a change. With --json, one line
    /// for each lock that has changed; a lock that nobody uses any more has a line without holders
    /// and waiters. While the store does not answer, it tries again, and says so once.
    #[arg(
        short, long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true,
        default_missing_value = "1s", value_parser = duration::parse_interval
    )]
    pub(crate) watch: Option<Duration>,
    /// Only locks that somebody holds
    #[arg(long)]
    pub(crate) held: bool,
    /// Only locks that somebody waits for
    #[arg(long)]
    pub(crate) waiting: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

impl LsArgs {
    /// Whether the lock is one of those that are asked for.
    pub(crate) fn lists(&self, view: &KeyView) -> bool {
        (!self.held || !view.holders.is_empty()) && (!self.waiting || !view.waiters.is_empty())
    }
}

/// Show who held which lock when, from the audit log
///
/// The store writes the log for clients that open it with audit: -S 'redis://host/?audit=10000'
/// keeps 10,000 entries, audit=24h keeps those of a day. Each entry is written in the same atomic
/// step as the change. Changes by clients that open the store without audit are not in the log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leasehold log --since 1h orders/42\n  \
    leasehold log --follow --json | jq -c 'select(.event == \"expired\")'")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per line")))]
pub(crate) struct LogArgs {
    /// The key; all keys unless said
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only entries of the last DURATION [default: all that are kept]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) since: Option<Duration>,
    /// Only the holds of one owner: its label, host, process id, or host:pid
    #[arg(long, value_name = "OWNER", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) owner: Option<String>,
    /// Continue with new entries until a signal arrives
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Show the locks of a store on a full screen, as they change
///
/// The table is sorted by the number of waiters, the age of the hold, or how often the holders
/// change: keys w, a and r. Enter shows holders and waiters, / filters, b breaks a lock after a
/// question, q quits, ? shows all keys. The store is read once per interval, and less often if
/// reading all locks would take more than a twentieth of a core of the server; the locks on the
/// screen are always read once per interval. While the store does not answer, the last data stays
/// on the screen, with its age.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold top -S redis://host/ 'orders/*'")]
pub(crate) struct TopArgs {
    #[arg(
        value_name = "PATTERN", default_value = "*",
        value_parser = NonEmptyStringValueParser::new(),
        help = "Which keys: * for any text, ? for any character, [ab] for one of these"
    )]
    pub(crate) pattern: String,
    /// How often the store is asked, at least 100ms apart
    #[arg(
        short, long, value_name = "DURATION", default_value = "1s",
        value_parser = duration::parse_interval
    )]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Find claims that wait for each other
///
/// Prints a line for each deadlock: who holds and waits for what, and for how long. Ends with 0 if
/// there is none, and 1 if there are some. It finds deadlocks among claims that say which work they
/// belong to: nested runs of leasehold do so, and programs that use the library's contexts. It
/// cannot see what a program waits for outside of this store.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold deadlocks -S redis://host/ || mail -s deadlock ops")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per deadlock")))]
pub(crate) struct DeadlocksArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Serve the locks of a store as a web page, as JSON and as metrics
///
/// The page shows all locks as they change, the queue and the history of a key, deadlocks, and the
/// findings of doctor. It is read-only, and listens on this machine only, unless options say
/// otherwise. /api/v1 has the same as JSON, /metrics is for Prometheus. The store is read only
/// while a page or a scrape asks, and takes at most a twentieth of a core. Ends with 0 on a signal.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leasehold serve -S redis://host/\n  \
                        leasehold serve -S redis://host/ --listen 0.0.0.0:7480 --host locks.example \\\n    \
                        --token-file /etc/leasehold/token --allow-break")]
pub(crate) struct ServeArgs {
    /// Where to listen; an address that other machines reach takes a token
    #[arg(
        long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7480",
        value_parser = listen_address
    )]
    pub(crate) listen: SocketAddr,
    /// A name that the page is opened by, beside addresses and localhost: say it once for each
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) host: Vec<String>,
    /// A file whose first line is a token: whoever reads locks or metrics must send it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let those with the token break locks
    #[arg(long)]
    pub(crate) allow_break: bool,
    /// How many prefixes of keys have metrics of their own; the others are counted together
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) max_series: usize,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let hint = "name an address and a port, e.g. 127.0.0.1:7480 or [::1]:7480";
    text.parse().map_err(|_| hint.to_owned())
}

/// Take a lock from its holders, for administrators
///
/// The token is raised first: a resource that checks tokens then refuses the former holder. The
/// holder is told that it has lost the lock. Asks for confirmation at a terminal.
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

/// Mark new servers, or make a directory that the users of a group share
///
/// Servers are those of a redlock:// URL, or one with restart=quarantine. A server without a mark
/// may have lost its data: it gives no votes, or grants nothing, for its quarantine (twice
/// max_ttl). `init` declares that servers without a mark are new, so that they can be used at once.
/// Run it once, before the first lock, and never for a server that has lost its data. A server that
/// is already marked does not change. A server of another set, or with other settings, is moved to
/// this set, with a quarantine. `init` fails if a server is not new and is in quarantine.
///
/// local:/dir?group=NAME makes a directory for the members of that group, or adds what is missing
/// in it. Run this as root or as a member. The directory must be empty or not exist.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leasehold init -S redlock://a,b,c,d,e\n  \
    leasehold init -S 'redis://db1/?restart=quarantine'\n  \
    leasehold init -S 'local:/var/lib/leasehold?group=ops'")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per server")))]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
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
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
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
    pub(crate) wait: WaitLimitArgs,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
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

fn run_help() -> String {
    long_help(
        "  leasehold run -w 5m orders/42 -- ./import.sh --all\n  \
           leasehold run -k account/1 -k account/2 -- ./transfer.sh\n  \
           leasehold run --limit 3 mailers -- ./send.sh\n  \
           leasehold run -S redis://host/ --every 1h hourly-report -- ./report.sh\n  \
           leasehold run --recover-as billing billing -- ./billing.sh",
    )
}

fn elect_help() -> String {
    long_help(
        "  leasehold elect -S redis://host/ scheduler --note 10.0.0.7:80 -- ./scheduler\n  \
           leasehold elect -S redis://host/ scheduler --observe",
    )
}

fn long_help(examples: &str) -> String {
    format!(
        "Example:\n{examples}\n\n{}\n\n\
         A leasehold that is stopped renews nothing: after Ctrl-Z or SIGSTOP the lock ends with its TTL.\n\
         When leasehold continues after that, it kills the command and ends with status 79.",
        tables()
    )
}

/// What the help and the manual say after all options.
pub(crate) const TABLES: [(&str, &str); 4] = [
    ("Exit status", exit::TABLE),
    (
        "Processes that the command leaves running",
        guarded::LEFT_RUNNING,
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
