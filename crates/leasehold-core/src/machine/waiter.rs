//! A claim until its grant: requests, heartbeats and time-outs.

use std::sync::Arc;
use std::time::Duration;

use super::push_validation::LastAnswer;
use super::timing::{
    ASK_AGAIN, ASK_PAUSE, ASK_SHARE, GRACE, LOOK_PAUSE, RENEW_WAITING_AT, STAGGER, STAGGER_AT_MOST,
};
use super::types::{Deadlines, End, Failure, Granted, Request, Response, RunNews, Terms};
use crate::{
    Arrival, Backoff, Capacity, Command, Moment, Push, Reply, Standing, StoreTime, Token, Validity,
};

/// One claim before its grant: sends requests, keeps its place, polls when the claim ahead can
/// expire, and decides which pushes to trust.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// What brings the claim into being.
    pub(super) ask: Arc<Command>,
    lease_ttl: Duration,
    /// The TTL while waiting; renewed at a third.
    waiter_ttl: Duration,
    /// Give up then, and withdraw: a claim in line has timed out, one that was asked for and never
    /// answered is out of reach. It is asked for once in any case.
    give_up: Option<Moment>,
    /// The store counts as unreachable if there is no answer for this long.
    patience: Duration,
    /// Once it is answered.
    place: Option<Place>,
    /// How it ended, once it has: the key is ours, or why not.
    pub(super) outcome: Option<Result<Granted, End>>,
    /// When the request was sent that is under way.
    in_flight: Option<Moment>,
    /// Whether a request has been answered, or has failed.
    asked: bool,
    /// What is under way may be answered by a server before.
    stale: bool,
    /// A claim that it was behind, and that holds no more, or is not known.
    ended: Option<Arrival>,
    /// A grant that was pushed on another epoch than that of the last answer.
    kept: Option<Box<Push>>,
    /// The connection was lost while a request was under way: its answer says
    /// nothing about the connection that came after.
    ask_again: bool,
    /// What the last answer about this claim allows us to rely on once granted.
    basis: Validity,
    renew_at: Moment,
    /// Since when it stands where it does.
    here_since: Moment,
    /// When to ask next, by whatever reason comes first.
    due: Moment,
    /// Since when the store has been asked and has not answered. A pause of the client is no silence.
    silent_since: Option<Moment>,
    backoff: Backoff,
    /// The last answer about it.
    pub(super) answered: LastAnswer,
}

/// Where it stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    arrival: Arrival,
    position: u64,
    epoch: u64,
    /// If it is granted behind another claim of the client: its token, and that claim.
    follows: Option<(Token, Arrival)>,
}

impl Waiter {
    /// A claim that has not been asked for yet.
    pub(super) fn new(ask: Command, terms: &Terms, deadlines: &Deadlines, now: Moment) -> Self {
        Self {
            ask: Arc::new(ask),
            lease_ttl: terms.ttl,
            waiter_ttl: terms.waiter_ttl,
            give_up: deadlines.give_up,
            patience: deadlines.patience(terms.operation, now),
            place: None,
            outcome: None,
            in_flight: None,
            asked: false,
            stale: false,
            ended: None,
            kept: None,
            ask_again: false,
            basis: Validity::default(),
            renew_at: now,
            here_since: now,
            due: now,
            silent_since: Some(now),
            backoff: Backoff::new(ASK_AGAIN.0, ASK_AGAIN.1, deadlines.seed),
            answered: LastAnswer::default(),
        }
    }

    /// The place in the queue, once known; an upper bound, 1 is next.
    pub(super) fn position(&self) -> Option<(Arrival, u64)> {
        self.place.map(|place| (place.arrival, place.position))
    }

    /// Whether a request is unanswered: its answer belongs to the lease's
    /// renewal if the grant came by push meanwhile.
    pub(super) fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The request to send now, if one is due. Each must be answered by
    /// [`Waiter::handle_reply`] or [`Waiter::handle_failure`].
    pub(super) fn poll_transmit(&mut self, now: Moment) -> Option<Request> {
        if self.in_flight() || now < self.due || self.outcome.is_some() {
            return None;
        }
        self.in_flight = Some(now);
        self.silent_since.get_or_insert(now);
        Some(match self.place {
            None => Request::Claim,
            Some(_) => Request::Renew(self.waiter_ttl),
        })
    }

    /// When [`Waiter::handle_timeout`] and [`Waiter::poll_transmit`] want to be
    /// called next.
    pub(super) fn poll_timeout(&self) -> Option<Moment> {
        if self.outcome.is_some() {
            return None;
        }
        let asks = (!self.in_flight()).then_some(self.due);
        let next = [asks, self.unreachable_at(), self.gives_up_at()];
        next.into_iter().flatten().min()
    }

    /// Time has passed. Tolerates early calls.
    pub(super) fn handle_timeout(&mut self, now: Moment) {
        if self.outcome.is_some() {
            return;
        }
        let late = self.gives_up_at().is_some_and(|give_up| now >= give_up);
        if late && self.position().is_some() && !self.is_silent(now) {
            self.outcome = Some(Err(End::TimedOut));
        } else if late || self.unreachable_at().is_some_and(|at| now >= at) {
            self.outcome = Some(Err(End::Unreachable));
        }
    }

    /// Whether the store has not answered the last request, although it had the time: then
    /// nobody knows whether others still have the key.
    fn is_silent(&self, now: Moment) -> bool {
        !self.backoff.is_fresh() || self.in_flight.is_some_and(|sent| now.since(sent) >= GRACE)
    }

    /// When to give up; not before the first request has come to something.
    fn gives_up_at(&self) -> Option<Moment> {
        self.give_up.filter(|_| self.asked)
    }

    /// An answer to `request`, sent at `sent`, arrived at `now`. On connection epoch zero nothing
    /// is heard: then it asks again before long.
    pub(super) fn handle_reply(
        &mut self,
        now: Moment,
        sent: Moment,
        request: Request,
        heard: &Response,
    ) {
        let at = heard.at;
        self.answered = LastAnswer { sent, at };
        self.in_flight = None;
        self.asked = true;
        self.silent_since = None;
        self.backoff.reset();
        if self.outcome.is_some() {
            return;
        }
        self.outcome = match &heard.reply {
            Reply::Standing(standing) => self.stand(now, sent, request, standing, heard),
            Reply::Busy { blocked_until } => Some(Err(End::Busy(blocked_until.since(at)))),
            Reply::Quarantined { until } => Some(Err(End::Quarantined(until.since(at)))),
            Reply::Mismatch { in_use } => Some(Err(End::Mismatch(*in_use))),
            Reply::Taken => Some(Err(End::Taken)),
            // It is gone, or another has its id; the rest answers no claim.
            _ => Some(Err(End::Gone)),
        };
        if std::mem::take(&mut self.ask_again) {
            self.due = now;
        }
        // One of before this answer is not of the place that it tells of.
        if let Some(pushed) = self.kept.take()
            && matches!(*pushed, Push::Granted { at: then, .. } if then >= at)
        {
            self.handle_granted(&pushed);
        }
        if std::mem::take(&mut self.stale)
            && let Some(place) = &mut self.place
        {
            place.follows = None;
        }
    }

    /// A request came to nothing: without an answer, whether it was carried out is unknown. The
    /// same claim asks again. A store that has answered is no longer unreachable.
    pub(super) fn handle_failure(&mut self, now: Moment, failure: Failure) {
        if failure == Failure::NotNow {
            self.silent_since = None;
        }
        self.in_flight = None;
        self.asked = true;
        self.stale = false;
        self.kept = None;
        self.due = now + self.backoff.pause();
    }

    /// The claim was granted in a step at `at`, says a push on connection epoch `epoch`
    /// that proves it. It counts only if a waiting answer for that very arrival came on
    /// the same epoch.
    ///
    /// A push can overtake the answer that makes it count, since answers are
    /// handed to their tasks and pushes are not: it is kept until then.
    pub(super) fn handle_granted(&mut self, pushed: &Push) {
        if let Some(place) = self.place.as_mut().filter(|_| self.outcome.is_none())
            && let &Push::Granted {
                epoch,
                arrival,
                token,
                behind,
                ..
            } = pushed
            && arrival == place.arrival
        {
            if epoch != place.epoch {
                self.kept = self.in_flight.map(|_| Box::new(pushed.clone()));
            } else if let Some(behind) = behind {
                place.follows = Some((token, behind));
            } else {
                self.grant(arrival, token);
            }
        }
    }

    /// Behind which claim of its client it is granted.
    pub(super) fn behind(&self) -> Option<Arrival> {
        self.place?.follows.map(|(_, behind)| behind)
    }

    /// What is known of the claim of its client right ahead.
    pub(super) fn handle_run(&mut self, now: Moment, news: RunNews) {
        match news {
            // If its grant was the later one, the run has ended at the store, and what was
            // granted in it with it.
            RunNews::Turn(ahead, before) => {
                if let Some(Place {
                    arrival,
                    follows: Some((token, behind)),
                    ..
                }) = self.place
                    && self.outcome.is_none()
                    && behind == ahead
                    && before < token
                {
                    self.grant(arrival, token);
                }
            }
            // The store may take a moment longer: it asks then, and from time to time.
            RunNews::Ended(ahead) => {
                self.ended = Some(ahead);
                self.handle_doubt(now, now);
            }
            RunNews::Unknown(ahead) => {
                self.ended = Some(ahead);
                self.due = self.due.min(now + LOOK_PAUSE);
            }
            RunNews::Known => self.ended = None,
        }
    }

    fn grant(&mut self, arrival: Arrival, token: Token) {
        self.outcome = Some(Ok(Granted {
            arrival,
            token,
            validity: self.basis,
            confirm_at: Some(self.renew_at),
        }));
    }

    /// The claim is next in line, says a push: what blocks it can lapse after `left`.
    pub(super) fn handle_next(&mut self, now: Moment, arrival: Arrival, left: Duration) {
        if let Some(place) = &mut self.place
            && place.arrival == arrival
        {
            place.position = 1;
            // Never later than what is due already: that may be due to a reset.
            self.due = self.due.min(now + left);
        }
    }

    /// The semaphore has shrunk below what this claim takes, says a push.
    pub(super) fn handle_unfit(&mut self, arrival: Arrival, in_use: Capacity) {
        if self.position().is_some_and(|(known, _)| known == arrival) {
            self.outcome = Some(Err(End::Mismatch(in_use)));
        }
    }

    /// A push at `now` says what it does not prove: ask where it stands, at `at`.
    pub(super) fn handle_doubt(&mut self, now: Moment, at: Moment) {
        // What is under way may be older than what was pushed.
        self.ask_again |= self.in_flight() && at <= now;
        self.due = self.due.min(at);
    }

    /// Pushes may have been missed, so ask at once.
    pub(super) fn handle_reset(&mut self, now: Moment) {
        self.ask_again = self.in_flight();
        self.due = now;
    }

    /// The store may be another one, which knows nothing of its run. Nor does a push of the lost
    /// connection count any more.
    pub(super) fn leave_run(&mut self) {
        self.stale = self.in_flight();
        if let Some(place) = &mut self.place {
            (place.follows, place.epoch) = (None, 0);
        }
    }

    fn unreachable_at(&self) -> Option<Moment> {
        // Until about then the claim has its place, and the store may come back.
        let kept = self.place.map_or(Duration::ZERO, |_| self.waiter_ttl);
        Some(self.silent_since? + self.patience.max(kept))
    }

    fn ask_pause(&self, now: Moment, position: u64) -> Duration {
        let (shortest, longest) = ASK_PAUSE;
        let first = (now.since(self.here_since) / ASK_SHARE).clamp(shortest, longest);
        first.saturating_mul(u32::try_from(position).unwrap_or(u32::MAX))
    }

    /// Notes where it stands. If it holds, that is its grant.
    fn stand(
        &mut self,
        now: Moment,
        sent: Moment,
        request: Request,
        standing: &Standing,
        heard: &Response,
    ) -> Option<Result<Granted, End>> {
        let (at, epoch) = (heard.at, heard.epoch);
        let arrival = standing.arrival;
        if let Some(token) = standing.token.filter(|_| standing.holds()) {
            let (ttl, confirm_at) = match request {
                Request::Claim => (self.lease_ttl, None),
                Request::Renew(ttl) => (ttl, Some(sent + ttl / RENEW_WAITING_AT)),
            };
            let mut validity = Validity::default();
            validity.confirm(sent, ttl);
            return Some(Ok(Granted {
                arrival,
                token,
                validity,
                confirm_at,
            }));
        }
        if self.position().is_some_and(|(known, _)| known != arrival) {
            self.basis = Validity::default();
        }
        self.basis.confirm(sent, self.waiter_ttl);
        self.renew_at = sent + self.waiter_ttl / RENEW_WAITING_AT;
        // One in a run is told by its client.
        let look = || now + look_after(standing, at);
        let follows = standing.token.zip(standing.behind);
        self.due = match follows {
            None => self.renew_at.min(look()),
            Some(_) => self.renew_at,
        };
        if self.position() != Some((arrival, standing.position)) {
            self.here_since = now;
        }
        let pause = |position| now + self.ask_pause(now, position);
        // Nobody will tell us.
        if follows.is_none() && epoch == 0 {
            self.due = self.due.min(pause(standing.position));
        } else if follows.is_some() && standing.behind == self.ended {
            self.due = self.due.min(pause(1));
        }
        self.place = Some(Place {
            arrival,
            position: standing.position,
            epoch,
            follows,
        });
        None
    }
}

/// How long after an answer of the store's time `at` a claim that waits looks again: when what
/// blocks it can expire, those behind it later.
fn look_after(standing: &Standing, at: StoreTime) -> Duration {
    let ahead = u32::try_from(standing.position.saturating_sub(1)).unwrap_or(u32::MAX);
    let stagger = STAGGER.saturating_mul(ahead).min(STAGGER_AT_MOST);
    let left = standing.blocked_until.map(|until| until.since(at));
    (left.unwrap_or_default() + stagger).max(LOOK_PAUSE)
}
