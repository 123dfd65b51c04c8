//! Groups of arguments that several subcommands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser};
use clap::{ArgMatches, Args, ValueHint};

use crate::child::OnLost;
use crate::config::{
    CommandSettings, FileArgs, Key, Origin, Setting, TABLE, Value, parse_store, parse_wait,
};
use crate::duration;
use crate::output::OutputArgs;

/// Where the metrics of a job go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct MetricsArgs {
    /// Write metrics of the lock to this file, for the textfile collector of node_exporter
    ///
    /// The file says whether the lock is held, how long the job waited for it and held it, the exit
    /// status, and when the job last ran and last succeeded. leasehold replaces it at the start, on
    /// each change, every 10s, and at the end. If it cannot be written, a warning says so once, and
    /// the job continues. It is not written to what is not a regular file, such as /dev/stdout, and
    /// a file of another kind is not replaced. Use one file for each job; the collector reads files
    /// whose names end in .prom.
    #[arg(
        long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(metrics_file),
        hide_short_help = true
    )]
    pub(crate) metrics_file: Option<PathBuf>,
}

/// Where the metrics go. Standard output is the job's.
fn metrics_file(path: PathBuf) -> Result<PathBuf, &'static str> {
    match path.as_os_str() == "-" {
        true => Err("metrics are not written to standard output; name a file"),
        false => Ok(path),
    }
}

/// The store, and what it is opened with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
struct StoreOptions {
    /// The store: local:, local:/dir, local:/dir?group=NAME (several users), redis://, rediss://
    /// (TLS), redis+unix://, valkey://, redis-sentinel://h1,h2,h3/name, redis-cluster://h1,h2,…,
    /// redlock://h1,h2,h3, postgres://user@host/db or zookeeper://h1,h2,h3/path; Redis with
    /// ?layout=classic shares locks with other libraries [env: LEASEHOLD_STORE] [default: local:]
    ///
    /// local: needs no server and serves the processes of one user on one machine. Machines that
    /// share locks must name the same store: `run --every` warns when no store is named, and
    /// `elect` refuses. Other users of this machine can see a password in this option in the list
    /// of processes: put the URL into LEASEHOLD_STORE or leasehold.toml, or the password into a
    /// file.
    #[arg(short = 'S', long, value_name = "URL", value_parser = parse_store)]
    store: Option<String>,
    /// The user name for the store [env: LEASEHOLD_USER]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    user: Option<String>,
    /// A file whose first line is the password for the store; read for each connection [env:
    /// LEASEHOLD_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    password_file: Option<PathBuf>,
    /// PEM file of the certificates to trust, instead of the system's [env: LEASEHOLD_TLS_CA]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate [env: LEASEHOLD_TLS_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// PEM file of the key of the client certificate [env: LEASEHOLD_TLS_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    tls_key: Option<PathBuf>,
}

/// Which store, and what is set for the subcommand.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    options: StoreOptions,
    /// Also of the other options that are settings: see `parse`.
    #[arg(skip)]
    pub(crate) settings: CommandSettings,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// What each subcommand has that uses a store.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Which keys.
#[derive(Debug, Args)]
pub(crate) struct PatternArgs {
    #[arg(
        value_name = "PATTERN", default_value = "*",
        value_parser = NonEmptyStringValueParser::new(),
        help = "Which keys: * for any text, ? for any character, [ab] for one of these"
    )]
    pub(crate) pattern: String,
}

/// Which lock.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockArgs {
    /// The name of the lock, e.g. orders/42
    #[arg(value_name = "KEY", required_unless_present = "keys", help_heading = None)]
    pub(crate) key: Option<String>,
    /// One of several keys, held together: all or none; repeat it for each key
    #[arg(short, long = "key", value_name = "KEY", conflicts_with = "key")]
    pub(crate) keys: Vec<String>,
    /// As a reader: together with other readers, while no writer holds it
    #[arg(short, long, conflicts_with_all = ["exclusive", "limit", "reentrant"])]
    pub(crate) shared: bool,
    /// As a writer: alone (the default)
    #[arg(short = 'x', long, conflicts_with = "limit")]
    pub(crate) exclusive: bool,
    /// At most N holders at once (a semaphore); all users of the key give the same N
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["keys", "reentrant"]
    )]
    pub(crate) limit: Option<u32>,
    /// Take K of the N permits [default: 1]
    #[arg(
        long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..),
        requires = "limit", hide_short_help = true
    )]
    pub(crate) take: Option<u32>,
    /// Get the lock at once if an outer `leasehold run --reentrant` holds it
    ///
    /// The inner run counts as the same owner if LEASEHOLD_OWNER of the outer one is in its
    /// environment. The key is free when all of them have released it.
    #[arg(long, conflicts_with = "keys", hide_short_help = true)]
    pub(crate) reentrant: bool,
    /// Keep the lock taken for at least this long, even after an earlier end or a crash
    // Of several keys those that were got first would stay taken although not all were got.
    #[arg(
        long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "keys",
        hide_short_help = true
    )]
    pub(crate) min_hold: Option<Duration>,
    /// Give the lock up after this long, as if it were lost; `run` first ends the command
    #[arg(long, value_name = "DURATION", value_parser = duration::at_least("50ms"), hide_short_help = true)]
    pub(crate) max_hold: Option<Duration>,
}

impl LockArgs {
    /// The key; of several the first.
    pub(crate) fn first_key(&self) -> &str {
        let mut keys = self.key.iter().chain(&self.keys);
        keys.next().map_or("", String::as_str)
    }
}

/// How long to wait for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    limit: WaitLimitOptions,
    /// Look for a deadlock after this long, and give up if this claim is the youngest in it
    ///
    /// leasehold finds deadlocks among nested runs, and among programs that use contexts. The exit
    /// status is that of a lock that was not obtained in time. Without this option a nested run
    /// prints a warning after one second of a deadlock, and keeps waiting.
    #[arg(
        long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "no_wait",
        hide_short_help = true
    )]
    pub(crate) deadlock_timeout: Option<Duration>,
    #[command(flatten)]
    retry: RetryOption,
    /// The exit status when the lock was not obtained in time [default: 75; with --every: 0]
    #[arg(short = 'E', long, value_name = "N", hide_short_help = true)]
    pub(crate) conflict_exit_code: Option<u8>,
}

/// How long an outage of the store is waited through.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct RetryOption {
    /// Give up when the store has been unavailable for this long [env: LEASEHOLD_RETRY_FOR]
    ///
    /// Without it, leasehold retries for as long as it waits for the lock; with -n or --every it
    /// does not retry. With it, `run -n` retries an unavailable store for this long, and still ends
    /// at once when another holds the lock. The exit status is 69.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, hide_short_help = true)]
    retry_for: Option<Duration>,
}

/// How long to wait at most.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitLimitOptions {
    /// Do not wait: give up if the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// Give up after this long (500ms, 30s, 5m, 1h30m) [env: LEASEHOLD_WAIT] [default: forever]
    ///
    /// The time starts with the command and includes connecting. During an outage, a start or a
    /// quarantine of the store leasehold keeps trying, and a line says so; after an outage, a claim
    /// that was in the queue starts again at its end. Errors that waiting cannot repair, such as a
    /// wrong password, end the command at once.
    #[arg(short, long, value_name = "DURATION", value_parser = parse_wait)]
    wait: Option<Duration>,
}

/// The lease, and how others see it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lease")]
pub(crate) struct LeaseOptions {
    /// How long the lock stays taken after a crash of leasehold, which renews it while it runs
    /// [env: LEASEHOLD_TTL] [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// A name that others see, beside host and process id [env: LEASEHOLD_LABEL]
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    label: Option<String>,
}

/// What happens to the command when its lock ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct GuardArgs {
    /// What happens to the command when the lock is lost
    #[arg(
        long, value_name = "WHAT", value_enum, default_value_t = OnLost::Term,
        hide_short_help = true
    )]
    pub(crate) on_lost: OnLost,
    #[command(flatten)]
    grace: GraceOption,
    /// Hold the lock until every process that the command has started has ended
    ///
    /// Without it, the lock is released when the command itself ends, and its background processes
    /// continue without the lock. With it, the lock is held and renewed until they have ended: on
    /// Linux every process that the command has started, daemons too; on other systems its process
    /// group. They get the signals that leasehold gets, with SIGTERM in place of Ctrl-C, and are
    /// stopped when the lock is lost. The exit status is the command's own.
    #[arg(long, help_heading = "Jobs", hide_short_help = true)]
    pub(crate) with_children: bool,
}

/// How long the command has to stop by itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct GraceOption {
    /// How long before the end of the lease the command is asked to stop [env: LEASEHOLD_GRACE]
    /// [default: TTL/4, at most 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, hide_short_help = true)]
    grace: Option<Duration>,
}

/// What was typed of all settings that the subcommand has.
pub(super) fn typed_settings(typed: &ArgMatches) -> CommandSettings {
    let mut settings = CommandSettings::default();
    for row in &TABLE {
        let id = row.id();
        // An option has one of these types. Those that the subcommand does not have are not known.
        let value = one(typed, &id)
            .map(Value::Text)
            .or_else(|| one(typed, &id).map(Value::Path))
            .or_else(|| one(typed, &id).map(Value::Duration));
        if let Some(value) = value {
            let from = Origin::option(format!("--{}", row.name));
            settings.layer.insert(row.key, Setting::new(value, from));
        }
    }
    if one::<bool>(typed, "no_wait") == Some(true) {
        let (none, from) = (Duration::ZERO, Origin::option("--no-wait"));
        let wait = Setting::new(Value::Duration(none), from);
        settings.layer.insert(Key::Wait, wait);
    }
    settings
}

/// What was typed of an option, if it has that type.
fn one<T: Clone + Send + Sync + 'static>(typed: &ArgMatches, id: &str) -> Option<T> {
    typed.try_get_one(id).ok().flatten().cloned()
}
