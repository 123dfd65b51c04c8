//! Permits, for threads.

use std::time::Duration;

use super::face::{adopting, looking, options, unfair_options, working};
use super::lease::Lease;
use super::runtime::block_on;
use crate::lease::Permits;
use crate::{Acquire, Error};

/// So many at a time: as [`crate::Semaphore`].
#[derive(Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

options!(Semaphore, crate::Semaphore);
unfair_options!(Semaphore);
adopting!(Semaphore, Permits);
looking!(Semaphore);
working!(Semaphore, with_permit, acquire, Lease<Permits>);

impl Semaphore {
    /// How many permits there are, says this handle.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.permits()
    }

    /// How many permits nobody holds now: as [`crate::Semaphore::available_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn available_permits(&self) -> Result<u32, Error> {
        block_on(self.0.available_permits())
    }

    /// Waits for a permit: as [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// Waits for `take` permits: as [`crate::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many(&self, take: u32) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_many(take)).map(Lease)
    }

    /// Takes a permit if it can at once: as [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.try_acquire())?.map(Lease))
    }

    /// Takes `take` permits if it can at once: as [`crate::Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_many(&self, take: u32) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.try_acquire_many(take))?.map(Lease))
    }

    /// Waits for a permit for so long at most: as [`crate::Semaphore::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_within(limit)).map(Lease)
    }

    /// Waits for `take` permits for so long at most: as [`crate::Semaphore::acquire_many_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many_within(&self, take: u32, limit: Duration) -> Result<Lease<Permits>, Error> {
        block_on(self.0.acquire_many_within(take, limit)).map(Lease)
    }

    /// The verb behind the others: as [`crate::Semaphore::acquire_with`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_with(&self, take: u32, how: Acquire) -> Result<Option<Lease<Permits>>, Error> {
        Ok(block_on(self.0.acquire_with(take, how))?.map(Lease))
    }

    /// Changes the number of permits: as [`crate::Semaphore::resize`].
    ///
    /// # Errors
    /// As there.
    pub fn resize(&self, permits: u32) -> Result<Self, Error> {
        block_on(self.0.resize(permits)).map(Self)
    }
}
