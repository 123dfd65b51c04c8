//! The part of a lease that all kinds share.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Change, Changed, ClaimId, Key, Loss, Mode, Standpoint};

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::session::acquire::Grant;
use crate::session::acquire::id_taken;
use crate::session::claim_handle::ClaimHandle;
use crate::session::claim_slot::ClaimSlot;
use crate::session::request::AcquireRequest;
use crate::session::unanswered;
use crate::settings::check_ttl;

/// The result of a release.
#[must_use = "it says whether the lease was held to its end"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lease was held until the release.
    StillOurs,
    /// The lease had expired or was taken before: another client may have held the key in
    /// between.
    AlreadyGone,
}

/// A granted claim in its caller's hands. Dropping it releases the claim in
/// the background.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: ClaimHandle,
    ttl: Duration,
    pub(crate) mode: Mode,
    pub(crate) reentrant: bool,
    pub(crate) waited: Duration,
    /// How often a claim had lost its place before.
    pub(crate) rejoined: u32,
}

impl Hold {
    pub(crate) fn new(grant: Grant, request: &AcquireRequest, waited: Duration) -> Self {
        Self {
            claim: grant.claimed,
            ttl: request.terms.ttl,
            mode: request.mode,
            reentrant: request.secret.is_some(),
            waited,
            rejoined: grant.rejoined,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        self.claim.key()
    }

    /// Why the last renewal failed, if it did.
    pub(crate) fn last_error(&self) -> Option<Error> {
        let error = self.slot().last_error()?;
        Some(self.error(Operation::Renew, error))
    }

    /// What is seen of its claim.
    pub(crate) fn slot(&self) -> &Arc<ClaimSlot> {
        self.claim.slot()
    }

    pub(crate) async fn renew(&self, ttl: Option<Duration>) -> Result<(), Error> {
        if let Some(ttl) = ttl {
            check_ttl(ttl).map_err(|invalid| self.error(Operation::Renew, invalid.into()))?;
        }
        let ttl = ttl.unwrap_or(self.ttl);
        self.change(Operation::Renew, Change::Renew(ttl)).await
    }

    pub(crate) async fn rotate(&self) -> Result<(), Error> {
        let fresh = self.claim.session().claim_id();
        let fresh = fresh.map_err(|error| self.error(Operation::Rotate, error))?;
        self.change(Operation::Rotate, Change::Rotate(fresh)).await
    }

    /// Changes the claim with a renewal, which prolongs it as its policy allows.
    pub(crate) async fn change(&self, operation: Operation, change: Change) -> Result<(), Error> {
        let caller = self.claim.session().check_caller();
        caller.map_err(|error| self.error(operation, error))?;
        self.check(operation)?;
        let changed = self.claim.change(change).await;
        self.check(operation)?;
        self.outcome(operation, changed)
    }

    fn outcome(&self, operation: Operation, changed: Changed) -> Result<(), Error> {
        let limit = self.claim.session().settings.operation_timeout;
        match changed {
            Changed::Done => Ok(()),
            Changed::Lost => Err(self.lost_error(operation, Loss::Gone)),
            Changed::Taken => Err(self.error(operation, id_taken())),
            Changed::Refused | Changed::Unanswered | Changed::Unacknowledged => {
                Err(self.error(operation, self.claim.last_error(|| unanswered(limit))))
            }
        }
    }

    /// Ends the validity, makes sure that the claim has one id for a whole TTL from now, and
    /// leaves it at the store for another client. Returns that id, and how often it was replaced.
    pub(crate) async fn hand_over(self) -> Result<(ClaimId, u64), Error> {
        let caller = self.claim.session().check_caller();
        caller.map_err(|error| self.error(Operation::HandOver, error))?;
        self.check(Operation::HandOver)?;
        let settled = self.claim.hand_over().await;
        self.outcome(Operation::HandOver, settled)?;
        Ok(self.claim.identity())
    }

    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        match self.claim.release().await {
            Ok(true) => Ok(Released::StillOurs),
            Ok(false) => Ok(Released::AlreadyGone),
            Err(error) => Err(self.error(Operation::Release, error)),
        }
    }

    fn check(&self, operation: Operation) -> Result<(), Error> {
        match self.slot().standpoint() {
            Standpoint::Lost(loss) => Err(self.lost_error(operation, loss)),
            Standpoint::Held | Standpoint::Unknown => Ok(()),
        }
    }

    pub(crate) fn lost_error(&self, operation: Operation, loss: Loss) -> Error {
        let cause = match loss {
            Loss::Unanswered => self.slot().last_error(),
            _ => None,
        };
        let why = cause.as_ref().map(|cause| format!(" ({cause})"));
        let why = why.unwrap_or_default();
        let mut error =
            StoreError::new(ErrorKind::Lost, format!("the lease was lost: {loss}{why}"))
                .with_hint("stop the work: another may hold the key");
        if let Some(cause) = cause {
            error = error.with_source(cause);
        }
        self.error(operation, error)
    }

    pub(crate) fn error(&self, operation: Operation, error: StoreError) -> Error {
        Error::new(operation, Some(self.key().clone()), error)
    }
}
