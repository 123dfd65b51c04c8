//! The stores of this build, and the capabilities of a store.
//!
//! Pass an open [`LockStore`] to [`ClientBuilder::with_store`](crate::ClientBuilder::with_store).
//! To write a store of your own, use the crate `leasehold-store`.

use leasehold_core::Invalid;
use leasehold_store::StoreError;
use leasehold_store::access::Access;
use leasehold_store::scheme::{Description, Scheme};
use leasehold_store::sync::check_runtime;

use crate::registry;
#[doc(hidden)]
pub use crate::registry::examples;

#[doc(inline)]
pub use leasehold_store::{
    Acknowledged, Acknowledges, AuditLimit, AuditRecord, Capabilities, LockStore,
    scheme::StoreOptions,
};
// For the command, which measures a server.
#[doc(hidden)]
pub use leasehold_store::bare::{BareServer, BareWork, ServerCost};
// For the command, which compares names and reads durations as stores do.
#[doc(hidden)]
pub use leasehold_store::{format_duration, glob, parse_duration};
// For the tests of the stores beside this crate.
#[doc(hidden)]
pub use leasehold_store::{
    AllAnswer, Answer, AuditLog, ListPage, Listening, Listing, OnePage, Push, PushSink, Records,
    Step, Taken, Transacted, Verbs,
};
pub(crate) use leasehold_store::{check_reply, report, scheme};

/// What a URL means, without opening its store: for the command.
#[doc(hidden)]
pub fn describe(url: &str) -> Result<Description, StoreError> {
    let (scheme, url) = registry::of(url)?;
    Ok(scheme.describe(&url)?)
}

/// What users of a URL may not expect of its store: for the command.
#[doc(hidden)]
pub fn warning(url: &str) -> Option<Invalid> {
    let (scheme, url) = registry::of(url).ok()?;
    scheme.warning(&url)
}

/// The server of a URL, without a store: for the command. No table has these functions: who does not call
/// this has none of them.
#[doc(hidden)]
pub async fn bare(url: &str, access: &Access) -> Result<Option<Box<dyn BareServer>>, StoreError> {
    check_runtime()?;
    let (named, url) = registry::of(url)?;
    let is = |scheme: &dyn Scheme| scheme.names() == named.names();
    #[cfg(feature = "redis")]
    if is(&leasehold_redis::OneServer) {
        return leasehold_redis::bare(&url, access).await;
    }
    #[cfg(feature = "postgres")]
    if is(&leasehold_postgres::Postgres) {
        return leasehold_postgres::bare(&url, access).await;
    }
    #[cfg(feature = "zookeeper")]
    if is(&leasehold_zookeeper::ZooKeeper) {
        return leasehold_zookeeper::bare(&url, access).await;
    }
    let _ = (is, url, access);
    Ok(None)
}

/// `local:` — the store for many processes on one machine, without a server.
#[cfg(feature = "local")]
pub mod local {
    #[doc(inline)]
    pub use leasehold_local::{LocalOptions, LocalStore};
}

/// `memory:` — the store in the memory of one process, also for tests.
pub mod memory {
    #[doc(inline)]
    pub use leasehold_store::memory::{ManualClock, MemoryStore};
}

/// Redis and Valkey: one server, Sentinels, a cluster, or independent servers (Redlock).
#[cfg(feature = "redis")]
pub mod redis {
    #[doc(inline)]
    pub use leasehold_redis::{
        Acknowledge, AcknowledgedBy, ClassicStore, Quarantine, RedisAddress, RedisClusterOptions,
        RedisLayout, RedisOptions, RedisStore, RedlockOptions, RedlockStore, Restart, Sentinels,
    };
}

/// PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    #[doc(inline)]
    pub use leasehold_postgres::{Commit, PostgresOptions, SslMode};
}

/// ZooKeeper.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    #[doc(inline)]
    pub use leasehold_zookeeper::ZooKeeperOptions;
}
