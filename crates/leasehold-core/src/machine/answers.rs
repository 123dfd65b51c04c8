//! Handles the inputs of a claim: answers, pushes and lost connections.

use super::claim::{Handing, Stage};
use super::renewal::Renewal;
use super::types::{Request, RequestKind, RunNews};
use super::{ClaimMachine, End, Failure, Response, Transmit};
use crate::{Command, LeaseState, Loss, Moment, Push, Renew, Reply, Token};

impl ClaimMachine {
    /// Handles the answer to a request, or its failure.
    pub(super) fn handle_answer(
        &mut self,
        now: Moment,
        to: &Transmit,
        heard: Result<Response, Failure>,
    ) {
        if let Ok(heard) = heard
            && let Reply::Standing(standing) = heard.reply
            && let left = standing.deadline.since(heard.at)
            && left > self.terms.ttl
        {
            self.lapses = self.lapses.max(now + left);
        }
        match (to.errand, &*to.command) {
            (RequestKind::Ask, _) => self.handle_asked(now, to, heard),
            (RequestKind::Beat, Command::Renew(renew)) => self.handle_beat(now, to, renew, heard),
            (RequestKind::Change(id), Command::Renew(renew)) => {
                self.handle_changed(now, to, id, renew, heard);
            }
            (RequestKind::Leave, _) => self.handle_left(now, heard),
            (RequestKind::Beat | RequestKind::Change(_), _) => {}
        }
        self.move_on(now);
    }

    fn handle_asked(&mut self, now: Moment, to: &Transmit, heard: Result<Response, Failure>) {
        let Stage::Waiting(waiter) = &mut self.stage else {
            // It was given up meanwhile.
            return;
        };
        let adopts = matches!(*waiter.ask, Command::Renew(_));
        let waits = matches!(&*waiter.ask, Command::Claim(claim) if claim.wait);
        let heard = match heard {
            // A definite no: to the only request, nothing was changed.
            Err(Failure::Refused) => return self.end_as(End::Refused, self.sends == 1, now),
            Err(Failure::NotNow) if self.sends == 1 && !waits => {
                return self.end_as(End::Refused, true, now);
            }
            Err(failure) => return waiter.handle_failure(now, failure),
            // It stands at the store, and is given back.
            Ok(heard) if heard.is_short() => {
                return self.end_as(End::Unacknowledged, false, now);
            }
            Ok(heard) => heard,
        };
        if adopts && !heard.reply.is_grant() {
            let end = match heard.reply {
                Reply::Taken => End::Taken,
                Reply::Superseded => End::Superseded,
                _ => End::Gone,
            };
            // One that still waited is not what was asked for: it is released.
            let nothing_left = !matches!(heard.reply, Reply::Standing(_));
            return self.end_as(end, nothing_left, now);
        }
        if heard.enough == Some(true) {
            self.handing = Handing::Fresh;
        }
        self.settled |= self.sends == 1 && matches!(heard.reply, Reply::Standing(_));
        waiter.handle_reply(now, to.sent, Request::Claim, &heard);
    }

    /// Handles the answer to a request that keeps the claim.
    fn handle_beat(
        &mut self,
        now: Moment,
        to: &Transmit,
        renew: &Renew,
        heard: Result<Response, Failure>,
    ) {
        let failure = heard.err().unwrap_or(Failure::Unanswered);
        let heard = heard.ok().filter(|heard| !heard.is_short());
        let heard = heard.filter(|heard| self.note_identity(renew, &heard.reply, now));
        match (&mut self.stage, heard) {
            (Stage::Waiting(_), None) if failure == Failure::Refused => {
                self.end_as(End::Refused, false, now);
            }
            (Stage::Waiting(waiter), None) => waiter.handle_failure(now, failure),
            (Stage::Held(renewal), None) => renewal.handle_unanswered(now, self.seed),
            (Stage::Waiting(waiter), Some(heard)) => {
                waiter.handle_reply(now, to.sent, Request::Renew(renew.ttl), &heard);
            }
            (Stage::Held(renewal), Some(heard)) => {
                renewal.handle_reply(now, to.sent, renew.ttl, &heard.reply);
            }
            // It was sent before the claim was given back.
            (Stage::Leaving(_) | Stage::Over, _) => {}
        }
    }

    fn handle_left(&mut self, now: Moment, heard: Result<Response, Failure>) {
        let Stage::Leaving(leaving) = &mut self.stage else {
            return;
        };
        let reply = match heard {
            Ok(heard) => heard.reply,
            Err(failure) => return leaving.handle_failure(now, failure, self.seed),
        };
        // Of one that was lost before nobody knows what has ended it.
        let valid = !matches!(self.known, Some(LeaseState::Lost(_)));
        self.confirmed |= matches!(reply, Reply::Released { .. });
        if leaving.handle_reply(&reply, valid) {
            // What the store has given this claim since is not this grant.
            let forgotten = self.known == Some(LeaseState::Lost(Loss::Forgotten));
            if leaving.reports {
                self.released = Some(leaving.held && !forgotten);
            }
            self.stage = Stage::Over;
        }
    }

    /// Updates the id from an answer to `renew`. Returns whether the answer is about this claim:
    /// not if its id has been replaced since, or may have been.
    pub(super) fn note_identity(&mut self, renew: &Renew, reply: &Reply, now: Moment) -> bool {
        match (&renew.rotate, reply) {
            (Some(rotate), Reply::Standing(_)) => {
                self.identity.handle_rotated(&rotate.to);
                self.end_rotation(&rotate.to);
                if self.terms.rotate_every.is_some() {
                    self.rotated = now;
                }
                true
            }
            (Some(_), Reply::Taken) => {
                self.identity.handle_taken();
                false
            }
            (None, Reply::Gone | Reply::Superseded) => self.identity.is_current(&renew.id),
            (Some(rotate), Reply::Gone | Reply::Superseded) => self.identity.is_last(&rotate.to),
            _ => true,
        }
    }

    /// Handles a push that names this claim's arrival number. Anybody who may use the channels can
    /// have sent it, so a push that begins or ends a hold counts only with a proof.
    pub(super) fn handle_push(&mut self, now: Moment, push: &Push) {
        let Some(arrival) = push.arrival() else {
            return;
        };
        let said = push.proved();
        let proved = said.is_some_and(|(said, proof)| self.identity.proves(&said, proof));
        let mut hinted = || self.hints.ask_at(now);
        match (&mut self.stage, push) {
            (Stage::Waiting(waiter), Push::Next { left, .. }) => {
                waiter.handle_next(hinted(), arrival, *left);
            }
            _ if !proved => {}
            (Stage::Waiting(waiter), Push::Granted { at, token, .. })
                if waiter.answered.allows(now, *at, *token) =>
            {
                waiter.handle_granted(push);
            }
            (Stage::Waiting(waiter), Push::Unfit { in_use, .. }) => {
                waiter.handle_unfit(arrival, *in_use);
            }
            (Stage::Waiting(waiter), Push::Granted { .. }) => waiter.handle_doubt(now, hinted()),
            // It was broken before its client knew that it holds, and is in line anew.
            (Stage::Held(renewal), Push::Granted { token, .. }) if renewal.token() < *token => {
                renewal.handle_doubt(hinted(), Loss::Revoked);
            }
            (Stage::Held(renewal), Push::Revoked { .. }) => renewal.lose(Loss::Revoked),
            (Stage::Held(renewal), Push::Adopted { .. }) => renewal.lose(Loss::Superseded),
            _ => {}
        }
        self.move_on(now);
    }

    /// Handles what is known of the claim directly ahead in its run ([`ClaimMachine::behind`]).
    pub(super) fn handle_run(&mut self, now: Moment, news: RunNews) {
        if let Stage::Waiting(waiter) = &mut self.stage {
            waiter.handle_run(now, news);
        }
        self.move_on(now);
    }

    /// Handles a lost connection: from now on another server may answer, which may have granted
    /// the key to others. So the hold is not passed on within the client until the store has
    /// answered.
    pub(super) fn handle_disconnection(&mut self) {
        self.passed = Token::NONE;
        match &mut self.stage {
            Stage::Waiting(waiter) => waiter.leave_run(),
            _ => self.doubtful = true,
        }
    }

    /// Handles that there is a connection again after one that was lost: the claim asks the store.
    pub(super) fn handle_reconnection(&mut self, now: Moment) {
        self.handle_disconnection();
        self.handle_reset(now);
    }

    /// Handles that pushes may have been missed: the claim asks the store.
    pub(super) fn handle_reset(&mut self, now: Moment) {
        match &mut self.stage {
            Stage::Waiting(waiter) => waiter.handle_reset(now),
            Stage::Held(renewal) => renewal.handle_reset(now),
            Stage::Leaving(leaving) => leaving.due = now,
            Stage::Over => {}
        }
    }

    /// Moves to the next phase after an input.
    pub(super) fn move_on(&mut self, now: Moment) {
        match &mut self.stage {
            Stage::Waiting(waiter) => {
                let known = waiter.position().map(|(arrival, _)| arrival);
                let in_flight = waiter.in_flight();
                match waiter.outcome {
                    Some(Ok(granted)) => {
                        let terms = self.terms.clone();
                        let renewal = Renewal::new(now, terms, granted, in_flight);
                        self.stage = Stage::Held(renewal);
                        self.arrival = Some(granted.arrival);
                    }
                    Some(Err(end)) => {
                        let nothing_left = match end {
                            End::TimedOut | End::Unreachable => false,
                            End::Gone => self.arrival.is_some(),
                            // An earlier request that was not answered may still make one.
                            _ => self.arrival.is_some() || self.sends == 1,
                        };
                        self.end_as(end, nothing_left, now);
                    }
                    None => self.arrival = known.or(self.arrival),
                }
            }
            // A lost lease is its holder's to release. One that was to end by itself ends at
            // the store too: a grant from the queue would keep the key for longer than its
            // TTL there.
            Stage::Held(renewal) if renewal.state() == LeaseState::Lost(Loss::Expired) => {
                self.leave(now);
            }
            Stage::Leaving(leaving) if leaving.has_lapsed(now) => {
                // One that was given back while it was valid may have left at the store.
                if leaving.reports && matches!(self.known, Some(LeaseState::Lost(_))) {
                    self.released = Some(false);
                }
                self.give_up(now);
                self.stage = Stage::Over;
            }
            Stage::Held(_) | Stage::Leaving(_) | Stage::Over => {}
        }
        self.end_changes();
    }
}
