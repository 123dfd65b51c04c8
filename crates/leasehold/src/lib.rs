//! Distributed locks on Redis: fair, fenced, and honest about what they promise.

mod error;
mod settings;
pub mod store;

pub use error::{Error, ErrorKind, Operation, StoreError};
pub use leasehold_core as core;
pub use settings::{MAX_OPERATION_TIMEOUT, MAX_TTL, MIN_TTL, Settings};
