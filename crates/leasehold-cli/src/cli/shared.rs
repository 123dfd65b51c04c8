//! Groups of arguments that several subcommands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, StringValueParser};
use clap::{Args, ValueHint};
use leasehold::Wait;

use crate::child::OnLost;
use crate::config::{Key, Origin, Setting, Shown, typed};
use crate::failure::Failure;
use crate::{duration, exit};

/// Where the locks live, and who we are there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: local:, local:/dir, local:/dir?group=NAME (several users), redis://, rediss://
    /// (TLS), redis+unix://, valkey://, redis-sentinel://h1,h2,h3/name, redis-cluster://h1,h2,… or
    /// redlock://h1,h2,h3; Redis with ?layout=classic shares locks with other libraries [env:
    /// LEASEHOLD_STORE] [default: local:]
    ///
    /// local: needs no server and serves the processes of one user on one machine. Machines that
    /// share locks must name the same store: `run --every` warns when no store is named, and
    /// `elect` refuses. Other users of this machine can see a password in this option in the list
    /// of processes: put the URL into LEASEHOLD_STORE or leasehold.toml, or the password into a
    /// file.
    #[arg(
        short = 'S', long = "store", value_name = "URL",
        value_parser = typed(parse_store, "--store")
    )]
    url: Option<Setting<String>>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// What a store is opened with, besides its URL.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct AccessArgs {
    /// The user name for the store [env: LEASEHOLD_USER]
    #[arg(
        long, value_name = "NAME",
        value_parser = typed(StringValueParser::new(), "--user")
    )]
    pub(crate) user: Option<Setting<String>>,
    /// A file whose first line is the password for the store; read for each connection [env:
    /// LEASEHOLD_PASSWORD_FILE]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--password-file")
    )]
    pub(crate) password_file: Option<Setting<PathBuf>>,
    /// PEM file of the certificates to trust, instead of the system's [env: LEASEHOLD_TLS_CA]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-ca")
    )]
    pub(crate) tls_ca: Option<Setting<PathBuf>>,
    /// PEM file of the client certificate [env: LEASEHOLD_TLS_CERT]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-cert")
    )]
    pub(crate) tls_cert: Option<Setting<PathBuf>>,
    /// PEM file of the key of the client certificate [env: LEASEHOLD_TLS_KEY]
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--tls-key")
    )]
    pub(crate) tls_key: Option<Setting<PathBuf>>,
}

/// Which settings are read beside the options.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct FileArgs {
    /// Read this leasehold.toml, instead of the user's and the system's [env: LEASEHOLD_CONFIG]
    ///
    /// Without it, settings that are neither typed nor in the environment come from
    /// $XDG_CONFIG_HOME/leasehold/leasehold.toml, else ~/.config/leasehold/leasehold.toml, and
    /// from /etc/leasehold/leasehold.toml. `leasehold config` shows which are in force.
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        value_parser = typed(PathBufValueParser::new(), "--config")
    )]
    pub(crate) config: Option<Setting<PathBuf>>,
    /// Use the settings of [profile.NAME] of leasehold.toml first [env: LEASEHOLD_PROFILE]
    #[arg(
        long, value_name = "NAME",
        value_parser = typed(NonEmptyStringValueParser::new(), "--profile")
    )]
    pub(crate) profile: Option<Setting<String>>,
}

impl StoreArgs {
    /// The URL; `local:` unless one was named.
    pub(crate) fn url(&self) -> &str {
        self.typed_url().unwrap_or("local:")
    }

    /// The URL, and where it comes from.
    pub(crate) fn named(&self) -> Setting<String> {
        let usual = || Setting::default(self.url().to_owned());
        self.url.clone().unwrap_or_else(usual)
    }

    /// The store of a saved lease, unless -S names another. Credentials of a file that names
    /// another store are not sent there.
    pub(crate) fn or_saved(&self, url: &str) -> Self {
        let named = self.named();
        let is_typed = matches!(named.from, Origin::Option { .. });
        if is_typed || Shown::of(&named.value).is_ok_and(|named| named.url == url) {
            return self.clone();
        }
        Self {
            url: Some(Setting::default(url.to_owned())),
            access: self.access.clone().said(),
            files: self.files.clone(),
        }
    }

    /// Whether a store was named.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// The URL that was named; before the rest is filled in, on the command line.
    pub(crate) fn typed_url(&self) -> Option<&str> {
        self.url.as_ref().map(|url| &*url.value)
    }

    /// Fills in what is missing.
    pub(crate) fn fill(&mut self, url: Option<Setting<String>>, access: AccessArgs) {
        self.url = self.url.take().or(url);
        self.access = std::mem::take(&mut self.access).over(access);
    }
}

impl AccessArgs {
    /// These, and those of `below` that are missing here.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            user: self.user.or(below.user),
            password_file: self.password_file.or(below.password_file),
            tls_ca: self.tls_ca.or(below.tls_ca),
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
        }
    }

    /// Those that this run was told, and did not find in a file.
    pub(crate) fn said(self) -> Self {
        fn said<T>(setting: Option<Setting<T>>) -> Option<Setting<T>> {
            setting.filter(|setting| setting.from.is_said())
        }
        Self {
            user: said(self.user),
            password_file: said(self.password_file),
            tls_ca: said(self.tls_ca),
            tls_cert: said(self.tls_cert),
            tls_key: said(self.tls_key),
        }
    }

    /// Which are set, and where.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (Key, Origin)> {
        fn origin<T>(key: Key, setting: &Option<Setting<T>>) -> Option<(Key, Origin)> {
            Some((key, setting.as_ref()?.from.clone()))
        }
        let all = [
            origin(Key::User, &self.user),
            origin(Key::PasswordFile, &self.password_file),
            origin(Key::TlsCa, &self.tls_ca),
            origin(Key::TlsCert, &self.tls_cert),
            origin(Key::TlsKey, &self.tls_key),
        ];
        all.into_iter().flatten()
    }
}

/// A store that is set to nothing is a mistake, and not the wish for another one.
pub(crate) fn parse_store(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the store is empty: name one, e.g. redis://host/ or local:".to_owned()),
        url => Ok(url.to_owned()),
    }
}

/// How much is said.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print each step
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the metrics of a job go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct MetricsArgs {
    /// Write metrics of the lock to this file, for the textfile collector of node_exporter
    ///
    /// The file says whether the lock is held, how long the job waited for it and held it, the exit
    /// status, and when the job last ran and last succeeded. leasehold replaces it at the start, on
    /// each change, every 10s, and at the end. If it cannot be written, a warning says so once, and
    /// the job continues. Use one file for each job; the collector reads files whose names end in
    /// .prom.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
}

/// What each subcommand has that uses a store.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
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
        requires = "limit"
    )]
    pub(crate) take: Option<u32>,
    /// Get the lock at once if an outer `leasehold run --reentrant` holds it
    ///
    /// The inner run counts as the same owner if LEASEHOLD_OWNER of the outer one is in its
    /// environment. The key is free when all of them have released it.
    #[arg(long, conflicts_with = "keys")]
    pub(crate) reentrant: bool,
    /// Keep the lock taken for at least this long, even after an earlier end or a crash
    // Of several keys those that were got first would stay taken although not all were got.
    #[arg(
        long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "keys"
    )]
    pub(crate) min_hold: Option<Duration>,
    /// Give the lock up after this long, as if it were lost; `run` first ends the command
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
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
    pub(crate) limit: WaitLimitArgs,
    /// Look for a deadlock after this long, and give up if this claim is the youngest in it
    ///
    /// leasehold finds deadlocks among nested runs, and among programs that use contexts. The exit
    /// status is that of a lock that was not obtained in time. Without this option a nested run
    /// prints a warning after one second of a deadlock, and keeps waiting.
    #[arg(
        long, value_name = "DURATION", value_parser = duration::parse,
        conflicts_with = "no_wait"
    )]
    pub(crate) deadlock_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    /// The exit status when the lock was not obtained in time [default: 75; with --every: 0]
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
}

impl WaitArgs {
    /// The status for a lock that was not obtained in time.
    pub(crate) fn conflict_status(&self) -> u8 {
        self.conflict_exit_code.unwrap_or(exit::CONFLICT)
    }
}

/// How long an outage of the store is waited through.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct RetryArgs {
    /// Give up when the store has been unavailable for this long [env: LEASEHOLD_RETRY_FOR]
    ///
    /// Without it, leasehold retries for as long as it waits for the lock; with -n or --every it
    /// does not retry. With it, `run -n` retries an unavailable store for this long, and still ends
    /// at once when another holds the lock. The exit status is 69.
    #[arg(
        long, value_name = "DURATION", value_parser = typed(duration::parse, "--retry-for")
    )]
    pub(crate) retry_for: Option<Setting<Duration>>,
}

impl RetryArgs {
    /// The longest outage that is waited through, if there is a limit.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.retry_for.as_ref().map(|retry_for| retry_for.value)
    }
}

/// How long to wait at most.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitLimitArgs {
    /// Do not wait: give up if the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// Give up after this long (500ms, 30s, 5m, 1h30m) [env: LEASEHOLD_WAIT] [default: forever]
    ///
    /// The time starts with the command and includes connecting. During an outage, a start or a
    /// quarantine of the store leasehold keeps trying, and a line says so; after an outage, a claim
    /// that was in the queue starts again at its end. Errors that waiting cannot repair, such as a
    /// wrong password, end the command at once.
    #[arg(short, long, value_name = "DURATION", value_parser = typed(parse_wait, "--wait"))]
    pub(crate) wait: Option<Setting<Wait>>,
}

impl WaitLimitArgs {
    /// How long, and where that comes from.
    pub(crate) fn wait(&self) -> Setting<Wait> {
        match &self.wait {
            _ if self.no_wait => Setting::new(Wait::No, Origin::Option { name: "--no-wait" }),
            Some(wait) => wait.clone(),
            None => Setting::default(Wait::Forever),
        }
    }
}

/// Reads how long to wait: a duration, or `forever`.
pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    if text.trim() == "forever" {
        return Ok(Wait::Forever);
    }
    Ok(match duration::parse(text)? {
        Duration::ZERO => Wait::No,
        limit => Wait::For(limit),
    })
}

/// The lease, and how others see it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Lease")]
pub(crate) struct LeaseArgs {
    /// How long the lock stays taken after a crash of leasehold, which renews it while it runs
    /// [env: LEASEHOLD_TTL] [default: 30s]
    #[arg(
        long, value_name = "DURATION", value_parser = typed(duration::parse, "--ttl")
    )]
    pub(crate) ttl: Option<Setting<Duration>>,
    /// A name that others see, beside host and process id [env: LEASEHOLD_LABEL]
    #[arg(
        long, value_name = "TEXT",
        value_parser = typed(StringValueParser::new(), "--label")
    )]
    pub(crate) label: Option<Setting<String>>,
}

impl LeaseArgs {
    /// The TTL, and where it comes from.
    pub(crate) fn ttl(&self) -> Setting<Duration> {
        let usual = || Setting::default(Duration::from_secs(30));
        self.ttl.clone().unwrap_or_else(usual)
    }
}

/// What happens to the command when its lock ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct GuardArgs {
    /// What happens to the command when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term")]
    pub(crate) on_lost: OnLost,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
    /// Hold the lock until every process that the command has started has ended
    ///
    /// Without it, the lock is released when the command itself ends, and its background processes
    /// continue without the lock. With it, the lock is held and renewed until they have ended: on
    /// Linux every process that the command has started, daemons too; on other systems its process
    /// group. They get the signals that leasehold gets, with SIGTERM in place of Ctrl-C, and are
    /// stopped when the lock is lost. The exit status is the command's own.
    #[arg(long, help_heading = "Jobs")]
    pub(crate) with_children: bool,
}

/// How long the command has to stop by itself.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct GraceArgs {
    /// How long before the end of the lease the command is asked to stop [env: LEASEHOLD_GRACE]
    /// [default: TTL/4, at most 5s]
    #[arg(
        long, value_name = "DURATION", value_parser = typed(duration::parse, "--grace")
    )]
    pub(crate) grace: Option<Setting<Duration>>,
}

/// The longest grace time that nobody asked for.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

impl GraceArgs {
    /// The grace time for that TTL, and where it comes from.
    pub(crate) fn grace(&self, ttl: &Setting<Duration>) -> Result<Setting<Duration>, Failure> {
        match &self.grace {
            None => Ok(Setting::default((ttl.value / 4).min(LONGEST_GRACE))),
            Some(grace) if grace.value > ttl.value / 2 => Err(Failure::usage(format!(
                "a grace time of {} ({}) is too long for a TTL of {} ({})",
                duration::spoken(grace.value),
                grace.from,
                duration::spoken(ttl.value),
                ttl.from,
            ))
            .hint("choose at most half of the TTL, or a longer TTL")),
            Some(grace) => Ok(grace.clone()),
        }
    }
}
