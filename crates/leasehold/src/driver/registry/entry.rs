//! One claim, from its place in the queue to its release: which of the core's
//! machines it is given to.

use std::sync::Arc;

use leasehold_core::{
    Arrival, HintLimit, LastAnswer, Loss, Moment, Renew, Renewal, Reply, Request, Waiter,
};

use super::leaving::Leaving;
use super::{Done, Errand};
use crate::driver::own_id::OwnIds;
use crate::driver::signal::Signal;
use crate::driver::subject::Subject;
use crate::store::{Answer, Push};

/// One claim of the client.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) subject: Subject,
    pub(super) stage: Stage,
    pub(super) signal: Arc<Signal>,
    pub(super) timer: Option<Moment>,
    pub(super) arrival: Option<Arrival>,
    /// The last answer while it waited.
    pub(super) answered: LastAnswer,
    hints: HintLimit,
    /// When the claim id was replaced last, or first used.
    rotated: Moment,
}

impl Entry {
    pub(super) fn new(subject: Subject, stage: Stage, signal: Arc<Signal>, now: Moment) -> Self {
        Self {
            subject,
            stage,
            signal,
            timer: None,
            arrival: None,
            answered: LastAnswer::default(),
            hints: HintLimit::default(),
            rotated: now,
        }
    }

    /// Its timer has run out: what is to be sent now.
    pub(super) fn poll_transmit(&mut self, now: Moment, ids: &OwnIds) -> Option<Errand> {
        let request = match &mut self.stage {
            Stage::Waiting(waiter) => {
                waiter.handle_timeout(now);
                waiter.poll_transmit(now)
            }
            Stage::Held(renewal) => {
                renewal.handle_timeout(now);
                renewal.poll_transmit(now)
            }
            Stage::Leaving(leaving) => {
                return leaving.poll_transmit(now).then_some(Errand::Release);
            }
        };
        request.map(|request| self.renewal(request, now, ids))
    }

    /// Pushes may have been missed: it asks where it stands.
    pub(super) fn handle_reset(&mut self, now: Moment) {
        match &mut self.stage {
            Stage::Waiting(waiter) => waiter.handle_reset(now),
            Stage::Held(renewal) => renewal.handle_reset(now),
            Stage::Leaving(leaving) => leaving.handle_reset(now),
        }
    }

    /// A push for this claim; whether it changed anything. Whoever may use the channels
    /// can have sent it: one that begins or ends a hold counts only if it is proved. Where
    /// ids may be guessed (not `provable`), a proof is worth a question.
    pub(super) fn handle_push(
        &mut self,
        push: &Push,
        arrival: Arrival,
        provable: bool,
        now: Moment,
    ) -> bool {
        let proved = push
            .proved()
            .is_some_and(|(said, proof)| self.subject.proves(&said, proof));
        let mut hinted = || self.hints.ask_at(now);
        match (&mut self.stage, push) {
            (Stage::Waiting(waiter), Push::Next { left, .. }) => {
                waiter.handle_next(hinted(), arrival, *left);
            }
            _ if !proved => return false,
            (
                Stage::Waiting(waiter),
                Push::Granted {
                    epoch, token, at, ..
                },
            ) if provable && self.answered.allows(now, *at, *token) => {
                waiter.handle_granted(*epoch, arrival, *token, *at);
            }
            (Stage::Waiting(waiter), Push::Unfit { in_use, .. }) if provable => {
                waiter.handle_unfit(arrival, *in_use);
            }
            (Stage::Waiting(waiter), Push::Granted { .. } | Push::Unfit { .. }) => {
                waiter.handle_doubt(now, hinted());
            }
            (Stage::Held(renewal), Push::Revoked { .. }) if provable => renewal.handle_revoked(),
            (Stage::Held(renewal), Push::Adopted { .. }) if provable => renewal.handle_adopted(),
            (Stage::Held(renewal), Push::Revoked { .. }) => {
                renewal.handle_doubt(hinted(), Loss::Revoked);
            }
            (Stage::Held(renewal), Push::Adopted { .. }) => {
                renewal.handle_doubt(hinted(), Loss::Superseded);
            }
            _ => return false,
        }
        true
    }

    /// An answer, or the lack of one.
    pub(super) fn handle_answer(&mut self, done: &Done, now: Moment) -> Course {
        if let Ok(answer) = &done.result {
            if let Some(short) = answer.shortfall() {
                // Nothing to rely on: as if it had not been answered.
                let result = Err(short);
                return self.handle_answer(
                    &Done {
                        result,
                        ..done.clone()
                    },
                    now,
                );
            }
            if let Some(acknowledged) = answer.achieved() {
                self.signal.set_acknowledged(acknowledged);
            }
        }
        match (&done.errand, &done.result) {
            (errand, Err(error)) => {
                self.signal.set_error(error.clone());
                self.handle_unanswered(errand, now)
            }
            (Errand::Renew(renew), Ok(answer)) => {
                self.signal.clear_error();
                self.handle_renewed(renew, answer, done.sent, now)
            }
            (Errand::Release, Ok(answer)) => self.handle_released(&answer.reply),
        }
    }

    fn handle_unanswered(&mut self, errand: &Errand, now: Moment) -> Course {
        match (&mut self.stage, errand) {
            (Stage::Waiting(waiter), Errand::Renew(_)) => waiter.handle_unanswered(now),
            (Stage::Held(renewal), Errand::Renew(_)) => renewal.handle_unanswered(now),
            (Stage::Leaving(leaving), Errand::Release) => leaving.handle_unanswered(now),
            _ => return Course::Nothing,
        }
        Course::On
    }

    fn handle_renewed(
        &mut self,
        renew: &Renew,
        answer: &Answer,
        sent: Moment,
        now: Moment,
    ) -> Course {
        let counts = self.note_identity(renew, &answer.reply, now);
        if !counts {
            return self.handle_unanswered(&Errand::Renew(renew.clone()), now);
        }
        let Answer {
            reply, at, epoch, ..
        } = answer;
        match &mut self.stage {
            Stage::Waiting(waiter) => {
                self.answered = LastAnswer::new(sent, *at);
                let request = Request::Renew(renew.ttl);
                waiter.handle_reply(now, sent, *epoch, request, reply, *at);
            }
            Stage::Held(renewal) => renewal.handle_reply(now, sent, renew.ttl, reply),
            // It was sent before the claim was given back.
            Stage::Leaving(_) => return Course::Nothing,
        }
        Course::On
    }

    fn handle_released(&self, reply: &Reply) -> Course {
        match self.stage {
            Stage::Leaving(_) => Course::Left {
                confirmed: matches!(reply, Reply::Released { .. }),
            },
            Stage::Waiting(_) | Stage::Held(_) => Course::Nothing,
        }
    }

    /// A registered claim has been answered once, so it is never claimed again.
    fn renewal(&self, request: Request, now: Moment, ids: &OwnIds) -> Errand {
        let ttl = match request {
            Request::Renew(ttl) => ttl,
            Request::Claim => self.subject.terms.ttl,
        };
        let held = matches!(self.stage, Stage::Held(_));
        let rotates = held && self.subject.wants_rotation(self.rotated, now);
        // An id that takes time to make is for the next renewal.
        let fresh = rotates.then(|| ids.now(&self.subject.key)).flatten();
        Errand::Renew(fresh.map_or_else(
            || self.subject.renewal(ttl),
            |fresh| self.subject.rotation(ttl, &fresh),
        ))
    }

    /// Takes note of what an answer to `renew` says about the id. Whether the
    /// answer is to be taken for what it says: not if it is about an id that
    /// has been replaced meanwhile, or may have been.
    fn note_identity(&mut self, renew: &Renew, reply: &Reply, now: Moment) -> bool {
        match (&renew.rotate, reply) {
            (Some(rotate), Reply::Standing(_)) => {
                self.subject.handle_rotated(&rotate.to);
                self.rotated = now;
                true
            }
            (Some(_), Reply::Taken) => {
                self.subject.handle_taken();
                false
            }
            (None, Reply::Gone | Reply::Superseded) => {
                self.subject.identity().is_current(&renew.id)
            }
            _ => true,
        }
    }
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum Stage {
    Waiting(Waiter),
    Held(Renewal),
    Leaving(Leaving),
}

/// What an answer means to the registry.
#[derive(Debug)]
pub(super) enum Course {
    /// The claim goes on, perhaps to its next stage.
    On,
    /// It has left; whether it was the release that did it.
    Left { confirmed: bool },
    /// The answer is to something that matters no more.
    Nothing,
}
