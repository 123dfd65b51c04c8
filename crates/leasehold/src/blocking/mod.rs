//! Blocking API: every method of the async API, for threads without an async runtime.
//!
//! Each call runs the async method on the calling thread, and between calls one background thread
//! of the process keeps the connections and renews the leases: work that blocks its thread delays no
//! renewal. The blocking API can be used anywhere, also inside a runtime, where it blocks only the
//! calling thread. Only where its thread ends, in the destructor of a thread-local value, it cannot
//! wait: a release fails there with `Invalid`, and continues in the background.
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
//! assert_eq!(lease.release()?, leasehold::Released::Held);
//! # Ok::<(), leasehold::Error>(())
//! ```

mod client;
mod election;
mod face;
mod lease;
mod locks;

pub use self::client::{AuditLog, Client, ClientBuilder, Listing};
pub use self::election::{Election, Leaders, Leadership, RecoveredLeadership};
pub use self::lease::{Lease, LossSignal, MultiLease, Recovered};
pub use self::locks::{Lock, MultiLock, Mutex, Reentrant, RwLock, Semaphore};
use crate::Error;

/// Opens the store at `url`, with default settings: the blocking version of [`crate::connect`].
///
/// # Errors
/// Same as [`crate::connect`]; `Unavailable` if no thread can be started.
pub fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().store(url).connect()
}
