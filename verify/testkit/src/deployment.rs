//! Several servers that belong together, as they are run: [`Independent`] ones for a quorum, a
//! primary with replicas under [`Sentinels`], a [`Cluster`].
//!
//! ```no_run
//! # async fn example() {
//! use leasehold_testkit::deployment::Sentinels;
//!
//! let deployment = Sentinels::start();
//! let old = deployment.primary();
//! // … clients work at `deployment.url()` …
//! old.kill();
//! let new = deployment.wait_for_another_primary(old).await;
//! assert_ne!(new.port(), old.port());
//! # }
//! ```
//!
//! Each server is a [`RedisServer`], with all that can be done to one: `kill`, `stop`, `cont`,
//! `restart` with or without its data. All of them end with the test, however it ends.
//!
//! What a deployment takes time for (a fail-over, say) is awaited: the methods are asynchronous, so
//! that clients on the same runtime go on meanwhile. What takes milliseconds blocks.

mod builder;
mod cluster;
mod independent;
mod members;
mod sentinels;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;
use crate::server::RedisServer;
pub use builder::DeploymentBuilder;
pub use cluster::{Cluster, SlotMove, Takeover};
pub use independent::Independent;
pub use members::Members;
pub use sentinels::Sentinels;

/// What a server says, or why it does not say it yet.
pub(crate) type Answer<T> = Result<T, String>;

/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks each time until the answer is good, as often as the time allows.
#[expect(
    clippy::disallowed_methods,
    reason = "servers have no event for what they agree on; and no machine sleeps meanwhile"
)]
fn looks<T>(
    what: &'static str,
    servers: &[&[RedisServer]],
    mut check: impl FnMut() -> Answer<T>,
) -> impl FnMut() -> Option<T> {
    let limit = Instant::now() + PATIENCE;
    move || match check() {
        Ok(answer) => Some(answer),
        Err(_) if Instant::now() < limit => None,
        Err(why) => panic!("waited {PATIENCE:?} for {what}: {why}\n{}", logs(servers)),
    }
}

/// Waits until `check` answers; it says why it does not yet.
///
/// # Panics
///
/// When it does not within [`PATIENCE`]; the message has the logs of the servers.
pub(crate) async fn until<T>(
    what: &'static str,
    servers: &[&[RedisServer]],
    check: impl FnMut() -> Answer<T>,
) -> T {
    let mut look = looks(what, servers, check);
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The ends of the servers' logs.
fn logs(servers: &[&[RedisServer]]) -> String {
    let mut text = String::new();
    for server in servers.iter().copied().flatten() {
        let log = server.log();
        let lines: Vec<_> = log.lines().collect();
        let end = &lines[lines.len().saturating_sub(60)..];
        text += &format!("--- {server:?}\n{}\n", end.join("\n"));
    }
    text
}

/// As [`until`], for the start of a deployment or of a server, when nobody else works yet.
#[expect(clippy::disallowed_methods, reason = "as above")]
pub(crate) fn until_blocking<T>(
    what: &'static str,
    servers: &[&[RedisServer]],
    check: impl FnMut() -> Answer<T>,
) -> T {
    let mut look = looks(what, servers, check);
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

/// What a server says of replication.
#[derive(Debug)]
struct Replication(BTreeMap<String, String>);

impl Replication {
    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|found| found == value)
    }

    fn is_primary(&self) -> bool {
        self.is("role", "master")
    }

    /// The port of the server that it follows.
    fn primary(&self) -> Option<u16> {
        self.0.get("master_port")?.parse().ok()
    }

    /// Whether it follows the server on that port, and is past the first copy of the data.
    fn follows(&self, port: u16) -> bool {
        self.primary() == Some(port) && self.is("master_link_status", "up")
    }

    /// How far it is: in what it has written as a primary, or got as a replica.
    fn offset(&self) -> u64 {
        let whose = if self.is_primary() { "master" } else { "slave" };
        let offset = self.0.get(&format!("{whose}_repl_offset"));
        let offset = offset.map(|offset| offset.parse());
        offset.and_then(Result::ok).unwrap_or_default()
    }
}

fn replication(server: &RedisServer) -> Result<Replication, String> {
    let info: String = server.ask(&["INFO", "replication"])?;
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Ok(Replication(fields.map(owned).collect()))
}
