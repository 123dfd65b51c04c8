//! The arguments of those that look at locks and stores.

use std::time::{Duration, SystemTime};
#[cfg(feature = "console")]
use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

#[cfg(feature = "console")]
use super::StoreArgs;
use super::{CommonArgs, PatternArgs};
use crate::view::KeyView;
use crate::{duration, moment};

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
#[command(
    after_help = "Example:\n  leasehold doctor -S redis://10.0.0.5/ > found || \
    mail -s locks ops < found"
)]
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
    #[command(flatten)]
    pub(crate) keys: PatternArgs,
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
        default_missing_value = "1s", value_parser = duration::at_least("100ms")
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
    leasehold log --since '2026-01-31 12:00' --until '2026-01-31 12:30' -n 100\n  \
    leasehold log --follow --json | jq -c 'select(.event == \"expired\")'")]
#[command(mut_arg("json", |json| json.help("Print one JSON object per line")))]
pub(crate) struct LogArgs {
    /// The key; all keys unless said
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only entries from then on: 1h30m ago, or a time [default: all that are kept]
    ///
    /// A time is written like 2026-01-31T12:00:00Z, with any offset, or without one, like
    /// '2026-01-31 12:00' or 2026-01-31, which is UTC, as are the times that are printed.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    pub(crate) since: Option<SystemTime>,
    /// Only entries up to then, written as for --since
    #[arg(long, value_name = "TIME", value_parser = moment::parse, conflicts_with = "follow")]
    pub(crate) until: Option<SystemTime>,
    /// Only the newest N entries of these; with --follow, and those that come
    #[arg(short = 'n', long = "lines", value_name = "N")]
    pub(crate) lines: Option<usize>,
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
#[cfg(feature = "console")]
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold top -S redis://host/ 'orders/*'")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) keys: PatternArgs,
    /// How often the store is asked, at least 100ms apart
    #[arg(
        short, long, value_name = "DURATION", default_value = "1s",
        value_parser = duration::at_least("100ms")
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
#[command(
    after_help = "Example:\n  leasehold deadlocks -S redis://host/ > found || \
    mail -s deadlock ops < found"
)]
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
#[cfg(feature = "console")]
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

#[cfg(feature = "console")]
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let hint = "name an address and a port, e.g. 127.0.0.1:7480 or [::1]:7480";
    text.parse().map_err(|_| hint.to_owned())
}
