//! `zookeeper://`, `zookeeper+tls://` — locks in ZooKeeper 3.6 or later: a store of
//! [leasehold](https://docs.rs/leasehold).
//!
//! To use it, only the crate `leasehold` is needed, with the feature `zookeeper`:
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = leasehold::connect("zookeeper://zk1,zk2,zk3/app").await?;
//! client.mutex("orders/42")?.with_lock(async |_| { /* the work */ }).await?;
//! # Ok(()) }
//! ```
//!
//! Each key is a node with the queue before its last step, and that step
//! ([`leasehold_store::journal`]): a step is one transaction that compares the node's version and sets
//! the node. A client has one session for everything, and an ephemeral node on which it is rung.
//! The page *ZooKeeper* of the repository says what is promised.
//!
//! - `options`: the URL;
//! - `session`: the session of a client, and the clock of the servers as it knows it;
//! - `tunnel`: TLS, which the client crate below does not bring;
//! - `node`: names and contents of nodes;
//! - `transaction`: what changes together; `journal`: the steps; `inbox`: where a client is rung;
//! - `errors`: what the errors of ZooKeeper mean;
//! - `scheme`, `doctor`, `bare`: how it is opened, examined, and compared with its servers.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bare;
mod doctor;
mod errors;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod journal;
mod node;
mod options;
mod room;
mod scheme;
mod session;
mod transaction;
#[cfg(feature = "tls")]
mod tunnel;

#[doc(hidden)]
pub use self::bare::bare;
pub use self::options::ZooKeeperOptions;
pub use self::scheme::ZooKeeper;
