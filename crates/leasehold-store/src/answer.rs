//! The answers of a store.

use leasehold_core::{Reply, StoreTime};

use crate::acknowledged::Acknowledged;
use crate::error::StoreError;

/// The answer of a store: the reply, and the time of the step. The methods of
/// [`Verbs`](crate::Verbs) return the reply type of their verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<R = Reply> {
    /// The reply of the queue.
    pub reply: R,
    /// The store's time of the step.
    pub at: StoreTime,
    /// The connection epoch of the answer: zero while the inbox is not open, and a new number
    /// each time pushes may have been missed.
    pub epoch: u64,
    /// For a grant or its renewal under an acknowledgement policy: who acknowledged it. If that
    /// is not [enough](Acknowledged::is_enough), the grant is invalid and must be released.
    pub acknowledged: Option<Acknowledged>,
}

/// The answer to [`LockStore::claim_all`](crate::LockStore::claim_all).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllAnswer {
    /// All parts were granted, in the order in which they were asked for.
    All(Vec<Answer>),
    /// Nothing was changed.
    NotAll {
        /// The first part that could not be granted.
        part: usize,
        /// The answer that this part alone would have got.
        answer: Answer,
    },
}

impl<R: Copy + Into<Reply>> Answer<R> {
    /// Makes an answer without acknowledgements.
    #[must_use]
    pub fn new(reply: R, at: StoreTime, epoch: u64) -> Self {
        Self {
            reply,
            at,
            epoch,
            acknowledged: None,
        }
    }

    /// Returns whether the claim holds the key.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.reply.into().is_grant()
    }

    /// Returns whether it grants, or confirms a grant, also behind another claim of the client.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.reply.into().has_token()
    }

    /// Adds who acknowledged it, if it has a token. The acknowledgement of a place in the queue says
    /// nothing of the grant that follows: its client confirms that by a renewal.
    #[must_use]
    pub fn with_acknowledged(mut self, acknowledged: Option<Acknowledged>) -> Self {
        self.acknowledged = acknowledged.filter(|_| self.has_token());
        self
    }

    /// Returns the error of a grant with too few acknowledgements. The grant is invalid, but the
    /// store still has it.
    ///
    /// Hidden: the client decides what to do.
    #[doc(hidden)]
    #[must_use]
    pub fn shortfall(&self) -> Option<StoreError> {
        self.acknowledged
            .filter(|acknowledged| self.has_token() && !acknowledged.is_enough())
            .map(|acknowledged| acknowledged.error())
    }
}
