//! Elections, for threads.

use std::time::Duration;

use leasehold_core::{Loss, Token};

use super::face::options;
use super::lease::{Lease, LossSignal};
use super::runtime::{block_on, block_within};
use crate::{Acquire, Error, Leader, Released};

/// One leader at a time: as [`crate::Election`].
#[derive(Clone)]
pub struct Election(pub(super) crate::Election);

options!(Election, crate::Election);

impl Election {
    /// Waits until it leads: as [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error> {
        block_on(self.0.campaign(note)).map(Leadership)
    }

    /// Leads if it can at once: as [`crate::Election::try_campaign`].
    ///
    /// # Errors
    /// As there.
    pub fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error> {
        Ok(block_on(self.0.try_campaign(note))?.map(Leadership))
    }

    /// Waits until it leads, for so long at most: as [`crate::Election::campaign_within`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign_within(
        &self,
        note: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Leadership, Error> {
        block_on(self.0.campaign_within(note, limit)).map(Leadership)
    }

    /// The verb behind the others: as [`crate::Election::campaign_with`].
    ///
    /// # Errors
    /// As there.
    pub fn campaign_with(
        &self,
        note: impl AsRef<str>,
        how: Acquire,
    ) -> Result<Option<Leadership>, Error> {
        Ok(block_on(self.0.campaign_with(note, how))?.map(Leadership))
    }

    /// Who leads now: as [`crate::Election::leader`].
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        block_on(self.0.leader())
    }

    /// The leaders from now on: as [`crate::Election::observe`].
    #[must_use]
    pub fn observe(&self) -> Leaders {
        Leaders(self.0.observe())
    }
}

/// A term of office: as [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership(crate::Leadership);

impl Leadership {
    /// The term: the fencing token.
    #[must_use]
    pub fn term(&self) -> Token {
        self.0.term()
    }

    /// Whether it leads, and may rely on it.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0.is_leader()
    }

    /// The lease behind it, on its own.
    pub fn into_lease(self) -> Lease {
        Lease(self.0.into_lease())
    }

    /// Tells those who observe something else: as [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, note: impl AsRef<str>) -> Result<(), Error> {
        block_on(self.0.proclaim(note))
    }

    /// What other threads watch the leadership by.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal(self.0.loss_signal())
    }

    /// Waits until it does not lead any more.
    #[must_use]
    pub fn lost(&self) -> Loss {
        block_on(self.0.lost())
    }

    /// Waits for so long whether it does not lead any more; `None` if not.
    #[must_use]
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        block_within(limit, self.0.lost())
    }

    /// Steps down: as [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// As there.
    pub fn resign(self) -> Result<Released, Error> {
        block_on(self.0.resign())
    }
}

/// The leaders of an election, one after the other: as [`crate::Leaders`], as
/// an iterator that does not end.
#[derive(Debug)]
pub struct Leaders(crate::Leaders);

impl Iterator for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(block_on(self.0.next()))
    }
}
