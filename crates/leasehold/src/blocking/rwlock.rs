//! Readers and writers, for threads.

use std::time::Duration;

use super::face::{looking, options, unfair_options, working};
use super::lease::{Lease, Recovered};
use super::runtime::block_on;
use crate::lease::{Exclusive, LeaseKind, Shared};
use crate::{Acquire, Error, LeaseParts};

/// Many readers, or one writer: as [`crate::RwLock`].
///
/// ```
/// use leasehold::blocking;
/// let client = blocking::connect("memory:")?;
/// let config = client.rwlock("config")?;
/// let writer = config.write()?;
/// let reader = writer.downgrade()?;
/// assert!(config.try_read()?.is_some() && config.try_write()?.is_none());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct RwLock(pub(super) crate::RwLock);

options!(RwLock, crate::RwLock);
unfair_options!(RwLock);
looking!(RwLock);
working!(RwLock, with_read, read, Lease<Shared>);
working!(RwLock, with_write, write, Lease);

impl RwLock {
    /// Waits to read: as [`crate::RwLock::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<Lease<Shared>, Error> {
        block_on(self.0.read()).map(Lease)
    }

    /// Reads if it can at once: as [`crate::RwLock::try_read`].
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<Option<Lease<Shared>>, Error> {
        Ok(block_on(self.0.try_read())?.map(Lease))
    }

    /// Waits to read for so long at most: as [`crate::RwLock::read_within`].
    ///
    /// # Errors
    /// As there.
    pub fn read_within(&self, limit: Duration) -> Result<Lease<Shared>, Error> {
        block_on(self.0.read_within(limit)).map(Lease)
    }

    /// Waits to write: as [`crate::RwLock::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<Lease, Error> {
        block_on(self.0.write()).map(Lease)
    }

    /// Writes if it can at once: as [`crate::RwLock::try_write`].
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.try_write())?.map(Lease))
    }

    /// Waits to write for so long at most: as [`crate::RwLock::write_within`].
    ///
    /// # Errors
    /// As there.
    pub fn write_within(&self, limit: Duration) -> Result<Lease, Error> {
        block_on(self.0.write_within(limit)).map(Lease)
    }

    /// The verb behind those that read: as [`crate::RwLock::acquire_read`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_read(&self, how: Acquire) -> Result<Option<Lease<Shared>>, Error> {
        Ok(block_on(self.0.acquire_read(how))?.map(Lease))
    }

    /// The verb behind those that write: as [`crate::RwLock::acquire_write`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_write(&self, how: Acquire) -> Result<Option<Lease>, Error> {
        Ok(block_on(self.0.acquire_write(how))?.map(Lease))
    }

    /// Takes over a lease that was handed over: as [`crate::RwLock::adopt`].
    ///
    /// # Errors
    /// As there.
    pub fn adopt<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error> {
        block_on(self.0.adopt(parts)).map(Lease)
    }

    /// Takes over a lease whose holder may still rely on it: as
    /// [`crate::RwLock::adopt_by_force`].
    ///
    /// # Errors
    /// As there.
    pub fn adopt_by_force<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Result<Lease<K>, Error> {
        block_on(self.0.adopt_by_force(parts)).map(Lease)
    }

    /// Goes on writing after a crash: as [`crate::RwLock::recover_write`].
    ///
    /// # Errors
    /// As there.
    pub fn recover_write(
        &self,
        parts: &LeaseParts<Exclusive>,
        how: impl Into<Acquire>,
    ) -> Result<Option<Recovered>, Error> {
        let recovered = block_on(self.0.recover_write(parts, how))?;
        Ok(recovered.map(Recovered::from))
    }
}
