//! The Redis stores of [leasehold](https://docs.rs/leasehold): one server, Sentinels, a cluster,
//! or independent servers (Redlock). Redis or Valkey 6.2 or later.
//!
//! To use them, only the crate `leasehold` is needed: it re-exports this crate as
//! `leasehold::store::redis`, and opens the stores by their URLs. Options have settings that a
//! URL does not:
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use leasehold::store::redis::{RedisOptions, RedisStore};
//!
//! let options = RedisOptions::from_url("redis://host/")?.prefix("jobs:");
//! let store = Arc::new(RedisStore::connect(options).await?);
//! let client = leasehold::Client::builder().with_store(store).connect().await?;
//! # Ok(()) }
//! ```
//!
//! # How it works
//! Every verb is one script and one round trip, also for several keys. The record of a key is
//! stored at one Redis key, `<prefix>lock:<name>`. The pushes to a client use one channel,
//! `<prefix>inbox:<name>`. All commands of a store share one connection through a batcher (one
//! per node in a cluster). Pushes arrive on the same connection (RESP3). When it connects, the
//! client finds out which commands the server forbids (`rights`).
//!
//! `connection/mod.rs` has a picture of the ways that a step can take.
//!
//! Requests are not retried blindly. A lost connection or a late response is `Unavailable` with
//! an unknown outcome, and the client retries with the same claim id. Scripts are sent by hash,
//! and in full if the server does not know them, since then nothing has run.
//!
//! # Features
//! `tls`: TLS (`rediss://`), with the cryptography that the process has. The other features are only for this repository.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bare;
mod claim_table;
mod classic;
mod codec;
mod connection;
mod doctor;
mod errors;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod options;
mod queue;
mod quorum;
mod routing;
mod scheme;
mod std_ext;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use self::bare::bare;
pub use self::classic::ClassicStore;
pub use self::options::acknowledge::{Acknowledge, AcknowledgedBy};
pub use self::options::restart::{Quarantine, Restart};
pub use self::options::sentinels::Sentinels;
pub use self::options::{RedisAddress, RedisLayout, RedisOptions};
pub use self::queue::RedisStore;
pub use self::quorum::{RedlockOptions, RedlockStore};
pub use self::routing::cluster::RedisClusterOptions;
pub use self::scheme::{ManyNodes, OneServer, Votes};
