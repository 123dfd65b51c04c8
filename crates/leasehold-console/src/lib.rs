//! What the command `leasehold` shows of the locks of a store.
//!
//! For the command only: no version of it is stable. [`view`], [`history`] and [`deadlocks`] are what
//! programs read and people see of keys, of the audit log and of deadlocks. A [`feed`] reads the
//! locks of a store into one [`lock_table`] for all that show them as they change: `ls --watch`, and
//! the features of this crate, `top` (the full screen) and `serve` (the web page, its API, the
//! metrics). Each brings its own dependencies.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod breaking;
pub mod deadlocks;
pub mod duration;
pub mod escape;
pub mod feed;
#[cfg(any(feature = "top", feature = "serve"))]
mod histories;
pub mod history;
pub mod load_limit;
pub mod lock_table;
pub mod prometheus;
#[cfg(feature = "serve")]
pub mod serve;
pub mod table;
pub mod tables;
#[cfg(feature = "top")]
pub mod top;
pub mod view;

/// Why the full screen or the page cannot begin, or go on.
#[cfg(any(feature = "top", feature = "serve"))]
#[derive(Debug)]
pub enum ConsoleError {
    /// The store has failed.
    Store(leasehold::Error),
    /// The terminal has failed.
    Terminal(std::io::Error),
    /// There is no listening at that address.
    Listen(std::net::SocketAddr, std::io::Error),
}
