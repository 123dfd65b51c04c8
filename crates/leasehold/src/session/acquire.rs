//! Acquires a key: makes one claim after the other until one is granted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use leasehold_core::{Adopt, ClaimId, Collected, End, Limits, Phase, Rejoining, Rotate, written};

use tracing::Instrument as _;

use super::claim_handle::ClaimHandle;
use super::polling::acquire_by_asking;
use super::request::{AcquireRequest, Patience, mismatch, quarantined, timed_out};
use super::timing::GRACE;
use super::{Session, random_u64};
use crate::clock;
use crate::deadlock::DeadlockCheck;
use crate::error::{ErrorKind, StoreError};
use crate::observe::{AcquireOutcome, Acquiring};
use crate::sync::sleep;
use crate::waiting::Wait;

/// A claim that was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) claimed: ClaimHandle,
    /// How often a claim had lost its place before.
    pub(crate) rejoined: u32,
}

/// How one request ended, where it did not fail.
pub(super) enum Tried {
    Granted(Grant),
    /// Another client has the key, for this long if it does not renew.
    Busy(Duration),
}

/// How an adoption came out.
pub(crate) enum Adopted {
    Lease(Grant),
    /// It was released or has expired.
    Gone,
    /// Somebody else has replaced its id.
    Superseded,
}

impl Session {
    /// How long a call waits that begins now.
    pub(crate) fn patience(&self, wait: Wait) -> Patience {
        let now = clock::now();
        match wait {
            Wait::No => Patience::No(now + self.settings.operation_timeout),
            Wait::For(limit) => Patience::Until(now + limit, limit),
            Wait::Forever => Patience::Forever,
        }
    }

    /// Acquires the key. `None`: it is busy, and the caller does not wait. `progress` is called
    /// while waiting, and for each position if the caller `tells_position`.
    ///
    /// Dropping the future at any point leaves the queue in the background.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        patience: Patience,
        tells_position: bool,
        progress: impl FnMut(u64, u32),
    ) -> Result<Option<Grant>, StoreError> {
        let queueing = self.store.capabilities().queueing;
        let waits = !matches!(patience, Patience::No(_));
        let acquire = async {
            if waits && (request.retry.is_some() || !queueing) {
                // What few need does not make every acquisition larger.
                return Box::pin(acquire_by_asking(self, request, patience)).await;
            }
            let tried = self.acquire_in_line(request, patience, waits, tells_position, progress);
            Ok(match tried.await? {
                Tried::Granted(grant) => Some(grant),
                Tried::Busy(_) => None,
            })
        };
        let acquiring = self.acquiring(request);
        // By itself: whatever awaits this would have to move all of it otherwise.
        let acquire = Box::pin(acquire);
        let acquire = match request.deadlock.as_ref().filter(|_| waits) {
            None => Either::Left(acquire),
            Some(check) => Either::Right(Box::pin(self.unless_deadlocked(request, check, acquire))),
        };
        let acquired = self.while_open(acquire).instrument(acquiring.span()).await;
        let acquired = acquired.flatten();
        match &acquired {
            Ok(Some(_)) => acquiring.end(AcquireOutcome::Granted),
            Ok(None) => acquiring.end(AcquireOutcome::Busy),
            Err(error) => acquiring.fail(error),
        }
        acquired
    }

    /// Acquires, and gives up in a deadlock if the caller asked for that.
    async fn unless_deadlocked<T>(
        &self,
        request: &AcquireRequest,
        check: &DeadlockCheck,
        acquire: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let context = DeadlockCheck::context(request)?;
        tokio::select! {
            biased;
            acquired = acquire => acquired,
            deadlock = check.watch(self, request, context) => Err(deadlock),
        }
    }

    /// One claim after the other until one is granted, or busy. `waits` is what the
    /// store is told.
    pub(super) async fn acquire_in_line(
        self: &Arc<Self>,
        request: &AcquireRequest,
        patience: Patience,
        waits: bool,
        tells_position: bool,
        mut progress: impl FnMut(u64, u32),
    ) -> Result<Tried, StoreError> {
        let mut claims = Rejoining::new(random_u64());
        // In line behind its own it has what they leave; without a line they are in its way.
        let stays = waits && self.store.capabilities().queueing;
        let stays = stays && matches!(patience, Patience::Forever);
        loop {
            if !stays {
                let end = clock::now() + GRACE.min(patience.left_to_stop());
                self.own_departures(&request.key, end).await;
            }
            let limits = patience.limits(self.settings.operation_timeout);
            let claimed = self.claim(request, limits, waits, tells_position)?;
            let rejoined = claims.rejoined();
            let end = self
                .await_grant(&claimed, patience, |position| progress(position, rejoined))
                .await?;
            let Some(end) = end else {
                return Ok(Tried::Granted(Grant { claimed, rejoined }));
            };
            match claims.after(end) {
                // It had a place, so others had the key.
                Ok(_) if end == End::Gone && patience.left().is_zero() => return Err(timed_out()),
                Ok(pause) => {
                    drop(claimed);
                    sleep(pause.min(patience.left_to_stop())).await;
                }
                Err(End::Busy(left)) => return Ok(Tried::Busy(left)),
                Err(end) => return Err(self.failed(request, &claimed, end, patience)),
            }
        }
    }

    /// Takes over the claim `id`. The claim's new id is the same in every request,
    /// so one whose answer was lost is asked again.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        request: &AcquireRequest,
        id: &ClaimId,
        version: u64,
    ) -> Result<Adopted, StoreError> {
        let acquiring = self.acquiring(request);
        let adopting = self.while_open(self.adopt_open(request, id, version));
        let adopted = adopting.instrument(acquiring.span()).await.flatten();
        match &adopted {
            Ok(Adopted::Lease(_)) => acquiring.end(AcquireOutcome::Granted),
            // The claim that was to be adopted does not exist any more.
            Ok(Adopted::Gone | Adopted::Superseded) => {
                acquiring.end(AcquireOutcome::Failed(ErrorKind::Lost));
            }
            Err(error) => acquiring.fail(error),
        }
        adopted
    }

    /// An acquisition that begins now.
    pub(super) fn acquiring<'a>(&'a self, request: &'a AcquireRequest) -> Acquiring<'a> {
        Acquiring::begin(self.events.observers(), &request.key, request.mode)
    }

    async fn adopt_open(
        self: &Arc<Self>,
        request: &AcquireRequest,
        id: &ClaimId,
        version: u64,
    ) -> Result<Adopted, StoreError> {
        let patience = self.patience(Wait::No);
        let mut claims = Rejoining::new(random_u64());
        loop {
            let fresh = self.claim_id()?;
            let rotate = Rotate {
                to: fresh,
                version,
                adopt: Some(Adopt {
                    inbox: Some(self.store.inbox().clone()),
                    owner: request.owner.clone(),
                }),
            };
            let limits = patience.limits(self.settings.operation_timeout);
            let claimed = ClaimHandle::new(self, request, false, |machine, number, slot, now| {
                let terms = request.terms.clone();
                machine.adopt(number, slot, id.clone(), rotate, terms, limits, now);
            });
            match self.await_grant(&claimed, patience, |_| ()).await? {
                None => {
                    let rejoined = 0;
                    return Ok(Adopted::Lease(Grant { claimed, rejoined }));
                }
                Some(End::Gone) => return Ok(Adopted::Gone),
                Some(End::Superseded) => return Ok(Adopted::Superseded),
                Some(End::Late) => {
                    return Err(self.failed(request, &claimed, End::TooLate, patience));
                }
                Some(end) => {
                    if let Err(end) = claims.after(end) {
                        return Err(self.failed(request, &claimed, end, patience));
                    }
                }
            }
        }
    }

    /// A claim that is not asked for yet.
    pub(super) fn claim(
        self: &Arc<Self>,
        request: &AcquireRequest,
        limits: Limits,
        waits: bool,
        tells_position: bool,
    ) -> Result<ClaimHandle, StoreError> {
        let claim = request.claim(self, self.claim_id()?, waits);
        let terms = request.terms.clone();
        Ok(ClaimHandle::new(
            self,
            request,
            tells_position,
            |machine, number, slot, now| {
                machine.claim(number, slot, claim, terms, limits, now);
            },
        ))
    }

    /// Drives a claim until its lease can be handed out, or it has ended.
    pub(super) async fn await_grant(
        self: &Arc<Self>,
        claimed: &ClaimHandle,
        patience: Patience,
        mut progress: impl FnMut(u64),
    ) -> Result<Option<End>, StoreError> {
        let stop = patience.stop();
        loop {
            let limit = stop.map(|_| patience.left_to_stop());
            let collected = claimed.drive(limit, |claim, now| {
                if stop.is_some_and(|stop| now >= stop) {
                    claim.give_up(now);
                }
                let collected = claim.collect(now);
                let in_line = claim.phase() == Phase::Waiting;
                (in_line || collected != Collected::NotYet).then_some(collected)
            });
            match collected.await {
                Collected::Ready => return Ok(None),
                Collected::Ended(end) => return Ok(Some(end)),
                Collected::NotYet => {}
            }
            // In line the watchdog keeps it.
            self.want_inbox();
            let give_up = match patience {
                Patience::Until(end, _) => Some(end),
                Patience::No(_) | Patience::Forever => None,
            };
            let waiting = self.wait_in_line(claimed.slot(), give_up, &mut progress);
            Box::pin(waiting).await?;
        }
    }

    /// Why there is no lease.
    pub(super) fn failed(
        &self,
        request: &AcquireRequest,
        claimed: &ClaimHandle,
        end: End,
        patience: Patience,
    ) -> StoreError {
        let unanswered = || {
            let in_line = claimed.with(|claim, _| claim.arrival().is_some());
            let waiter_ttl = in_line.then_some(request.terms.waiter_ttl);
            patience.unanswered(self.settings.operation_timeout, waiter_ttl)
        };
        match end {
            End::TimedOut => timed_out(),
            End::Quarantined(left) => quarantined(left),
            End::Mismatch(in_use) => mismatch(request.mode, in_use),
            End::Taken => id_taken(),
            End::Late | End::TooLate => too_late(request.terms.ttl),
            End::Unreachable | End::Refused | End::Unacknowledged => claimed.last_error(unanswered),
            End::Busy(_) | End::Gone | End::Superseded => unanswered(),
        }
    }
}

/// Ids end in 64 random bits, so this is another claim's id by the choice of whoever made it.
pub(crate) fn id_taken() -> StoreError {
    StoreError::new(ErrorKind::Invalid, "the claim id belongs to another claim")
}

fn too_late(ttl: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        format!(
            "the store is too slow for a TTL of {}: every lease had expired before its \
         grant arrived",
            written(ttl)
        ),
    )
    .with_hint("choose a longer TTL, or find out why the store is slow")
}
