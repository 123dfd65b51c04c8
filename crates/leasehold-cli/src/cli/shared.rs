//! Groups of arguments that several subcommands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::child::OnLost;
use crate::{duration, env, exit};

/// Where the locks live, and who we are there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store: local:, local:/dir, redis://, rediss:// (TLS), redis+unix://, valkey://,
    /// redis-sentinel://h1,h2,h3/name, redis-cluster://h1,h2,… or redlock://h1,h2,h3;
    /// those of Redis with ?layout=classic share locks with other libraries
    ///
    /// When no store is named, it is `local:`, which serves the processes of one user on one
    /// machine and needs no server. A fleet names its store: `run --every` says so when none is
    /// named, and `elect` refuses, unless -S local: is said. A password in the URL can be seen by
    /// others of this machine in the list of processes, as all arguments can: better put the URL
    /// into LEASEHOLD_STORE, or the password into a file.
    #[arg(
        short = 'S', long = "store", value_name = "URL", value_parser = store_url,
        env = env::STORE, hide_env_values = true
    )]
    url: Option<String>,
    /// The user name at the store
    #[arg(long, value_name = "NAME", env = env::USER, hide_env_values = true)]
    pub(crate) user: Option<String>,
    /// A file whose first line is the password at the store; read again with each connection
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

impl StoreArgs {
    /// The URL; `local:` unless one was named.
    pub(crate) fn url(&self) -> &str {
        self.url.as_deref().unwrap_or("local:")
    }

    /// The same, with this URL if none was named.
    pub(crate) fn or_url(&self, url: &str) -> Self {
        Self {
            url: Some(self.url.clone().unwrap_or_else(|| url.to_owned())),
            ..self.clone()
        }
    }

    /// Whether a store was named.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }
}

/// A variable that is set to nothing is a mistake, and not the wish for another store.
fn store_url(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err(format!(
            "the store is empty: name one, e.g. redis://host/ or local:, or unset {}",
            env::STORE
        )),
        url => Ok(url.to_owned()),
    }
}

/// How much is said.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what is going on
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
    /// Keep metrics of the lock in this file, for the textfile collector of node_exporter
    ///
    /// The file tells whether the lock is held, how long the job waited for it and held it, the exit
    /// status, and when the job last ran and last succeeded. It is replaced at the start, on each
    /// change, every 10s and at the end. If it cannot be written, a warning says so once, and the
    /// job goes on. Use one file for each job; the collector reads files whose names end in .prom.
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
    /// What is to be protected, e.g. orders/42
    #[arg(value_name = "KEY", required_unless_present = "keys", help_heading = None)]
    pub(crate) key: Option<String>,
    /// Several keys as one lock, all or none: say it once for each
    #[arg(short, long = "key", value_name = "KEY", conflicts_with = "key")]
    pub(crate) keys: Vec<String>,
    /// As a reader: together with other readers, while no writer holds it
    #[arg(short, long, conflicts_with_all = ["exclusive", "limit", "reentrant"])]
    pub(crate) shared: bool,
    /// As a writer: alone (the default)
    #[arg(short = 'x', long, conflicts_with = "limit")]
    pub(crate) exclusive: bool,
    /// At most N at once; all who use the key say the same number
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["keys", "reentrant"]
    )]
    pub(crate) limit: Option<u32>,
    /// Count for K of the N [default: 1]
    #[arg(
        long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..),
        requires = "limit"
    )]
    pub(crate) take: Option<u32>,
    /// Enter at once where an outer `leasehold run --reentrant` holds the key already
    ///
    /// Whoever has its LEASEHOLD_OWNER in the environment counts as the same owner. The key is
    /// free when the last of them has given it back.
    #[arg(long, conflicts_with = "keys")]
    pub(crate) reentrant: bool,
    /// Keep the lock taken for so long at least, also when we end sooner or crash
    // Of several keys those that were got first would stay taken although not all were got.
    #[arg(
        long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "keys"
    )]
    pub(crate) min_hold: Option<Duration>,
    /// Give the lock up after so long, as if it were lost; run: once the command has ended
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
    /// Give up at once when the lock is not free
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Give up after so long (500ms, 30s, 5m, 1h30m); without it, wait for ever
    ///
    /// That counts from the start, connecting included. An outage of the store, its start and its
    /// quarantine are waited through, with a line that says so; after an outage a claim that was
    /// in the queue goes to its end. What waiting cannot mend, as a wrong password, ends it at
    /// once.
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Look for a deadlock after so long, and give up if we are the youngest in one
    ///
    /// A deadlock is found among runs that say who runs within whom, as nested runs do by
    /// themselves. The exit status is that of a lock that was not obtained in time. Without this,
    /// a nested run says after a second that it is in a deadlock, and goes on waiting.
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
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct RetryArgs {
    /// Give up when the store has been unavailable for so long
    ///
    /// Without it, an outage is waited through as long as the lock is waited for, and with -n or
    /// --every not at all. With it, `run -n` asks an unavailable store again for that time, and
    /// still ends at once when another holds the lock. The exit status is 69.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) retry_for: Option<Duration>,
}

/// The lease, and how others see it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lease")]
pub(crate) struct LeaseArgs {
    /// How long the lock outlives a crash of ours: it is renewed while we live
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
    /// What others see of us, beside host and process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// What happens to the command when its lock ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Loss")]
pub(crate) struct GuardArgs {
    /// What happens to the command when the lock is lost
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// How long before the lock's end the command is told to stop [default: TTL/4, at most 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
}
