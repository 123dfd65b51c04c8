//! Blocking leader elections.

use std::time::Duration;

use leasehold_core::{Loss, Token};

use super::face::face;
use super::lease::{Lease, LossSignal, losing};
use crate::background::{block_on, block_within};
use crate::{Error, Leader, LeaseParts, LockOptions, Released};

face! {
    /// A leader election: the blocking version of [`crate::Election`].
    #[derive(Clone)]
    #[must_use = "nobody is a candidate until `campaign` is called"]
    struct Election;
}

face! { impl Election {
    /// Waits to become the leader.
    wait fn campaign(&self, note: impl AsRef<str>) -> Result<Leadership, Error>;
    /// Becomes the leader if that is possible at once; `None` otherwise.
    wait fn try_campaign(&self, note: impl AsRef<str>) -> Result<Option<Leadership>, Error>;
    /// Waits to become the leader, for at most `limit`.
    wait fn campaign_within(&self, note: impl AsRef<str>, limit: Duration) -> Result<Leadership, Error>;
    /// Waits to become the leader, with these options.
    wait fn campaign_opts(&self, note: impl AsRef<str>, how: LockOptions) -> Result<Leadership, Error>;
    /// Recovers a leadership after a crash.
    wait fn recover(&self, parts: &LeaseParts, note: impl AsRef<str>, how: LockOptions) -> Result<RecoveredLeadership, Error>;
    /// Returns the current leader; `None` if there is none.
    wait fn leader(&self) -> Result<Option<Leader>, Error>;
    /// Watches the leaders from now on.
    now fn observe(&self) -> Leaders;
}}

face! {
    /// The lease of a leader: the blocking version of [`crate::Leadership`].
    #[must_use = "a leadership that is dropped is resigned"]
    struct Leadership;
}

losing!(Leadership);

face! { impl Leadership {
    /// Returns the term, which is the fencing token.
    now fn term(&self) -> Token;
    /// Returns whether this client is the leader and its lease is valid.
    now fn is_leader(&self) -> bool;
    /// Replaces the note that observers see.
    wait fn proclaim(&self, note: impl AsRef<str>) -> Result<(), Error>;
    /// Steps down.
    wait fn resign(self) -> Result<Released, Error>;
    /// Returns the lease.
    now fn into_lease(self) -> Lease;
}}

/// A recovered leadership: the blocking version of [`crate::RecoveredLeadership`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a leadership that is dropped is resigned"]
pub struct RecoveredLeadership {
    /// The leadership.
    pub leadership: Leadership,
    /// Whether the old claim was lost, so that this is a new one.
    pub is_new: bool,
}

impl From<crate::RecoveredLeadership> for RecoveredLeadership {
    fn from(recovered: crate::RecoveredLeadership) -> Self {
        let leadership = Leadership(recovered.leadership);
        let is_new = recovered.is_new;
        Self { leadership, is_new }
    }
}

face! {
    /// The leaders of an election, one after the other, as an iterator: the blocking version of
    /// [`crate::Leaders`].
    struct Leaders;
}

impl Iterator for Leaders {
    type Item = Result<Option<Leader>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(futures_util::StreamExt::next(&mut self.0))
    }
}
