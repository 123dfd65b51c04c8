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

mod independent;

use std::time::{Duration, Instant};

use crate::process::PATIENCE;
use crate::server::RedisServer;
pub use independent::{Independent, IndependentBuilder};

/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until the answer is good, as often as the time allows.
struct Patience {
    what: &'static str,
    limit: Instant,
}

impl Patience {
    #[expect(
        clippy::disallowed_methods,
        reason = "servers have no event for what they agree on; and no machine sleeps meanwhile"
    )]
    fn new(what: &'static str) -> Self {
        let limit = Instant::now() + PATIENCE;
        Self { what, limit }
    }

    #[expect(clippy::disallowed_methods, reason = "as above")]
    fn still<T>(&self, answer: Result<T, String>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(_) if Instant::now() < self.limit => None,
            Err(why) => panic!("waited {PATIENCE:?} for {}: {why}", self.what),
        }
    }
}

/// Waits until `check` answers; it says why it does not yet.
async fn until<T>(what: &'static str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let patience = Patience::new(what);
    loop {
        if let Some(answer) = patience.still(check()) {
            return answer;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The addresses of a URL: `127.0.0.1:1,127.0.0.1:2`.
fn listed(servers: &[RedisServer]) -> String {
    let addresses = servers.iter().map(|server| server.address().to_string());
    addresses.collect::<Vec<_>>().join(",")
}
