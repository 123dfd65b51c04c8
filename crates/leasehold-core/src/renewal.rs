use std::time::Duration;

use crate::{Backoff, Moment, Reply, Request, Validity};

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
            validity,
            in_flight,
            due: confirm_at,
            standpoint: Standpoint::Held,
            backoff: Backoff::new(Duration::from_millis(20), ttl / 10, seed),
        };
        if confirm_at.is_none() {
            renewal.due = renewal.next_due(now);
        }
        renewal
    }

    /// The same lease, which answers only to `arrival`.
    #[must_use]
    pub fn of(self, _arrival: crate::Arrival) -> Self {
        self
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
        self.in_flight = true;
        Some(Request::Renew(self.ttl_at(now)))
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
            self.lose(if automatic {
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
            Reply::Standing(_) => {
                let long = ttl >= self.ttl_at(sent);
                self.validity.confirm(sent, ttl);
                self.standpoint = Standpoint::Held;
                if long {
                    self.due = self.next_due(sent);
                }
            }
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

    /// The connection was lost and is back: see at once whether the lease stands.
    pub fn handle_reset(&mut self, now: Moment) {
        if !matches!(self.policy, RenewalPolicy::Fixed) {
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

    /// How long a renewal sent now asks for: a fixed lease ends at its time.
    fn ttl_at(&self, now: Moment) -> Duration {
        match self.policy {
            RenewalPolicy::Fixed => self.ttl.saturating_sub(now.since(self.granted)),
            RenewalPolicy::Automatic(_) | RenewalPolicy::Manual => self.ttl,
        }
    }

    fn next_due(&self, sent: Moment) -> Option<Moment> {
        let RenewalPolicy::Automatic(share) = self.policy else {
            return None;
        };
        let interval = self.ttl.mul_f64(share.clamp(0.01, 0.9));
        let due = sent + interval;
        let grid = (crate::time::micros(interval) / GRID).max(1);
        Some(Moment(due.0 - due.0 % grid))
    }
}
