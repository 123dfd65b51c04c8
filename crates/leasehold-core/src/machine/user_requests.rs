//! The requests of a claim's caller: collect the grant, release it, hand it over.

use std::task::Poll;
use std::time::Duration;

use super::claim::{Handing, Stage};
use super::release::Releasing;
use super::timing::MARGIN_OF_WAITING;
use super::types::Aim;
use super::{ChangeId, Changed, ClaimMachine, End, LeaseState, Loss, RenewalPolicy};
use crate::{ClaimId, Command, Moment, Release, Token};

impl ClaimMachine {
    /// Hands the lease to its caller, who may begin to work. From now on a minimum hold applies.
    pub fn deliver(&mut self) {
        self.used = true;
    }

    /// Returns whether the grant can be handed to its caller. With an acknowledgement policy, a
    /// grant that was pushed or found by polling is confirmed first, because the release of
    /// another client made it without waiting for acknowledgements. A grant that took too long on
    /// its way is renewed first. So is a lease that still lives on the waiter TTL and is not
    /// renewed automatically: it must have its own TTL from the grant on.
    pub fn collect(&mut self, now: Moment) -> Poll<Result<(), End>> {
        self.handle_timeout(now);
        if let Some(end) = self.end() {
            return Poll::Ready(Err(end));
        }
        let renewal = match &self.stage {
            Stage::Waiting(_) => return Poll::Pending,
            Stage::Held(renewal) => renewal,
            Stage::Leaving(_) if self.is_withdrawing() => return Poll::Pending,
            // What nobody renews has left by itself; else the client was shut down.
            Stage::Leaving(_) | Stage::Over => {
                let has_expired = self.known == Some(LeaseState::Lost(Loss::Expired));
                return Poll::Ready(Err(if has_expired { End::Late } else { End::Gone }));
            }
        };
        let is_lost = matches!(renewal.state(), LeaseState::Lost(_));
        let margin = match self.terms.policy {
            RenewalPolicy::Automatic(_) => self.terms.waiter_ttl / MARGIN_OF_WAITING,
            RenewalPolicy::Manual | RenewalPolicy::Fixed => self.terms.ttl * 9 / 10,
        };
        let is_short = renewal.validity().remaining(now) < margin;
        let end = match self.handing {
            _ if is_lost => End::Late,
            Handing::Unconfirmed => {
                self.handing = Handing::Confirming(self.aim(Aim::Confirm, now));
                return Poll::Pending;
            }
            Handing::Confirming(id) => match self.outcome(id) {
                None => return Poll::Pending,
                Some(Changed::Done) => {
                    self.handing = Handing::Fresh;
                    return self.collect(now);
                }
                Some(_) => End::Unacknowledged,
            },
            Handing::Fresh if is_short => {
                self.handing = Handing::Topping(self.aim(Aim::TopUp, now));
                return Poll::Pending;
            }
            Handing::Topping(id) => {
                if self.outcome(id).is_none() {
                    return Poll::Pending;
                }
                self.handing = Handing::Topped;
                return self.collect(now);
            }
            Handing::Fresh | Handing::Topped => return Poll::Ready(Ok(())),
        };
        self.end_as(end, false, now);
        Poll::Ready(Err(end))
    }

    /// Handles that its caller waits no longer for a grant, or for the answer to its withdrawal:
    /// the store counts as unreachable.
    pub fn give_up(&mut self, now: Moment) {
        if self.is_withdrawing() {
            self.end = Some(End::Unreachable);
        } else if matches!(self.stage, Stage::Waiting(_) | Stage::Held(_)) {
            self.end_as(End::Unreachable, false, now);
        }
    }

    /// Gives up the claim, waiting or held.
    pub fn leave(&mut self, now: Moment) {
        self.begin_to_leave(now, None, false);
    }

    /// Releases the claim for its caller, who waits for the result: [`ClaimMachine::released`].
    pub fn release(&mut self, now: Moment) {
        self.begin_to_leave(now, None, true);
        let asks = matches!(&self.stage, Stage::Leaving(leaving) if leaving.reports);
        if !asks {
            self.released.get_or_insert(false);
        }
    }

    /// Handles the shutdown of the client: the claim is released and its lease is lost.
    pub fn shut_down(&mut self, now: Moment) {
        self.begin_to_leave(now, Some(Loss::Shutdown), false);
    }

    /// Hands the lease over to another process: its validity ends now. The claim is kept until
    /// [`ClaimMachine::forget`].
    pub fn hand_over(&mut self, now: Moment) -> ChangeId {
        if let Stage::Held(renewal) = &mut self.stage {
            // If its time is over by now, it was lost before.
            renewal.handle_timeout(now);
            renewal.lose(Loss::HandedOver);
        }
        self.aim(Aim::Settle, now)
    }

    /// Leaves the claim at the store for another client.
    pub fn forget(&mut self) {
        self.known = self.state();
        self.stage = Stage::Over;
        self.changes.clear();
    }

    /// `loss`: why its lease is lost by that, if it is.
    fn begin_to_leave(&mut self, now: Moment, loss: Option<Loss>, reports: bool) {
        match &mut self.stage {
            Stage::Waiting(_) if self.sends == 0 => self.stage = Stage::Over,
            Stage::Waiting(_) => self.set_leaving(now, reports),
            Stage::Held(renewal) => {
                renewal.handle_timeout(now);
                let nothing_left = matches!(
                    renewal.state(),
                    LeaseState::Lost(Loss::Gone | Loss::Revoked | Loss::Superseded)
                );
                if let Some(loss) = loss {
                    renewal.lose(loss);
                }
                let valid = renewal.validity().remaining(now) > Duration::ZERO;
                let passes = valid && self.terms.hand_off && !self.doubtful;
                self.passed = if passes { renewal.token() } else { Token::NONE };
                self.known = Some(renewal.state());
                if nothing_left {
                    self.forget();
                } else {
                    self.set_leaving(now, reports);
                }
            }
            Stage::Leaving(_) | Stage::Over => {}
        }
    }

    fn set_leaving(&mut self, now: Moment, reports: bool) {
        let until = self.lapses.max(now + self.terms.ttl);
        let release = |id: &ClaimId| {
            Command::Release(Release {
                id: id.clone(),
                hand_off: self.terms.hand_off,
                settled: self.settled,
                unused: !self.used,
            })
        };
        let another = self.identity.ids().nth(1).map(release);
        let release = release(self.identity.id());
        let leaving = Releasing::new(release, another, now, until, reports);
        self.stage = Stage::Leaving(leaving);
        self.changes.clear();
    }

    /// Ends the claim before it was handed out, and releases what may be left of it at the store.
    pub(super) fn end_as(&mut self, end: End, nothing_left: bool, now: Moment) {
        self.end = Some(end);
        if nothing_left {
            self.stage = Stage::Over;
        } else {
            self.leave(now);
        }
    }
}
