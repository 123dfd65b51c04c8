//! What a store answers.

use leasehold_core::{Reply, StoreTime};

use crate::acknowledged::Acknowledged;
use crate::error::StoreError;

/// What a store answers: the reply, and when the step was taken. Those who ask by name
/// ([`Verbs`](crate::Verbs)) get the replies of that verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<R = Reply> {
    /// The reply of the queue.
    pub reply: R,
    /// The store's time of the step.
    pub at: StoreTime,
    /// The connection epoch on which the answer came: zero while the inbox is
    /// not open, and another number each time pushes may have been missed.
    pub epoch: u64,
    /// For a grant or a renewal of one: who has it besides the server that
    /// answered, where a policy asks for it. If that is not
    /// [enough](Acknowledged::is_enough), the grant does not count, and is to be
    /// released.
    pub acknowledged: Option<Acknowledged>,
}

/// What a store answers to [`LockStore::claim_all`](crate::LockStore::claim_all).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllAnswer {
    /// All parts were granted, in the order in which they were asked for.
    All(Vec<Answer>),
    /// Nothing was changed.
    NotAll {
        /// The first part that could not be granted.
        part: usize,
        /// Why: what it would have been answered.
        answer: Answer,
    },
}

impl<R: Copy + Into<Reply>> Answer<R> {
    /// An answer of a store that asks nobody else.
    #[must_use]
    pub fn new(reply: R, at: StoreTime, epoch: u64) -> Self {
        Self {
            reply,
            at,
            epoch,
            acknowledged: None,
        }
    }

    /// Whether it says that the claim holds the key.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.reply.into().is_grant()
    }

    /// Whether it grants, or confirms a grant, be it behind another claim of the client.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.reply.into().has_token()
    }

    /// The error of a grant that was not acknowledged as it should have been:
    /// it does not count, and stands at the store all the same.
    ///
    /// Hidden: what follows from it is the client's to decide.
    #[doc(hidden)]
    #[must_use]
    pub fn shortfall(&self) -> Option<StoreError> {
        self.acknowledged
            .filter(|acknowledged| self.has_token() && !acknowledged.is_enough())
            .map(|acknowledged| acknowledged.error())
    }

    /// Who has it, where that is enough: for showing.
    ///
    /// Hidden, as above.
    #[doc(hidden)]
    #[must_use]
    pub fn achieved(&self) -> Option<Acknowledged> {
        self.acknowledged.filter(Acknowledged::is_enough)
    }
}
