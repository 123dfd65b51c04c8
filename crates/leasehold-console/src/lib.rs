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
#[cfg(any(feature = "top", feature = "serve"))]
mod error;
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

#[cfg(any(feature = "top", feature = "serve"))]
pub use self::error::ConsoleError;
