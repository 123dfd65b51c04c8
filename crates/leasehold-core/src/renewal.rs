use std::time::Duration;

use crate::{Arrival, Backoff, Moment, Reply, Request, Validity};

/// Renewals fall on a grid of this many points per interval, so that those of
/// many leases travel together.
const GRID: u64 = 64;

/// Who renews a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RenewalPolicy {
    /// The watchdog, when this share of the TTL is over (between 0 and 1).
    Automatic(f64),
    /// The caller.
    Manual,
    /// Nobody: the lease ends after its TTL.
    Fixed,
}

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The store says that the claim has gone: another may hold the key.
    Gone,
    /// No renewal was answered while the lease was valid.
    Unanswered,
    /// The lease was not to be renewed, and its time is over.
    Expired,
    /// An administrator took the key.
    Revoked,
    /// Another client has adopted the claim, or its id was replaced elsewhere.
    Superseded,
    /// It was held for as long as it may be at most.
    MaxHold,
    /// It was given to another process.
    HandedOver,
    /// The client was shut down and gave the lease back.
    Shutdown,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gone => "the store has no such claim any more",
            Self::Unanswered => "no renewal was answered in time",
            Self::Expired => "its time is over and it is not renewed by itself",
            Self::Revoked => "an administrator broke the lock",
            Self::Superseded => "another process has taken over the claim",
            Self::MaxHold => "it was held for the longest time allowed",
            Self::HandedOver => "it was handed over to another process",
            Self::Shutdown => "the client was shut down",
        })
    }
}

/// What is known about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standpoint {
    /// The last renewal was answered.
    Held,
    /// The last renewal was not answered; still valid.
    Unknown,
    /// Not ours any more, or not to be relied on.
    Lost(Loss),
}

/// One lease being kept: knows when to renew, what an answer means, and when
/// it is lost.
#[derive(Debug, Clone)]
pub struct Renewal {
    ttl: Duration,
    policy: RenewalPolicy,
    granted: Moment,
    /// When the longest hold allowed is over.
    hold_until: Option<Moment>,
    arrival: Option<Arrival>,
    validity: Validity,
    in_flight: bool,
    due: Option<Moment>,
    standpoint: Standpoint,
    backoff: Backoff,
}

impl Renewal {
    /// A lease granted at `now`. `confirm_at` is set when it still lives on the
    /// waiter TTL and needs a first renewal then, whatever the policy;
    /// `in_flight` when a request of its waiting time is still unanswered.
    #[must_use]
    pub fn new(
        now: Moment,
        ttl: Duration,
        policy: RenewalPolicy,
        validity: Validity,
        confirm_at: Option<Moment>,
        in_flight: bool,
        seed: u64,
    ) -> Self {
        let mut renewal = Self {
            ttl,
            policy,
            granted: now,
            hold_until: None,
            arrival: None,
            validity,
            in_flight,
            due: confirm_at,
            standpoint: Standpoint::Held,
            backoff: Backoff::new(Duration::from_millis(20), ttl / 10, seed),
        };
        if confirm_at.is_none() {
            // Counted as validity is: the answer may have been long under way.
            renewal.due = renewal.next_due(validity.counted_from(ttl).min(now));
        }
        renewal
    }

    /// The same lease, known by the arrival number of its grant. An answer that
    /// names another is about another claim of the same id, which a request that
    /// was long under way has made since: this lease is lost then. Without this,
    /// the first answer says which number it is.
    #[must_use]
    pub fn of(mut self, arrival: Arrival) -> Self {
        self.arrival = Some(arrival);
        self
    }

    /// The same lease, which no renewal prolongs beyond `max_hold` from its grant.
    #[must_use]
    pub fn at_most(mut self, max_hold: Option<Duration>) -> Self {
        self.hold_until = max_hold.map(|max_hold| self.granted + max_hold);
        self
    }

    /// How much of `ttl` a renewal sent now may ask for.
    #[must_use]
    pub fn allowed(&self, now: Moment, ttl: Duration) -> Duration {
        self.hold_until.map_or(ttl, |end| ttl.min(end.since(now)))
    }

    /// Until when to rely on the lease.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// What is known.
    #[must_use]
    pub fn standpoint(&self) -> Standpoint {
        self.standpoint
    }

    /// The request to send now, if one is due. Each must be answered by
    /// [`Renewal::handle_reply`] or [`Renewal::handle_unanswered`].
    pub fn poll_transmit(&mut self, now: Moment) -> Option<Request> {
        let due = self.due.is_some_and(|due| now >= due);
        if !due || self.in_flight || self.is_lost() {
            return None;
        }
        let ttl = self.ttl_at(now);
        if ttl.is_zero() {
            // Nothing more may be asked for.
            self.due = None;
            return None;
        }
        self.in_flight = true;
        Some(Request::Renew(ttl))
    }

    /// When [`Renewal::handle_timeout`] and [`Renewal::poll_transmit`] want to
    /// be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        if self.is_lost() {
            return None;
        }
        let end = self.validity.until();
        Some(
            self.due
                .filter(|_| !self.in_flight)
                .map_or(end, |due| due.min(end)),
        )
    }

    /// Time has passed. Tolerates early calls.
    pub fn handle_timeout(&mut self, now: Moment) {
        if now >= self.validity.until() && !self.is_lost() {
            let automatic = matches!(self.policy, RenewalPolicy::Automatic(_));
            // Validity ends earlier than the hold by the drift allowance, which
            // depends on the last renewal: one that was all it could ask for.
            let exhausted = self.hold_until.is_some() && self.due.is_none() && automatic;
            self.lose(if exhausted {
                Loss::MaxHold
            } else if automatic {
                Loss::Unanswered
            } else {
                Loss::Expired
            });
        }
    }

    /// An answer to a renewal by `ttl`, sent at `sent`, arrived at `now`.
    pub fn handle_reply(&mut self, now: Moment, sent: Moment, ttl: Duration, reply: &Reply) {
        self.in_flight = false;
        self.backoff.reset();
        if self.is_lost() {
            return;
        }
        match reply {
            // A waiting answer is older than our grant: it was under way.
            Reply::Standing(standing)
                if *self.arrival.get_or_insert(standing.arrival) == standing.arrival =>
            {
                let long = ttl >= self.ttl_at(sent);
                self.validity.confirm(sent, ttl);
                self.standpoint = Standpoint::Held;
                if long {
                    self.due = self.next_due(sent);
                }
            }
            Reply::Superseded => self.lose(Loss::Superseded),
            _ => self.lose(Loss::Gone),
        }
        self.handle_timeout(now);
    }

    /// A renewal got no answer: the lease is unknown, and asked for again until
    /// its validity ends.
    pub fn handle_unanswered(&mut self, now: Moment) {
        self.in_flight = false;
        if !self.is_lost() {
            self.standpoint = Standpoint::Unknown;
            self.due = Some(now + self.backoff.pause());
        }
    }

    /// An administrator took the key, says a push.
    pub fn handle_revoked(&mut self) {
        self.lose(Loss::Revoked);
    }

    /// Another client has adopted the claim, says a push.
    pub fn handle_adopted(&mut self) {
        self.lose(Loss::Superseded);
    }

    /// The connection was lost and is back: see at once whether the lease stands,
    /// unless asking would prolong what its caller did not ask to be prolonged.
    pub fn handle_reset(&mut self, now: Moment) {
        if matches!(self.policy, RenewalPolicy::Automatic(_)) {
            self.due = Some(now);
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.standpoint, Standpoint::Lost(_))
    }

    fn lose(&mut self, loss: Loss) {
        if !self.is_lost() {
            self.standpoint = Standpoint::Lost(loss);
            self.validity.end();
        }
    }

    /// How long a renewal sent now asks for by itself: a fixed lease ends at its
    /// time, also if something else about it is changed.
    #[must_use]
    pub fn ttl_at(&self, now: Moment) -> Duration {
        let ttl = match self.policy {
            RenewalPolicy::Fixed => self.ttl.saturating_sub(now.since(self.granted)),
            RenewalPolicy::Automatic(_) | RenewalPolicy::Manual => self.ttl,
        };
        self.allowed(now, ttl)
    }

    fn next_due(&self, sent: Moment) -> Option<Moment> {
        let RenewalPolicy::Automatic(share) = self.policy else {
            return None;
        };
        if self.hold_until.is_some_and(|end| sent + self.ttl >= end) {
            // The last renewal has asked for all that is left.
            return None;
        }
        let share = if share.is_nan() { 1.0 / 3.0 } else { share };
        let interval = self.ttl.mul_f64(share.clamp(0.01, 0.9));
        let due = sent + interval;
        let grid = (crate::time::micros(interval) / GRID).max(1);
        Some(Moment(due.0 - due.0 % grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Standing, StoreTime, Token};

    const TTL: Duration = Duration::from_secs(30);
    const WAITER: Duration = Duration::from_secs(9);
    const THIRD: RenewalPolicy = RenewalPolicy::Automatic(1.0 / 3.0);

    fn at(seconds: u64) -> Moment {
        Moment(1_000_000_000 + seconds * 1_000_000)
    }

    fn valid(sent: Moment, ttl: Duration) -> Validity {
        let mut validity = Validity::default();
        validity.confirm(sent, ttl);
        validity
    }

    fn standing(arrival: u64, token: Option<u64>) -> Reply {
        Reply::Standing(Standing {
            arrival: Arrival(arrival),
            token: token.map(Token),
            position: u64::from(token.is_none()),
            deadline: StoreTime(0),
            blocked_until: token.is_none().then_some(StoreTime(0)),
        })
    }

    /// Granted at once at second 0.
    fn direct(policy: RenewalPolicy) -> Renewal {
        Renewal::new(at(0), TTL, policy, valid(at(0), TTL), None, false, 1).of(Arrival(7))
    }

    /// Granted by a push at second 2; the last answered request went out at 0.
    fn pushed(policy: RenewalPolicy, in_flight: bool) -> Renewal {
        let (validity, confirm) = (valid(at(0), WAITER), Some(at(3)));
        Renewal::new(at(2), TTL, policy, validity, confirm, in_flight, 1).of(Arrival(7))
    }

    #[test]
    fn a_grant_that_was_long_under_way_is_renewed_by_the_time_it_was_asked_for() {
        let answered = |now| Renewal::new(now, TTL, THIRD, valid(at(0), TTL), None, false, 1);
        let due = answered(at(5)).poll_timeout().unwrap();
        assert!(due <= at(10) && due > at(9), "{due:?}");
        let mut late = answered(at(25));
        assert_eq!(late.poll_transmit(at(25)), Some(Request::Renew(TTL)));
    }

    #[test]
    fn renews_at_its_share_and_counts_from_the_sending() {
        let mut renewal = direct(THIRD);
        let due = renewal.poll_timeout().unwrap();
        assert!(
            due <= at(10) && due > at(9),
            "on the grid, not late: {due:?}"
        );
        assert_eq!(renewal.poll_transmit(at(9)), None);
        assert_eq!(renewal.poll_transmit(at(10)), Some(Request::Renew(TTL)));
        assert_eq!(renewal.poll_transmit(at(10)), None, "one at a time");
        renewal.handle_reply(at(12), at(10), TTL, &standing(7, Some(7)));
        assert_eq!(renewal.validity(), valid(at(10), TTL));
        assert!(renewal.poll_timeout().unwrap() <= at(20));
    }

    #[test]
    fn a_manual_or_fixed_lease_is_not_prolonged_by_a_reset() {
        for policy in [RenewalPolicy::Manual, RenewalPolicy::Fixed] {
            let mut renewal = direct(policy);
            renewal.handle_reset(at(5));
            assert_eq!(renewal.poll_transmit(at(5)), None, "{policy:?}");
            let end = renewal.validity().until();
            assert_eq!(renewal.poll_timeout(), Some(end));
            renewal.handle_timeout(end);
            assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::Expired));
        }
        let mut renewal = direct(THIRD);
        renewal.handle_reset(at(5));
        assert_eq!(renewal.poll_transmit(at(5)), Some(Request::Renew(TTL)));
    }

    #[test]
    fn an_answer_about_another_claim_of_the_id_is_a_loss() {
        for reply in [standing(8, None), standing(8, Some(9))] {
            let mut renewal = direct(THIRD);
            assert!(renewal.poll_transmit(at(10)).is_some());
            renewal.handle_reply(at(11), at(10), TTL, &reply);
            assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::Gone));
            assert_eq!(renewal.validity(), Validity::default());
        }
        let mut unnamed = Renewal::new(at(0), TTL, THIRD, valid(at(0), TTL), None, false, 1);
        for (arrival, kept) in [(7, true), (7, true), (8, false)] {
            unnamed.handle_reply(at(1), at(1), TTL, &standing(arrival, Some(7)));
            assert_eq!(unnamed.standpoint() == Standpoint::Held, kept);
        }
    }

    #[test]
    fn a_pushed_grant_gets_the_lease_ttl_whatever_the_policy() {
        for policy in [THIRD, RenewalPolicy::Manual] {
            let mut renewal = pushed(policy, false);
            assert_eq!(renewal.poll_timeout(), Some(at(3)));
            assert_eq!(renewal.poll_transmit(at(3)), Some(Request::Renew(TTL)));
            renewal.handle_reply(at(4), at(3), TTL, &standing(7, Some(7)));
            assert_eq!(renewal.validity(), valid(at(3), TTL));
        }
        let mut fixed = pushed(RenewalPolicy::Fixed, false);
        let rest = TTL - Duration::from_secs(1);
        assert_eq!(fixed.poll_transmit(at(3)), Some(Request::Renew(rest)));
        fixed.handle_reply(at(4), at(3), rest, &standing(7, Some(7)));
        assert_eq!(fixed.poll_transmit(at(31)), None);
        assert!(fixed.validity().until() <= at(32), "from the grant on");
    }

    #[test]
    fn a_waiting_answer_after_the_push_confirms_what_it_may_and_no_more() {
        let mut renewal = pushed(THIRD, true);
        assert_eq!(
            renewal.poll_transmit(at(4)),
            None,
            "the waiter's is under way"
        );
        renewal.handle_reply(at(4), at(1), WAITER, &standing(7, None));
        assert_eq!(renewal.standpoint(), Standpoint::Held);
        assert_eq!(renewal.validity(), valid(at(1), WAITER));
        assert_eq!(renewal.poll_transmit(at(4)), Some(Request::Renew(TTL)));
    }

    #[test]
    fn without_answers_it_is_unknown_then_lost() {
        let mut renewal = direct(THIRD);
        let (mut now, mut tries) = (at(10), 0);
        for _ in 0..1_000 {
            if renewal.standpoint() == Standpoint::Lost(Loss::Unanswered) {
                break;
            }
            if renewal.poll_transmit(now).is_some() {
                tries += 1;
                renewal.handle_unanswered(now);
                assert_eq!(renewal.standpoint(), Standpoint::Unknown);
            }
            now = renewal.poll_timeout().unwrap();
            renewal.handle_timeout(now);
        }
        assert_eq!(now, valid(at(0), TTL).until());
        assert!((10..40).contains(&tries), "{tries}");
        assert_eq!(renewal.poll_timeout(), None);
        assert_eq!(renewal.poll_transmit(now), None);
        renewal.handle_reply(now, at(28), TTL, &standing(7, Some(7)));
        assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::Unanswered));
    }

    #[test]
    fn unknown_becomes_held_again() {
        let mut renewal = direct(THIRD);
        assert!(renewal.poll_transmit(at(10)).is_some());
        renewal.handle_unanswered(at(12));
        assert!(renewal.poll_transmit(at(13)).is_some());
        renewal.handle_reply(at(14), at(13), TTL, &standing(7, Some(7)));
        assert_eq!(renewal.standpoint(), Standpoint::Held);
        assert_eq!(renewal.validity(), valid(at(13), TTL));
    }

    #[test]
    fn gone_and_revoked_are_losses_at_once_and_the_first_reason_stays() {
        let mut renewal = direct(THIRD);
        renewal.handle_revoked();
        renewal.handle_reply(at(1), at(0), TTL, &Reply::Gone);
        assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::Revoked));
        let mut renewal = direct(THIRD);
        renewal.handle_reply(at(1), at(0), TTL, &Reply::Gone);
        assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::Gone));
        assert_eq!(renewal.validity().remaining(at(1)), Duration::ZERO);
    }

    #[test]
    fn a_hold_is_not_renewed_beyond_its_longest() {
        let max = Duration::from_secs(45);
        let mut renewal = direct(THIRD).at_most(Some(max));
        let mut now = at(0);
        let mut asked = Vec::new();
        while !matches!(renewal.standpoint(), Standpoint::Lost(_)) {
            now = renewal.poll_timeout().unwrap();
            renewal.handle_timeout(now);
            if let Some(Request::Renew(ttl)) = renewal.poll_transmit(now) {
                assert!(now + ttl <= at(0) + max, "{ttl:?} at {now:?}");
                asked.push(ttl);
                renewal.handle_reply(now, now, ttl, &standing(7, Some(7)));
            }
        }
        assert_eq!(renewal.standpoint(), Standpoint::Lost(Loss::MaxHold));
        assert!(now > at(44) && now <= at(45), "{now:?}");
        assert!(asked.len() >= 2 && asked[0] == TTL, "{asked:?}");
        assert_eq!(renewal.allowed(at(40), TTL), Duration::from_secs(5));
    }

    #[test]
    fn an_adopted_claim_is_lost_by_push_or_answer() {
        let mut pushed = direct(THIRD);
        pushed.handle_adopted();
        assert_eq!(pushed.standpoint(), Standpoint::Lost(Loss::Superseded));
        let mut answered = direct(THIRD);
        answered.handle_reply(at(1), at(0), TTL, &Reply::Superseded);
        assert_eq!(answered.standpoint(), Standpoint::Lost(Loss::Superseded));
        assert_eq!(answered.validity(), Validity::default());
    }

    #[test]
    fn odd_shares_are_tamed() {
        for (share, latest) in [(0.0, 1), (7.0, 27), (f64::NAN, 10)] {
            let renewal = direct(RenewalPolicy::Automatic(share));
            assert!(renewal.poll_timeout().unwrap() <= at(latest), "{share}");
        }
    }
}
