//! Renewals of a held lease.

use std::sync::Arc;
use std::time::Duration;

use super::timing::{GRID, RENEW_AGAIN, RENEW_AGAIN_PART, RENEW_AT};
use super::types::{Granted, LeaseState, Loss, RenewalPolicy, Terms};
use crate::{Arrival, Backoff, Moment, Reply, Standing, Token, Validity, drift_allowance};

/// The renewals of one lease: when to renew, what an answer means, and when the lease is lost.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Renewal {
    terms: Arc<Terms>,
    since: Moment,
    /// The numbers of the grant. An answer that names another arrival is about another claim of
    /// the same id, which a request that was long under way has made since; one that names
    /// another token is of a store that forgot the grant and gave a new one, perhaps after others
    /// have held. This lease is lost then.
    grant: (Arrival, Token),
    /// A request of its waiting time is unanswered: it may have been older than the
    /// grant at the store, too.
    overtaken: bool,
    validity: Validity,
    in_flight: bool,
    due: Moment,
    state: LeaseState,
    /// What a push said that proved nothing.
    doubt: Option<Loss>,
    /// While renewals are not answered.
    backoff: Option<Box<Backoff>>,
}

impl Renewal {
    /// A lease that is known to be granted at `now`. If it still lives on the waiter TTL, it needs
    /// a first renewal whatever the policy. `in_flight`: a request of its waiting time is still
    /// unanswered.
    pub(super) fn new(now: Moment, terms: Arc<Terms>, granted: Granted, in_flight: bool) -> Self {
        let validity = granted.validity;
        // Counted as validity is: the answer may have been long under way.
        let asked = validity.counted_from(terms.ttl).min(now);
        Self {
            since: now,
            grant: (granted.arrival, granted.token),
            overtaken: in_flight,
            validity,
            in_flight,
            due: (granted.confirm_at).unwrap_or_else(|| renew_at(&terms, asked)),
            state: LeaseState::Held,
            doubt: None,
            backoff: None,
            terms,
        }
    }

    /// When the longest hold allowed is over: no renewal prolongs it beyond that.
    fn hold_until(&self) -> Option<Moment> {
        self.terms.max_hold.map(|max_hold| self.since + max_hold)
    }

    fn is_automatic(&self) -> bool {
        matches!(self.terms.policy, RenewalPolicy::Automatic(_))
    }

    /// How much of `ttl` a renewal sent now may ask for.
    pub(super) fn allowed(&self, now: Moment, ttl: Duration) -> Duration {
        self.hold_until().map_or(ttl, |end| ttl.min(end.since(now)))
    }

    /// The token of the grant.
    pub(super) fn token(&self) -> Token {
        self.grant.1
    }

    /// Until when to rely on the lease.
    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    /// What is known.
    pub(super) fn state(&self) -> LeaseState {
        self.state
    }

    /// By how much to renew it now, if that is due. Each renewal must be answered by
    /// [`Renewal::handle_reply`] or [`Renewal::handle_unanswered`].
    pub(super) fn poll_transmit(&mut self, now: Moment) -> Option<Duration> {
        if now < self.due || self.in_flight || self.is_lost() {
            return None;
        }
        let ttl = self.ttl_at(now);
        if ttl.is_zero() {
            // Nothing more may be asked for.
            self.due = Moment::NEVER;
            return None;
        }
        self.in_flight = true;
        Some(ttl)
    }

    /// When [`Renewal::handle_timeout`] and [`Renewal::poll_transmit`] want to
    /// be called next.
    pub(super) fn poll_timeout(&self) -> Option<Moment> {
        if self.is_lost() {
            return None;
        }
        let end = self.validity.until();
        let due = if self.in_flight { end } else { self.due };
        Some(due.min(end))
    }

    /// Time has passed. Tolerates early calls.
    pub(super) fn handle_timeout(&mut self, now: Moment) {
        if now >= self.validity.until() && !self.is_lost() {
            self.lose(self.loss_at_end());
        }
    }

    /// Why the lease is lost if nothing more is heard until its validity is over.
    pub(super) fn loss_at_end(&self) -> Loss {
        // Validity ends earlier than the hold by the drift allowance, which
        // depends on the last renewal: one that was all it could ask for, or that
        // reached as far.
        let until = self.validity.until() + drift_allowance(self.terms.ttl);
        match self.hold_until() {
            _ if !self.is_automatic() => Loss::Expired,
            Some(end) if self.due == Moment::NEVER || until >= end => Loss::MaxHold,
            _ => Loss::Unanswered,
        }
    }

    /// An answer to a renewal by `ttl`, sent at `sent`, arrived at `now`.
    pub(super) fn handle_reply(&mut self, now: Moment, sent: Moment, ttl: Duration, reply: &Reply) {
        self.in_flight = false;
        let overtaken = std::mem::take(&mut self.overtaken);
        self.backoff = None;
        if self.is_lost() {
            return;
        }
        match reply {
            Reply::Standing(standing) if self.is_ours(standing, overtaken) => {
                let long = ttl >= self.ttl_at(sent);
                self.validity.confirm(sent, ttl);
                self.state = LeaseState::Held;
                self.doubt = None;
                if long {
                    self.due = self.next_due(sent);
                }
            }
            Reply::Standing(_) => self.lose(Loss::Forgotten),
            Reply::Superseded => self.lose(Loss::Superseded),
            _ => self.lose(self.doubt.unwrap_or(Loss::Gone)),
        }
        self.handle_timeout(now);
    }

    /// Handles what became of a request of its caller. A renewal may be under way beside that.
    pub(super) fn handle_other(&mut self, handle: impl FnOnce(&mut Self)) {
        let kept = (self.in_flight, std::mem::take(&mut self.overtaken));
        handle(self);
        (self.in_flight, self.overtaken) = kept;
    }

    /// Whether an answer is about the grant that this lease is. One that still waits can
    /// only be to a request that the grant has overtaken: a store that says so later has
    /// forgotten the grant.
    pub(super) fn is_ours(&self, standing: &Standing, overtaken: bool) -> bool {
        match standing.token {
            Some(token) => self.grant == (standing.arrival, token),
            None => overtaken && self.grant.0 == standing.arrival,
        }
    }

    /// A renewal got no answer: the lease is unknown, and asked for again until
    /// its validity ends.
    pub(super) fn handle_unanswered(&mut self, now: Moment, seed: u64) {
        self.in_flight = false;
        self.overtaken = false;
        if !self.is_lost() {
            self.state = LeaseState::Unknown;
            let cap = self.terms.ttl / RENEW_AGAIN_PART;
            let backoff = || Box::new(Backoff::new(RENEW_AGAIN, cap, seed));
            self.due = now + self.backoff.get_or_insert_with(backoff).pause();
        }
    }

    /// A push says that the lease is lost, and does not prove it: ask, at `at`; that is
    /// the reason if it is lost indeed. A lease that is not renewed by itself is not asked
    /// about, since asking would prolong it.
    pub(super) fn handle_doubt(&mut self, at: Moment, loss: Loss) {
        if self.is_automatic() && !self.is_lost() {
            self.doubt = Some(loss);
            self.due = self.due.min(at);
        }
    }

    /// The connection was lost and is back: see at once whether the lease stands,
    /// unless asking would prolong what its caller did not ask to be prolonged.
    pub(super) fn handle_reset(&mut self, now: Moment) {
        if self.is_automatic() {
            self.due = now;
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.state, LeaseState::Lost(_))
    }

    /// What is lost stays so.
    pub(super) fn lose(&mut self, loss: Loss) {
        if !self.is_lost() {
            self.state = LeaseState::Lost(loss);
            self.validity.end();
        }
    }

    /// How long a renewal sent now asks for by itself: a fixed lease ends at its
    /// time, also if something else about it is changed.
    pub(super) fn ttl_at(&self, now: Moment) -> Duration {
        let ttl = match self.terms.policy {
            RenewalPolicy::Fixed => self.terms.ttl.saturating_sub(now.since(self.since)),
            RenewalPolicy::Automatic(_) | RenewalPolicy::Manual => self.terms.ttl,
        };
        self.allowed(now, ttl)
    }

    fn next_due(&self, sent: Moment) -> Moment {
        let reaches = |end| sent + self.terms.ttl >= end;
        match self.hold_until() {
            // The last renewal has asked for all that is left.
            Some(end) if reaches(end) => Moment::NEVER,
            _ => renew_at(&self.terms, sent),
        }
    }
}

/// When to renew what was asked for at `sent`, if it is renewed by itself.
fn renew_at(terms: &Terms, sent: Moment) -> Moment {
    let RenewalPolicy::Automatic(share) = terms.policy else {
        return Moment::NEVER;
    };
    let share = if share.is_nan() { RENEW_AT } else { share };
    let interval = terms.ttl.mul_f64(share.clamp(0.01, 0.9));
    let due = sent + interval;
    let grid = (crate::time::micros(interval) / GRID).max(1);
    Moment(due.0 - due.0 % grid)
}
