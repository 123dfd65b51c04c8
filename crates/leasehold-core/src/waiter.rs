use std::time::Duration;

use crate::{Arrival, Backoff, Capacity, Moment, Reply, Standing, StoreTime, Token, Validity};

/// After the time at which the one ahead can lapse, each place in the queue
/// waits this much longer before it looks: the next in line asks, the others
/// only if it does not.
const STAGGER: Duration = Duration::from_millis(50);

/// The shortest pause between two looks of one waiter.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// How a claim is brought to its grant.
#[derive(Debug, Clone, Copy)]
pub struct WaiterConfig {
    /// The TTL of a grant.
    pub lease_ttl: Duration,
    /// The TTL while waiting; renewed at a third.
    pub waiter_ttl: Duration,
    /// Give up then, and withdraw.
    pub give_up: Option<Moment>,
    /// Without any answer for this long, the store counts as out of reach.
    pub patience: Duration,
    /// Where random pauses come from.
    pub seed: u64,
}

/// What is to be sent for a claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Ask for the key, with both TTLs.
    Claim,
    /// Raise the deadline by this much.
    Renew(Duration),
}

/// How waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The key is ours.
    Granted {
        /// The place in the order of arrival.
        arrival: Arrival,
        /// The fencing token.
        token: Token,
        /// Until when to rely on it.
        validity: Validity,
        /// When the first renewal is due if the grant still lives on the waiter
        /// TTL; `None` when it has the lease TTL.
        confirm_at: Option<Moment>,
    },
    /// Somebody else has it, and the claim did not want to wait.
    Busy,
    /// The time to wait is over; the claim is to be withdrawn.
    TimedOut,
    /// No answer for too long; the claim is to be withdrawn.
    Unreachable,
    /// The claim has lapsed or was removed: a new one, with a new id, may start
    /// at the tail.
    Gone,
    /// The key is in use with another capacity.
    Mismatch(Capacity),
}

/// One claim on its way to a grant: asks, keeps its place, looks when the one
/// ahead can lapse, and knows which pushes to believe.
#[derive(Debug, Clone)]
pub struct Waiter {
    config: WaiterConfig,
    phase: Phase,
    in_flight: bool,
    /// A grant that was pushed on another epoch than that of the last answer.
    kept: Option<(u64, Arrival, Token)>,
    /// The connection was lost while a request was under way: its answer says
    /// nothing about the connection that came after.
    ask_again: bool,
    /// What the last answer about this claim allows us to believe once granted.
    basis: Validity,
    renew_at: Moment,
    /// When to ask next, by whatever reason comes first.
    due: Moment,
    last_heard: Moment,
    backoff: Backoff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Asking,
    Waiting {
        arrival: Arrival,
        position: u64,
        epoch: u64,
    },
    Over(Verdict),
}

impl Waiter {
    /// A claim that has not been asked for yet.
    #[must_use]
    pub fn new(config: WaiterConfig, now: Moment) -> Self {
        let backoff = Backoff::new(
            Duration::from_millis(20),
            Duration::from_secs(1),
            config.seed,
        );
        Self {
            config,
            phase: Phase::Asking,
            in_flight: false,
            kept: None,
            ask_again: false,
            basis: Validity::default(),
            renew_at: now,
            due: now,
            last_heard: now,
            backoff,
        }
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self.phase {
            Phase::Over(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// The place in the queue, once known; an upper bound, 1 is next.
    #[must_use]
    pub fn position(&self) -> Option<(Arrival, u64)> {
        match self.phase {
            Phase::Waiting {
                arrival, position, ..
            } => Some((arrival, position)),
            _ => None,
        }
    }

    /// Whether a request is unanswered: its answer belongs to the lease's
    /// [`crate::Renewal`] if the grant came by push meanwhile.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The request to send now, if one is due. Each must be answered by
    /// [`Waiter::handle_reply`] or [`Waiter::handle_unanswered`].
    pub fn poll_transmit(&mut self, now: Moment) -> Option<Request> {
        if self.in_flight || now < self.due || self.verdict().is_some() {
            return None;
        }
        self.in_flight = true;
        Some(match self.phase {
            Phase::Asking | Phase::Over(_) => Request::Claim,
            Phase::Waiting { .. } => Request::Renew(self.config.waiter_ttl),
        })
    }

    /// When [`Waiter::handle_timeout`] and [`Waiter::poll_transmit`] want to be
    /// called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        if self.verdict().is_some() {
            return None;
        }
        let mut next = self.unreachable_at();
        if !self.in_flight {
            next = next.min(self.due);
        }
        Some(
            self.config
                .give_up
                .map_or(next, |give_up| next.min(give_up)),
        )
    }

    /// Time has passed. Tolerates early calls.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.verdict().is_some() {
            return;
        }
        if self.config.give_up.is_some_and(|give_up| now >= give_up) {
            self.phase = Phase::Over(Verdict::TimedOut);
        } else if now >= self.unreachable_at() {
            self.phase = Phase::Over(Verdict::Unreachable);
        }
    }

    /// An answer to `request`, sent at `sent`, arrived at `now` on connection
    /// epoch `epoch`; the store took the step at `at`.
    pub fn handle_reply(
        &mut self,
        now: Moment,
        sent: Moment,
        epoch: u64,
        request: Request,
        reply: &Reply,
        at: StoreTime,
    ) {
        self.in_flight = false;
        self.last_heard = now;
        self.backoff.reset();
        if self.verdict().is_some() {
            return;
        }
        match reply {
            Reply::Standing(standing) => self.stand(now, sent, epoch, request, standing, at),
            Reply::Busy { .. } => self.phase = Phase::Over(Verdict::Busy),
            Reply::Mismatch { in_use } => self.phase = Phase::Over(Verdict::Mismatch(*in_use)),
            Reply::Gone
            | Reply::Absent
            | Reply::Released { .. }
            | Reply::Broken { .. }
            | Reply::Done => self.phase = Phase::Over(Verdict::Gone),
        }
        if std::mem::take(&mut self.ask_again) {
            self.due = now;
        }
        if let Some((epoch, arrival, token)) = self.kept.take() {
            self.handle_granted(epoch, arrival, token);
        }
    }

    /// A request got no answer: whether it was carried out is unknown. The same
    /// claim asks again.
    pub fn handle_unanswered(&mut self, now: Moment) {
        self.in_flight = false;
        self.kept = None;
        self.due = now + self.backoff.pause();
    }

    /// The claim was granted, says a push on connection epoch `epoch`. It counts
    /// only if a waiting answer for that very arrival came on the same epoch.
    ///
    /// A push can overtake the answer that makes it count, since answers are
    /// handed to their tasks and pushes are not: it is kept until then.
    pub fn handle_granted(&mut self, epoch: u64, arrival: Arrival, token: Token) {
        let Phase::Waiting {
            arrival: known,
            epoch: answered,
            ..
        } = self.phase
        else {
            return;
        };
        if known != arrival {
            return;
        }
        if epoch == answered {
            self.believe(arrival, token);
        } else if self.in_flight {
            self.kept = Some((epoch, arrival, token));
        }
    }

    fn believe(&mut self, arrival: Arrival, token: Token) {
        self.phase = Phase::Over(Verdict::Granted {
            arrival,
            token,
            validity: self.basis,
            confirm_at: Some(self.renew_at),
        });
    }

    /// The claim is next in line, says a push: what blocks it can lapse after `left`.
    pub fn handle_next(&mut self, now: Moment, arrival: Arrival, left: Duration) {
        if let Phase::Waiting {
            arrival: a,
            position,
            ..
        } = &mut self.phase
            && *a == arrival
        {
            *position = 1;
            // Never later than what is due already: that may be due to a reset.
            self.due = self.due.min(now + left);
        }
    }

    /// The connection was lost: pushes may have been missed, so ask at once.
    pub fn handle_reset(&mut self, now: Moment) {
        self.ask_again = self.in_flight;
        self.due = now;
    }

    fn unreachable_at(&self) -> Moment {
        let patience = match self.phase {
            // Before that the claim still has its place, and the store may come back.
            Phase::Waiting { .. } => self.config.patience.max(self.config.waiter_ttl),
            Phase::Asking | Phase::Over(_) => self.config.patience,
        };
        self.last_heard + patience
    }

    fn stand(
        &mut self,
        now: Moment,
        sent: Moment,
        epoch: u64,
        request: Request,
        standing: &Standing,
        at: StoreTime,
    ) {
        let arrival = standing.arrival;
        if let Some(token) = standing.token {
            let (ttl, confirm_at) = match request {
                Request::Claim => (self.config.lease_ttl, None),
                Request::Renew(ttl) => (ttl, Some(sent + ttl / 3)),
            };
            let mut validity = Validity::default();
            validity.confirm(sent, ttl);
            self.phase = Phase::Over(Verdict::Granted {
                arrival,
                token,
                validity,
                confirm_at,
            });
            return;
        }
        if self.position().is_some_and(|(known, _)| known != arrival) {
            self.basis = Validity::default();
        }
        self.basis.confirm(sent, self.config.waiter_ttl);
        self.renew_at = sent + self.config.waiter_ttl / 3;
        let stagger = STAGGER
            .saturating_mul(u32::try_from(standing.position.saturating_sub(1)).unwrap_or(u32::MAX));
        let left = standing
            .blocked_until
            .map_or(Duration::ZERO, |until| until.since(at));
        let look_at = now + (left + stagger).max(LOOK_PAUSE);
        self.due = self.renew_at.min(look_at);
        self.phase = Phase::Waiting {
            arrival,
            position: standing.position,
            epoch,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift_allowance;

    const LEASE: Duration = Duration::from_secs(30);
    const WAITER: Duration = Duration::from_secs(9);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Moment {
        Moment(1_000_000_000) + ms(millis)
    }

    fn waiter(give_up: Option<Moment>) -> Waiter {
        let config = WaiterConfig {
            lease_ttl: LEASE,
            waiter_ttl: WAITER,
            give_up,
            patience: ms(2_000),
            seed: 1,
        };
        Waiter::new(config, at(0))
    }

    fn standing(position: u64, left: u64) -> Reply {
        Reply::Standing(Standing {
            arrival: Arrival(7),
            token: (position == 0).then_some(Token(70)),
            position,
            deadline: StoreTime(0),
            blocked_until: (position > 0).then(|| STORE + ms(left)),
        })
    }

    const STORE: StoreTime = StoreTime(5_000_000);

    /// Waits at this place, by an answer that came at 10 on epoch 3.
    fn waiting(position: u64, left: u64, give_up: Option<Moment>) -> Waiter {
        let mut waiter = waiter(give_up);
        assert_eq!(waiter.poll_transmit(at(0)), Some(Request::Claim));
        let reply = standing(position, left);
        waiter.handle_reply(at(10), at(0), 3, Request::Claim, &reply, STORE);
        waiter
    }

    #[test]
    fn the_next_in_line_looks_first_and_the_others_one_after_another() {
        let look = |position, left| waiting(position, left, None).poll_timeout();
        assert_eq!(look(1, 500), Some(at(510)));
        assert_eq!(look(2, 500), Some(at(560)));
        assert_eq!(look(5, 500), Some(at(710)));
        assert_eq!(look(1, 0), Some(at(20)), "never at once again");
        let third = Some(at(3_000));
        assert_eq!(look(1, 60_000), third, "it keeps its place");
        assert_eq!(look(u64::MAX, 0), third, "no overflow");
    }

    #[test]
    fn a_push_that_overtakes_its_answer_is_kept() {
        let renew = Request::Renew(WAITER);
        let overtaken = |answer_epoch| {
            let mut waiter = waiting(1, 60_000, None);
            waiter.handle_reset(at(20));
            assert_eq!(waiter.poll_transmit(at(20)), Some(renew));
            waiter.handle_granted(4, Arrival(7), Token(70));
            assert_eq!(waiter.verdict(), None, "no answer on its epoch yet");
            waiter.handle_reply(
                at(30),
                at(20),
                answer_epoch,
                renew,
                &standing(1, 60_000),
                STORE,
            );
            waiter.verdict().is_some()
        };
        assert!(overtaken(4));
        assert!(!overtaken(3), "another epoch");
    }

    #[test]
    fn a_reset_asks_again_after_the_answer_under_way() {
        let mut waiter = waiting(1, 100, None);
        let renew = Request::Renew(WAITER);
        assert_eq!(waiter.poll_transmit(at(110)), Some(renew));
        waiter.handle_reset(at(120));
        waiter.handle_reply(at(130), at(110), 3, renew, &standing(1, 60_000), STORE);
        assert_eq!(waiter.poll_transmit(at(130)), Some(renew));
    }

    #[test]
    fn a_hint_does_not_put_off_what_is_due() {
        let mut waiter = waiting(1, 60_000, None);
        waiter.handle_reset(at(20));
        waiter.handle_next(at(20), Arrival(7), ms(500));
        assert_eq!(waiter.poll_transmit(at(20)), Some(Request::Renew(WAITER)));
    }

    #[test]
    fn a_grant_counts_from_the_sending() {
        let mut waiter = waiting(1, 100, None);
        assert_eq!(waiter.poll_transmit(at(110)), Some(Request::Renew(WAITER)));
        assert!(waiter.in_flight());
        assert_eq!(waiter.poll_transmit(at(110)), None, "one at a time");
        let renew = Request::Renew(WAITER);
        waiter.handle_reply(at(900), at(110), 3, renew, &standing(0, 0), STORE);
        let Some(Verdict::Granted {
            validity,
            confirm_at,
            token,
            ..
        }) = waiter.verdict()
        else {
            panic!("{:?}", waiter.verdict());
        };
        assert_eq!(token, Token(70));
        assert_eq!(
            validity.until(),
            at(110) + WAITER.saturating_sub(drift_allowance(WAITER))
        );
        assert_eq!(confirm_at, Some(at(3_110)));
        assert_eq!(waiter.poll_timeout(), None);
    }

    #[test]
    fn a_push_counts_for_its_epoch_and_arrival_only() {
        let mut waiter = waiter(None);
        waiter.handle_granted(3, Arrival(7), Token(70));
        assert_eq!(waiter.verdict(), None, "before the first answer");
        for (epoch, arrival) in [(2, 7), (4, 7), (3, 6), (3, 8)] {
            let mut waiter = waiting(1, 100, None);
            waiter.handle_granted(epoch, Arrival(arrival), Token(70));
            assert_eq!(waiter.verdict(), None, "{epoch} {arrival}");
        }
        let mut waiter = waiting(1, 100, None);
        waiter.handle_granted(3, Arrival(7), Token(70));
        let Some(Verdict::Granted {
            validity,
            confirm_at,
            ..
        }) = waiter.verdict()
        else {
            panic!("{:?}", waiter.verdict());
        };
        assert_eq!(
            validity.until(),
            at(0) + WAITER.saturating_sub(drift_allowance(WAITER))
        );
        assert_eq!(confirm_at, Some(at(3_000)));
    }

    #[test]
    fn the_epoch_of_the_last_answer_counts() {
        let mut waiter = waiting(1, 1_000, None);
        waiter.handle_reset(at(50));
        waiter.handle_granted(4, Arrival(7), Token(70));
        assert_eq!(waiter.verdict(), None, "not before an answer on it");
        assert!(waiter.poll_transmit(at(50)).is_some(), "asks at once");
        let renew = Request::Renew(WAITER);
        waiter.handle_reply(at(60), at(50), 4, renew, &standing(1, 900), STORE);
        waiter.handle_granted(3, Arrival(7), Token(70));
        assert_eq!(waiter.verdict(), None, "the old one is over");
        waiter.handle_granted(4, Arrival(7), Token(70));
        assert!(matches!(waiter.verdict(), Some(Verdict::Granted { .. })));
    }

    #[test]
    fn what_an_older_claim_of_the_id_allowed_is_forgotten() {
        let mut waiter = waiting(1, 9_000, None);
        assert!(waiter.poll_transmit(at(3_000)).is_some());
        let Reply::Standing(mut standing) = standing(2, 9_000) else {
            unreachable!();
        };
        standing.arrival = Arrival(9);
        let (renew, reply) = (Request::Renew(WAITER), Reply::Standing(standing));
        waiter.handle_reply(at(3_010), at(3_000), 3, renew, &reply, STORE);
        assert_eq!(waiter.position(), Some((Arrival(9), 2)));
        waiter.handle_granted(3, Arrival(7), Token(70));
        assert_eq!(waiter.verdict(), None);
    }

    #[test]
    fn a_hint_brings_the_look_forward_for_its_arrival() {
        let mut waiter = waiting(4, 2_000, None);
        waiter.handle_next(at(20), Arrival(6), ms(100));
        assert_eq!(waiter.poll_timeout(), Some(at(2_160)));
        waiter.handle_next(at(20), Arrival(7), ms(100));
        assert_eq!(waiter.poll_timeout(), Some(at(120)));
        assert_eq!(waiter.position(), Some((Arrival(7), 1)));
    }

    #[test]
    fn gives_up_on_time_whatever_is_under_way() {
        let mut waiter = waiting(1, 9_000, Some(at(700)));
        assert_eq!(waiter.poll_timeout(), Some(at(700)));
        waiter.handle_timeout(at(699));
        assert_eq!(waiter.verdict(), None, "an early call is nothing");
        waiter.handle_timeout(at(700));
        assert_eq!(waiter.verdict(), Some(Verdict::TimedOut));
        assert_eq!(waiter.poll_transmit(at(9_999)), None);
        let renew = Request::Renew(WAITER);
        waiter.handle_reply(at(701), at(690), 3, renew, &standing(0, 0), STORE);
        assert_eq!(waiter.verdict(), Some(Verdict::TimedOut), "it is withdrawn");
    }

    #[test]
    fn is_patient_while_it_has_a_place() {
        let mut asking = waiter(None);
        assert!(asking.poll_transmit(at(0)).is_some());
        assert_eq!(asking.poll_timeout(), Some(at(2_000)));
        asking.handle_timeout(at(2_000));
        assert_eq!(asking.verdict(), Some(Verdict::Unreachable));

        let mut waiter = waiting(1, 9_000, None);
        assert!(waiter.poll_transmit(at(3_000)).is_some());
        let end = at(10) + WAITER;
        assert_eq!(
            waiter.poll_timeout(),
            Some(end),
            "nothing else under way matters"
        );
        waiter.handle_timeout(end);
        assert_eq!(waiter.verdict(), Some(Verdict::Unreachable));
    }

    #[test]
    fn asks_again_with_growing_pauses() {
        let mut waiter = waiting(1, 0, None);
        let mut tries = 0;
        while waiter.verdict().is_none() && tries < 1_000 {
            let now = waiter.poll_timeout().unwrap();
            waiter.handle_timeout(now);
            if waiter.poll_transmit(now).is_some() {
                tries += 1;
                waiter.handle_unanswered(now);
            }
        }
        assert!((8..25).contains(&tries), "{tries} in {WAITER:?}");
    }

    #[test]
    fn definite_answers_end_it() {
        let busy = Reply::Busy {
            blocked_until: STORE,
        };
        let other = Reply::Mismatch {
            in_use: Capacity::Permits(3),
        };
        for (reply, verdict) in [
            (busy, Verdict::Busy),
            (other, Verdict::Mismatch(Capacity::Permits(3))),
            (Reply::Gone, Verdict::Gone),
            (Reply::Absent, Verdict::Gone),
        ] {
            let mut waiter = waiter(None);
            assert!(waiter.poll_transmit(at(0)).is_some());
            waiter.handle_reply(at(5), at(0), 1, Request::Claim, &reply, STORE);
            assert_eq!(waiter.verdict(), Some(verdict));
            assert_eq!(waiter.poll_timeout(), None);
        }
    }
}
