//! The read-write lock: many readers, or one writer. Its methods are in `verbs`.

use leasehold_core::Mode;
use leasehold_store::debug;

use crate::lease::{LeaseKind, Shared};
use crate::lock::Lock;
use crate::parts::LeaseParts;

/// A fair read-write lock: many readers together, or one writer alone.
///
/// First come, first served, so neither readers nor writers starve. Readers that are next to each
/// other in the queue hold together. A reader that arrives after a waiting writer waits behind
/// it. Only writers have a fencing token.
///
/// A writer and a [`crate::Mutex`] on the same key exclude each other: both are the same kind of
/// claim.
///
/// A writer can be downgraded to a reader ([`downgrade`](crate::Lease::downgrade)). A reader cannot
/// be upgraded to a writer: two readers that both try would deadlock. Instead release the reader,
/// call [`write`](Self::write), and read the data again, since another writer may have changed it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let config = client.rwlock("config")?;
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// drop((one, two));
/// let writer = config.write().await?;
/// println!("write with token {}", writer.token());
/// drop(writer);
/// let readers = config.with_read(async |_| config.holders().await).await??;
/// assert_eq!(readers.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock holds nothing until one of its methods has taken a lease"]
pub struct RwLock {
    /// As a writer.
    pub(crate) lock: Lock,
}

debug!(RwLock; |it| key: it.key());

impl RwLock {
    pub(crate) fn reader(&self) -> Lock {
        self.lock.with_mode(Mode::SHARED)
    }

    /// In the mode of these parts, if they are of a reader or a writer.
    pub(crate) fn of<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Lock {
        match Shared::is(parts.mode()) {
            true => self.reader(),
            false => self.lock.clone(),
        }
    }
}
