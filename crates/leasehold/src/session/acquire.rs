//! Acquires a key: makes one claim after the other until one is granted.

use std::sync::Arc;
use std::task::Poll;

use leasehold_core::{
    Adopt, ClaimId, ClaimMachine, Deadlines, End, GRACE, Key, Moment, Phase, Rejoining, Rotate,
};
use tracing::Instrument as _;

use super::claim_handle::ClaimHandle;
use super::request::{
    AcquireRequest, call_unanswered, id_taken, mismatch, nothing_to_adopt, quarantined, timed_out,
    too_late,
};
use super::shutdown::{Closed, under_way};
use super::timing::{WATCHDOG_LATE_LOOKS, WATCHDOG_LOOK};
use super::{Machine, Session, random_u64};
use crate::clock;
use crate::error::StoreError;
use crate::observe::Acquiring;
use crate::sync::{OnDrop, Ordering, sleep, timeout};

/// How an acquisition came out. The inner error is how its claim has ended, where the caller
/// decides what that means: [`End::Busy`], or that what is to be adopted is gone.
pub(crate) type Outcome<T = ClaimHandle> = Result<Result<T, End>, StoreError>;

/// Hears the position of a waiting claim, and how often a claim had lost its place before.
pub(crate) type OnProgress<'a> = Option<&'a (dyn Fn(u64, u32) + Send + Sync)>;

impl Session {
    /// Acquires the key. The call is out of time if the key is busy and the caller does not wait, and
    /// fails when `deadlocked` completes.
    ///
    /// Dropping the future at any point leaves the queue in the background.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadlines: Deadlines,
        progress: OnProgress<'_>,
        deadlocked: impl Future<Output = StoreError>,
    ) -> Result<ClaimHandle, StoreError> {
        let waits = deadlines.waits();
        let polls = waits && (request.retry.is_some() || !self.store.capabilities().queueing);
        // By itself: whatever awaits this would have to move all of it otherwise.
        let acquire = Box::pin(async move {
            if polls {
                // What few need does not make every acquisition larger.
                return Box::pin(self.acquire_by_polling(request, deadlines)).await;
            }
            self.acquire_in_line(request, deadlines, waits, progress)
                .await
        });
        let acquire = async {
            tokio::select! {
                biased;
                deadlock = deadlocked => Err(deadlock),
                acquired = acquire => acquired,
            }
        };
        let (acquiring, _under_way) = self.acquiring(request);
        let acquired = self.while_open(acquire).instrument(acquiring.span()).await;
        acquiring.end(acquired.as_ref());
        acquired?.map_err(|_busy| timed_out())
    }

    /// One claim after the other until one is granted, or busy. `waits` is what the
    /// store is told.
    pub(super) async fn acquire_in_line(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadlines: Deadlines,
        waits: bool,
        progress: OnProgress<'_>,
    ) -> Outcome {
        let mut claims = Rejoining::new(random_u64());
        // In line behind its own it has what they leave; without a line they are in its way.
        let stays = waits && self.store.capabilities().queueing && deadlines.stop.is_none();
        loop {
            if !stays {
                let end = clock::now() + GRACE.min(deadlines.left(clock::now()));
                self.own_departures(&request.key, end).await;
            }
            let mut claim = self.claim(request, deadlines, waits, progress.is_some())?;
            claim.rejoined = claims.rejoined();
            let Err(end) = claim.await_grant(deadlines, progress).await? else {
                return Ok(Ok(claim));
            };
            match claims.after(end) {
                // It had a place, so others had the key.
                Ok(_) if end == End::Gone && deadlines.left_to_wait(clock::now()).is_zero() => {
                    return Err(timed_out());
                }
                Ok(pause) => {
                    drop(claim);
                    sleep(pause.min(deadlines.left(clock::now()))).await;
                }
                Err(end @ End::Busy(_)) => return Ok(Err(end)),
                Err(end) => return Err(claim.failed(request, end, deadlines)),
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
        deadlines: Deadlines,
    ) -> Result<ClaimHandle, StoreError> {
        let adopt = async {
            let rotate = Rotate {
                to: self.claim_id()?,
                version,
                adopt: Some(Adopt {
                    inbox: Some(self.store.inbox().clone()),
                    owner: request.owner.clone(),
                }),
            };
            let claim = ClaimHandle::new(self, request, false, |machine, number, slot, now| {
                let terms = request.terms.clone();
                machine.adopt(number, slot, id.clone(), rotate, terms, deadlines, now);
            });
            match claim.await_grant(deadlines, None).await? {
                Ok(()) => Ok(Ok(claim)),
                Err(end @ (End::Gone | End::Superseded)) => Ok(Err(end)),
                Err(end) => Err(claim.failed(request, end, deadlines)),
            }
        };
        let (acquiring, _under_way) = self.acquiring(request);
        let adopted = self.while_open(adopt).instrument(acquiring.span()).await;
        acquiring.end(adopted.as_ref());
        adopted?.map_err(nothing_to_adopt)
    }

    /// An acquisition that begins now, for which a shutdown waits.
    pub(super) fn acquiring<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> (Acquiring<'a>, OnDrop<impl FnOnce()>) {
        let under_way = under_way(self, |it| &it.under_way);
        let acquiring = Acquiring::begin(&self.observers, &request.key, request.mode);
        (acquiring, under_way)
    }

    /// A claim that is not asked for yet.
    pub(super) fn claim(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadlines: Deadlines,
        waits: bool,
        tells_position: bool,
    ) -> Result<ClaimHandle, StoreError> {
        let claim = request.claim(self, self.claim_id()?, waits);
        let terms = request.terms.clone();
        let begin = |machine: &mut Machine, number, slot, now| {
            machine.claim(number, slot, claim, terms, deadlines, now);
        };
        Ok(ClaimHandle::new(self, request, tells_position, begin))
    }

    /// Waits until what this client has on its way out of `key` now has left, until `end` at
    /// the latest: its own claims are no reason to find the key busy.
    pub(super) async fn own_departures(&self, key: &Key, end: Moment) {
        let Some(home) = self.keys.find(key) else {
            return;
        };
        let leaving: Vec<_> = home.lock().machine.leaving().cloned().collect();
        if leaving.is_empty() {
            return;
        }
        let all_left = async {
            for claim in leaving {
                claim.left().await;
            }
        };
        // Whoever asks then may find them, as it may others' claims.
        let limit = end.since(clock::now());
        Box::pin(timeout(limit, all_left)).await.ok();
    }
}

impl ClaimHandle {
    /// Drives the claim until its lease can be handed out, or it has ended.
    pub(super) async fn await_grant(
        &self,
        deadlines: Deadlines,
        progress: OnProgress<'_>,
    ) -> Outcome<()> {
        loop {
            let limit = deadlines.stop.map(|stop| stop.since(clock::now()));
            let begin = |_: &mut ClaimMachine, _| None;
            let collected = self.drive(limit, begin, |claim, now, _, _| {
                if deadlines.left(now).is_zero() {
                    claim.give_up(now);
                }
                let collected = claim.collect(now);
                let in_line = claim.phase() == Phase::Waiting;
                (in_line || collected.is_ready()).then_some(collected)
            });
            if let Poll::Ready(granted) = collected.await {
                return Ok(granted);
            }
            // In line the watchdog keeps it, which must not sleep on a closed inbox.
            if !self.session.listening.load(Ordering::SeqCst) {
                self.session.wake.notify_one();
            }
            Box::pin(self.wait_in_line(deadlines, progress)).await?;
        }
    }

    /// Waits until the claim does not stand in line any more; not for ever, if there is no
    /// watchdog that keeps it there.
    async fn wait_in_line(
        &self,
        deadlines: Deadlines,
        progress: OnProgress<'_>,
    ) -> Result<(), StoreError> {
        let (mut seen, mut late) = (0, 0);
        loop {
            let limit = WATCHDOG_LOOK.min(deadlines.left_to_wait(clock::now()));
            match timeout(limit, self.slot.moved(seen)).await {
                Ok(None) => return Ok(()),
                Ok(Some(position)) => {
                    seen = position;
                    if let Some(hear) = progress {
                        hear(position, self.rejoined);
                    }
                }
                // Its caller withdraws it, whoever keeps it.
                Err(_) if deadlines.left_to_wait(clock::now()).is_zero() => return Ok(()),
                Err(_) if self.session.is_kept() => late = 0,
                Err(_) if late == WATCHDOG_LATE_LOOKS => return Err(Closed::NotDriven.error()),
                Err(_) => late += 1,
            }
        }
    }

    /// Why there is no lease.
    pub(super) fn failed(
        &self,
        request: &AcquireRequest,
        end: End,
        deadlines: Deadlines,
    ) -> StoreError {
        let unanswered = || {
            let in_line = self.with(|claim, _| claim.arrival().is_some());
            call_unanswered(&request.terms, deadlines, in_line)
        };
        match end {
            End::TimedOut => timed_out(),
            End::Quarantined(left) => quarantined(left),
            End::Mismatch(in_use) => mismatch(request.mode, in_use),
            End::Taken => id_taken(),
            End::Late | End::TooLate => too_late(request.terms.ttl),
            End::Unreachable | End::Refused | End::Unacknowledged => self.last_error(unanswered),
            // What the caller treats itself (busy, gone, superseded), and what this version does not know.
            _ => unanswered(),
        }
    }
}
