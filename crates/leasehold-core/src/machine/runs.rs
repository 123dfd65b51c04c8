//! What one claim of a client means to another: holds that are passed on in a run.

use std::collections::VecDeque;

use super::claim::ClaimMachine;
use super::types::{LeaseState, Phase, RunNews};
use super::{Entry, KeyMachine};
use crate::{Arrival, Moment, Push, Token};

/// How many claims that have left are remembered to have been passed on.
const PASSED: usize = 64;

/// The part of a claim in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Run {
    None,
    /// It is granted behind this one.
    Behind(Arrival),
    /// Its grant had this token, and it was released while it was valid.
    Passed(Token),
    /// It was lost.
    Lost,
}

impl Run {
    pub(super) fn of(claim: &ClaimMachine) -> Self {
        match (claim.phase(), claim.state()) {
            (Phase::Waiting, _) => claim.behind().map_or(Self::None, Self::Behind),
            (Phase::Held, Some(LeaseState::Lost(_))) => Self::Lost,
            (Phase::Leaving, _) if claim.passed != Token::NONE => Self::Passed(claim.passed),
            _ => Self::None,
        }
    }
}

/// What claims that are not answered yet may have to know.
#[derive(Debug, Clone, Default, PartialEq, Hash)]
pub(super) struct Remembered {
    /// The last that were passed on, and are gone.
    passed: VecDeque<(Arrival, Token)>,
    /// Pushes that may be about a claim that is not answered yet.
    pub(super) early: VecDeque<Push>,
}

impl Remembered {
    /// Those that name this arrival number, in the order in which they came.
    pub(super) fn take_pushes(&mut self, arrival: Arrival) -> Vec<Push> {
        let (named, others) = std::mem::take(&mut self.early)
            .into_iter()
            .partition::<Vec<_>, _>(|push| push.arrival() == Some(arrival));
        self.early = others.into();
        named.into_iter().rev().collect()
    }
}

impl<T> KeyMachine<T> {
    /// The store may be another one, which gives the same numbers to others.
    pub(super) fn forget_passed(&mut self) {
        if let Some(remembered) = &mut self.remembered {
            remembered.passed.clear();
        }
    }

    /// The phase or the part in a run of a claim has changed: tells the others in its run.
    pub(super) fn tell_run(&mut self, at: usize, was: (Phase, Run), now: Moment) {
        let entry = &self.claims[at];
        let (phase, run, own) = (entry.phase, entry.run, entry.arrival);
        self.set_astray(at, false);
        match (run, own) {
            (_, Some(own)) if phase == Phase::Over && was.0 != Phase::Over => {
                if let Run::Passed(token) = was.1
                    && self.moves()
                {
                    // Who is behind it may not have read its answer yet.
                    let passed = &mut self.remembered.get_or_insert_default().passed;
                    passed.truncate(PASSED - 1);
                    passed.push_front((own, token));
                }
                self.tell_behind(own, RunNews::Ended(own), now);
            }
            (Run::Passed(token), Some(own)) if run != was.1 => {
                self.tell_behind(own, RunNews::Turn(own, token), now);
            }
            (Run::Lost, Some(own)) if run != was.1 => {
                self.tell_behind(own, RunNews::Ended(own), now);
            }
            (Run::Behind(ahead), _) if run != was.1 => {
                if let Some(news) = self.news_of(ahead) {
                    self.set_astray(at, matches!(news, RunNews::Unknown(_)));
                    self.tell(at, news, now);
                }
            }
            _ => {}
        }
        if self.astray > 0 {
            self.find_astray(at, now);
        }
        if !self.moves() {
            self.remembered = None;
        }
    }

    /// Whether any claim may still have to be told of another.
    fn moves(&self) -> bool {
        let moves = |phase| matches!(phase, Phase::Asking | Phase::Waiting | Phase::Leaving);
        self.claims.iter().any(|entry| moves(entry.phase))
    }

    fn set_astray(&mut self, at: usize, astray: bool) {
        let was = std::mem::replace(&mut self.claims[at].astray, astray);
        self.astray = self.astray + u32::from(astray) - u32::from(was);
    }

    fn tell_behind(&mut self, own: Arrival, news: RunNews, now: Moment) {
        for at in 0..self.claims.len() {
            if matches!(self.claims[at].run, Run::Behind(ahead) if ahead == own) {
                self.tell(at, news, now);
            }
        }
    }

    fn tell(&mut self, at: usize, news: RunNews, now: Moment) {
        self.claims[at].claim.handle_run(now, news);
        self.settle(at, now);
    }

    /// What is to be said to a claim that is behind this one now.
    fn news_of(&self, ahead: Arrival) -> Option<RunNews> {
        // A run grows at its end.
        let mut claims = self.claims.iter().rev();
        let known = claims.find(|it| it.arrival == Some(ahead) && it.phase != Phase::Over);
        let gone = || {
            let passed = &self.remembered.as_ref()?.passed;
            passed.iter().find(|(own, _)| *own == ahead).map(|it| it.1)
        };
        match known.map(|entry| (entry.phase, entry.run)) {
            Some((_, Run::Passed(token))) => Some(RunNews::Turn(ahead, token)),
            Some((_, Run::Lost)) => Some(RunNews::Ended(ahead)),
            Some((Phase::Waiting | Phase::Held, _)) => None,
            _ => Some(gone().map_or(RunNews::Unknown(ahead), |token| RunNews::Turn(ahead, token))),
        }
    }

    /// Of claims that were behind what nobody knew: that it is known now, since this claim has
    /// changed, or that it cannot be any more, since every claim of this client has been answered.
    fn find_astray(&mut self, changed: usize, now: Moment) {
        if self.passing > 0 && !self.claims[changed].stands() {
            return;
        }
        for at in 0..self.claims.len() {
            let entry = &self.claims[at];
            let (true, Run::Behind(ahead)) = (entry.astray, entry.run) else {
                continue;
            };
            let is_ahead = |of: &Entry<T>| of.stands() && of.arrival == Some(ahead);
            let news = if is_ahead(&self.claims[changed]) {
                RunNews::Known
            } else if self.passing > 0 {
                continue;
            } else if self.claims.iter().any(is_ahead) {
                RunNews::Known
            } else {
                RunNews::Ended(ahead)
            };
            self.set_astray(at, false);
            self.tell(at, news, now);
        }
    }
}
