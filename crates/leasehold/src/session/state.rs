//! The locked state of a claim: its state machine, and who drives it.

use std::time::Duration;

use leasehold_core::{
    Arrival, Command, Failure, Heard, Life, Loss, Moment, Phase, Standpoint, Token, Transmit,
    written,
};

use super::live::LiveClaim;
use super::no_answer;
use super::telling::Told;
use crate::error::{ErrorKind, StoreError};
use crate::ids::ClaimIds;
use crate::store::{Acknowledged, Answer};

/// What came of a request: an answer, what the store or the connection said, or nothing in
/// time.
pub(super) type Carried = Result<Answer, Option<StoreError>>;

/// Why the last request came to nothing.
#[derive(Debug)]
enum Trouble {
    /// The store or the connection said so.
    Said(StoreError),
    /// There was no answer for so long.
    Silence(Duration),
}

/// A claim, under its lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) life: Life,
    pub(super) told: Told,
    /// As the registry has it.
    pub(super) listed: Listed,
    /// What its tasks have seen.
    pub(super) standpoint: Option<Standpoint>,
    pub(super) position: u64,
    /// So many tasks drive it themselves.
    pub(super) driven: u32,
    /// Its holder has released or dropped it.
    pub(super) given_back: bool,
    /// The loss that was reported. It stays, since a caller may have stopped because of it.
    pub(super) lost: Option<Loss>,
    trouble: Option<Box<Trouble>>,
    pub(super) acknowledged: Option<Box<Acknowledged>>,
}

/// What the registry knows of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) phase: Phase,
    /// By which pushes find it, while it waits or holds.
    pub(super) arrival: Option<Arrival>,
    part: Option<Part>,
    /// When the watchdog has to see to it.
    pub(super) due: Option<Moment>,
    /// Whether the store has confirmed that it left.
    pub(super) confirmed: bool,
}

impl Listed {
    /// As of a claim that the registry does not know: before its first step, and in the end.
    const NOT: Self = Self {
        phase: Phase::Over,
        arrival: None,
        part: None,
        due: None,
        confirmed: false,
    };

    /// What it has to do with others in its run.
    pub(super) fn run(&self) -> Option<Run> {
        let own = self.arrival?;
        self.part.map(|part| match part {
            Part::Behind(ahead) => Run::Behind(ahead),
            Part::Passed(token) => Run::Passed(own, token),
            Part::Lost => Run::Lost(own),
        })
    }
}

/// Its part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Behind(Arrival),
    Passed(Token),
    Lost,
}

/// What a claim has to do with others in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Run {
    /// It is granted behind this one.
    Behind(Arrival),
    /// Its grant had these numbers, and it was released while it was valid.
    Passed(Arrival, Token),
    /// It has this number, and was lost.
    Lost(Arrival),
}

/// What a task that drives its claim does next.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// What it waited for has come.
    Done(T),
    /// This is to be sent.
    Send(Transmit),
    /// Nothing, before this time or a change.
    Wait(Option<Moment>),
}

impl State {
    /// A claim that is not asked for yet.
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            told: Told::new(),
            listed: Listed::NOT,
            standpoint: None,
            position: 0,
            driven: 0,
            given_back: false,
            lost: None,
            trouble: None,
            acknowledged: None,
        }
    }

    /// One step of a task that drives its claim until `done` says something.
    pub(super) fn step<T>(
        &mut self,
        now: Moment,
        ids: &ClaimIds,
        done: &mut impl FnMut(&mut Self, Moment) -> Option<T>,
    ) -> Step<T> {
        self.life.handle_timeout(now);
        if let Some(result) = done(self, now) {
            self.driven -= 1;
            Step::Done(result)
        } else if let Some(transmit) = self.poll_transmit(now, ids) {
            Step::Send(transmit)
        } else {
            Step::Wait(self.life.poll_timeout())
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Moment, ids: &ClaimIds) -> Option<Transmit> {
        self.life.poll_transmit(now, || ids.next().ok())
    }

    /// A task drives it from now on.
    pub(super) fn begin_to_drive(&mut self) {
        self.driven += 1;
    }

    /// Called when a task stops driving it, and gives up its request.
    pub(super) fn abandon(&mut self, sending: Option<&Transmit>, now: Moment) {
        self.driven -= 1;
        if let Some(transmit) = sending {
            let unanswered = Err(Failure::Unanswered);
            self.life.handle_answer(now, transmit, unanswered);
        }
    }

    /// What came of a request.
    pub(super) fn answer(&mut self, to: &Transmit, answer: Carried, now: Moment) {
        let heard = match answer {
            Ok(answer) => {
                // That it could leave does not say why it was not granted.
                if !matches!(*to.command, Command::Release(_)) {
                    let shortfall = answer.shortfall();
                    self.trouble = shortfall.map(|short| Box::new(Trouble::Said(short)));
                }
                if let Some(acknowledged) = answer.achieved() {
                    self.acknowledged = Some(Box::new(acknowledged));
                }
                Ok(Heard {
                    reply: answer.reply,
                    at: answer.at,
                    epoch: answer.epoch,
                    enough: answer.acknowledged.as_ref().map(Acknowledged::is_enough),
                })
            }
            // That nothing came says less than what the store has said before.
            Err(None) => {
                let silence = || Box::new(Trouble::Silence(to.limit));
                self.trouble.get_or_insert_with(silence);
                Err(Failure::Unanswered)
            }
            Err(Some(error)) => {
                let failure = match error.kind() {
                    ErrorKind::Unavailable if error.retry_after.is_some() => Failure::NotNow,
                    ErrorKind::Unavailable => Failure::Unanswered,
                    _ => Failure::Refused,
                };
                self.trouble = Some(Box::new(Trouble::Said(error)));
                Err(failure)
            }
        };
        self.life.handle_answer(now, to, heard);
    }

    /// Why the last request came to nothing, as the store or the connection said it.
    pub(super) fn said(&self) -> Option<StoreError> {
        match self.trouble.as_deref() {
            Some(Trouble::Said(error)) => Some(error.clone()),
            Some(Trouble::Silence(_)) | None => None,
        }
    }

    /// The same; also if there was no answer.
    pub(super) fn last_error(&self) -> Option<StoreError> {
        match self.trouble.as_deref()? {
            Trouble::Said(error) => Some(error.clone()),
            Trouble::Silence(limit) => Some(no_answer(&written(*limit))),
        }
    }

    /// Its caller has let go of it: what is left of it leaves.
    pub(super) fn let_go(&mut self, claim: &LiveClaim, now: Moment) {
        self.give_back(claim, now);
        self.life.leave(now);
    }

    /// The same, and its caller wants to know what the release finds.
    pub(super) fn release(&mut self, claim: &LiveClaim, now: Moment) {
        self.give_back(claim, now);
        self.life.release(now);
    }

    /// The lease is not to be relied on any more. What was lost before stays so.
    fn give_back(&mut self, claim: &LiveClaim, now: Moment) {
        self.given_back |= !matches!(self.standpoint(claim, || now), Standpoint::Lost(_));
        claim.distrust();
    }

    /// As the registry is to have it. A task that asks or releases sees to that itself.
    pub(super) fn listing(&self) -> Listed {
        let (life, phase) = (&self.life, self.life.phase());
        let own = self.driven > 0 && matches!(phase, Phase::Asking | Phase::Leaving);
        Listed {
            phase,
            arrival: life.arrival(),
            part: match (phase, life.standpoint()) {
                (Phase::Waiting, _) => life.behind().map(Part::Behind),
                (Phase::Held, Some(Standpoint::Lost(_))) => Some(Part::Lost),
                (Phase::Leaving, _) => life.passed().map(|(_, token)| Part::Passed(token)),
                _ => None,
            },
            due: if own { None } else { life.poll_timeout() },
            confirmed: life.has_left(),
        }
    }

    pub(super) fn standpoint(&self, claim: &LiveClaim, now: impl Fn() -> Moment) -> Standpoint {
        if let Some(loss) = self.lost {
            return Standpoint::Lost(loss);
        }
        match self.standpoint.unwrap_or(Standpoint::Held) {
            // Time is up although nobody has noticed yet.
            Standpoint::Held | Standpoint::Unknown if now() >= claim.valid_until() => {
                Standpoint::Lost(self.life.loss_at_end().unwrap_or(Loss::Unanswered))
            }
            known => known,
        }
    }
}
