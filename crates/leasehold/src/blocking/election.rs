//! Elections, for threads.

use std::time::Duration;

use leasehold_core::{Key, Loss, RenewalPolicy, Token};

use super::face::face;
use super::lease::{Lease, LossSignal, losing};
use super::locks::options;
use crate::background::{block_on, block_within};
use crate::{Acquire, Error, Leader, Released};

face! {
    /// One leader at a time: as [`crate::Election`].
    #[derive(Clone)]
    struct Election;
}

options!(Election);

face! { impl Election {
    /// Waits until it leads.
    wait fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error>;
    /// Leads if it can at once.
    wait fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error>;
    /// Waits until it leads, for so long at most.
    wait fn campaign_within(&self, note: impl AsRef<str>, limit: Duration) -> Result<Leadership, Error>;
    /// The verb behind the others.
    wait fn campaign_with(&self, note: impl AsRef<str>, how: Acquire) -> Result<Option<Leadership>, Error>;
    /// Who leads now.
    wait fn leader(&self) -> Result<Option<Leader>, Error>;
    /// The leaders from now on.
    now fn observe(&self) -> Leaders;
}}

face! {
    /// A term of office: as [`crate::Leadership`].
    #[must_use = "a leadership that is dropped is resigned"]
    struct Leadership;
}

losing!(Leadership);

face! { impl Leadership {
    /// The term: the fencing token.
    now fn term(&self) -> Token;
    /// Whether it leads, and may rely on it.
    now fn is_leader(&self) -> bool;
    /// Tells those who observe something else.
    wait fn proclaim(&self, note: impl AsRef<str>) -> Result<(), Error>;
    /// Steps down.
    wait fn resign(self) -> Result<Released, Error>;
    /// The lease behind it, on its own.
    now fn into_lease(self) -> Lease;
}}

face! {
    /// The leaders of an election, one after the other: as [`crate::Leaders`], as
    /// an iterator that does not end.
    struct Leaders;
}

impl Iterator for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(block_on(self.0.next()))
    }
}
