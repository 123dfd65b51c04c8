//! The same locks for threads: every verb of the async API, which waits.
//!
//! A face and no second implementation: each call runs the async one on the
//! thread that calls, while one background thread of the process keeps the
//! connections and renews the leases. It may be used anywhere, inside a runtime
//! too, where it holds up the thread that calls and nothing else.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::blocking;
//!
//! let client = blocking::connect("memory:")?;
//! let orders = client.mutex("orders/42")?;
//! let lease = orders.lock()?;
//! assert!(orders.lock_within(Duration::from_millis(20)).is_err());
//! println!("write with token {}", lease.token());
//! lease.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

mod client;
mod election;
mod face;
mod lease;
mod locks;

pub use self::client::{AuditLog, Client, ClientBuilder, Listing};
pub use self::election::{Election, Leaders, Leadership};
pub use self::lease::{Lease, LossSignal, MultiLease, Recovered};
pub use self::locks::{Lock, MultiLock, Mutex, Reentrant, RwLock, Semaphore};
use crate::Error;

/// Opens the store at `url`, with default settings: as [`crate::connect`].
///
/// # Errors
/// As [`crate::connect`]; `Unavailable` if no thread can be started.
pub fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().store(url).connect()
}
