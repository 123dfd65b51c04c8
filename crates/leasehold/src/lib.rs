//! Distributed locks on Redis and other stores: fair (first come, first served), fenced, and with
//! documented guarantees.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! # use std::time::Duration;
//! # async fn save(_: &str, _: leasehold::Token) {}
//! let client = leasehold::connect("memory:").await?; // or "redis://…", "local:"
//! let orders = client.mutex("orders/42")?;           // cheap handle, no I/O
//! // Waits, works, and releases: `Lost` if the lease ended before the work did. The fencing token
//! // travels with the work. lock, try_lock and lock_within return the lease itself.
//! orders.with_lock(async |lease| save("order 42", lease.token()).await).await?;
//! // What was dropped is released in the background. A program that ends must wait for that.
//! let done = client.shutdown(Duration::from_secs(5)).await;
//! assert_eq!(done.unconfirmed, 0);
//! # Ok(()) }
//! ```
//!
//! # When not to use it
//! A lock is a *lease with a fencing token*: it expires, and two holders can overlap if a client
//! is paused. If an overlap would be costly and the protected resource cannot compare tokens, use
//! the resource's own lock or transaction. How long a guarantee lasts depends on the store: the page
//! *Safety* of the repository lists what ends each.
//!
//! # Features
//! - `local`: the store in files of one machine. On by default.
//! - `redis`: one server, Sentinels, a cluster, or independent servers (Redlock). On by default.
//! - `postgres`, `zookeeper`: a table of PostgreSQL, a node of ZooKeeper. Off by default.
//! - `tls-ring`: TLS to servers (`rediss://`, `zookeeper+tls://`, `sslmode` of `postgres://`) with the
//!   cryptography of `ring`, unless the process has installed another. On by default. `tls-aws-lc`: with
//!   that of `aws-lc-rs`, where `tls-ring` is off. `tls-no-provider`: only with what the process has
//!   installed.
//! - `metrics`: the observer `observe::Metrics`. Off by default.
//! - `testing`: a store that fails on demand, for tests of your own code. Off by default.
//!
//! Each feature works alone. The memory store is always included.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// An example that ignores what a release or a shutdown answers does not compile.
#![doc(test(attr(deny(unused_must_use))))]

pub mod audit;
#[doc(hidden)]
pub mod background;
pub mod blocking;
mod client;
mod deadlock;
pub mod doctor;
mod election;
mod error;
pub mod fence;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod inspection;
mod lease;
mod listing;
mod lock;
mod loss;
mod multi;
mod mutex;
pub mod observe;
#[cfg(doctest)]
mod page_tests;
mod parts;
mod reentrant;
mod registry;
mod rwlock;
mod semaphore;
mod session;
mod settings;
pub mod store;
#[cfg(shuttle)]
#[doc(hidden)]
pub mod sync;
#[cfg(not(shuttle))]
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(doctest)]
mod trap_tests;
mod verbs;
mod waiting;

pub use client::{Client, ClientBuilder, connect};
pub use deadlock::{BlockedClaim, Deadlock};
pub use election::{Election, Leader, Leaders, Leadership, RecoveredLeadership};
pub use error::{Error, ErrorKind, Operation, StoreError};
pub use ids::{ClaimIds, SnowflakeConfig};
pub use inspection::{Broken, HolderInfo, Inspection, Shutdown, WaiterInfo};
pub use lease::{Any, Exclusive, GrantNumber, Lease, LeaseKind, Permits, Released, Shared};
// For the command and for the tests of the stores, which are written against the core.
#[doc(hidden)]
pub use leasehold_core as core;
#[doc(inline)]
pub use leasehold_core::{
    Capacity, ClaimContext, ClaimId, ClientInfo, Invalid, Key, LeaseState, Loss, Marked, Mode,
    Note, RenewalPolicy, Retry, Token,
};
#[cfg(feature = "tls-no-provider")]
#[doc(inline)]
pub use leasehold_store::access::TlsConfig;
#[doc(inline)]
pub use leasehold_store::access::{Access, Credentials, CredentialsProvider, Pem, TlsOptions};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use leasehold_store::simulation;
// Inside, the client names them as its own.
use leasehold_store::{access, clock, fork};
pub use listing::{Listed, Listing, Skipped};
pub use lock::Lock;
pub use loss::LossSignal;
pub use multi::{MultiLease, MultiLock};
pub use mutex::Mutex;
pub use parts::{LeaseParts, Recovered};
pub use reentrant::{Owner, Reentrant};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use settings::Settings;
#[doc(inline)]
pub use store::scheme::{Initialised, Made};
pub use waiting::{LockOptions, Progress};
