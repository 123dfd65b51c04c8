//! Redis and Valkey, 6.2 or later: the stores of [leasehold](https://docs.rs/leasehold) on
//! one server, on the primary that Sentinels watch, on a cluster, and on servers that vote.
//!
//! Whoever uses them needs the crate `leasehold` only, which has all of this as
//! `leasehold::store::redis`, and opens them by their URLs. Options say what a URL cannot:
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
//! Every verb is one script and one round trip, also on several keys; the record
//! of a key lies under one key of Redis, `<prefix>lock:<name>`, and the pushes of a
//! client go to one channel, `<prefix>inbox:<name>`. All commands of a store share
//! one connection through a batcher (one a node in a cluster); pushes arrive on it
//! too (RESP3). What a server forbids is found out at connect (`rights`).
//!
//! Nothing is retried blindly: a lost connection or a response that does not
//! come in time is `Unavailable`, outcome unknown, and the same claim id asks
//! again. Scripts are sent by hash, and in full when the server does not know
//! them: then nothing has run.
//!
//! # Features
//! `tls` for `rediss://`. The others are for this repository only.

mod claims;
mod classic;
mod codec;
mod connection;
mod doctor;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lock;
mod options;
mod queue;
mod quorum;
mod refusal;
mod routing;
mod scheme;
#[cfg(test)]
mod tests;

pub use self::classic::ClassicStore;
pub use self::options::acknowledge::{Acknowledge, AcknowledgedBy};
pub use self::options::restart::{Quarantine, Restart};
pub use self::options::sentinels::Sentinels;
pub use self::options::{RedisAddress, RedisLayout, RedisOptions};
pub use self::queue::RedisStore;
pub use self::queue::baseline::{Baseline, ServerCost};
pub use self::quorum::{RedlockOptions, RedlockStore};
pub use self::routing::cluster::RedisClusterOptions;
pub use self::scheme::{ManyNodes, OneServer, Votes};
