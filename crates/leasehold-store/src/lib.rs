//! The store interface of [leasehold](https://docs.rs/leasehold), for implementing stores: the
//! trait between client and store, the engine for stores that keep records, and the store in
//! memory.
//!
//! To use a store, only the crate `leasehold` is needed.
//!
//! There are three ways to implement a store. A store that keeps a record for each key and changes
//! records in atomic steps implements [`Records`], which makes it a [`LockStore`]. One that appends
//! entries to a journal for each key implements [`Journal`](journal::Journal). A store that runs
//! the rules of the queue next to its data, as Redis does, implements [`LockStore`] itself.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use leasehold_store::core::{Claim, ClaimId, Key, Mode};
//! use leasehold_store::{LockStore, Verbs as _, memory::MemoryStore, random::random_u128};
//!
//! let store = MemoryStore::new();
//! let key = Key::new("orders/42")?;
//! let id = ClaimId::from_random(random_u128());
//! let claim = Claim::new(id, Mode::EXCLUSIVE, Duration::from_secs(30));
//! assert!(store.claim(&key, &claim).await?.holds());
//! assert_eq!(store.inspect(&key).await?.holders.len(), 1);
//! # Ok(()) }
//! ```
//!
//! # What a store uses from this crate
//! - [`Step::apply`] changes the queues of a step; [`check_parts`] refuses invalid claims on
//!   several keys.
//! - [`Push::of`] makes a push from an event of a queue; [`random_u64`](random::random_u64) makes
//!   the name of an inbox.
//! - [`OnePage`] lists queues that are all in memory; [`glob`] compares names with a pattern, and
//!   [`SeenNames`] finds duplicates.
//! - [`StoreError`] is the error type.
//! - [`Scheme`](scheme::Scheme) opens the store by its URLs, and fills in the
//!   [`Report`](report::Report) of an examination; [`Params`](params::Params) reads what stands
//!   behind the `?` of a URL, and [`parse_duration`] the durations there.
//!
//! # Features
//! `contract` contains the tests that every store must pass, for `[dev-dependencies]`. The
//! repository's `examples/toy-store` is a store that runs them. `simulation` is only for that
//! repository.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
mod acknowledged;
mod answer;
mod audit;
#[doc(hidden)]
pub mod bare;
pub mod clock;
#[cfg(feature = "contract")]
pub mod contract;
mod debug;
mod duration;
mod error;
#[doc(hidden)]
pub mod fork;
pub mod glob;
#[doc(hidden)]
pub mod idle;
pub mod journal;
mod listing;
pub mod memory;
pub mod params;
mod port;
pub mod random;
mod records;
pub mod report;
pub mod scheme;
mod setters;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
#[doc(hidden)]
pub mod sync;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub mod tls;
pub mod trial;
mod verbs;

pub use acknowledged::Acknowledged;
pub use answer::{AllAnswer, Answer};
pub use audit::{AuditLimit, AuditLog, AuditRecord};
pub use duration::{format_duration, parse_duration};
pub use error::{ErrorKind, StoreError};
#[doc(hidden)]
pub use error::{corrupt, refused, unavailable, unsupported};
pub use leasehold_core as core;
#[doc(inline)]
pub use leasehold_core::{Acknowledges, Push};
pub use listing::{ListPage, Listing, OnePage, SeenNames};
#[doc(hidden)]
pub use port::opened;
pub use port::{Capabilities, Listening, LockStore, PushSink, check_parts};
pub use records::{Records, Step, Taken, Transacted};
pub use verbs::Verbs;
#[doc(hidden)]
pub use verbs::check_reply;
