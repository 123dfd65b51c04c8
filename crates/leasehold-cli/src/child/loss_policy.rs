//! What to do with the child when its lease runs out or is lost: decisions only.

use std::time::Duration;

use leasehold::core::{LeaseState, Loss};
use tokio::time::Instant;

/// The longest sleep between two looks. A machine that slept wakes up with its
/// timers late; the lease's clock ran on.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What happens to the command when the lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// Ask it to stop (SIGTERM), and kill it when it does not
    Term,
    /// Kill it at once (SIGKILL)
    Kill,
    /// Warn, and let it run on
    Ignore,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask the child to stop: the lease is lost, or ends in so long.
    Tell(Loss, Duration),
    /// Kill the child and its group.
    Kill(Loss),
    /// Say that the lease is lost, and nothing else.
    Warn(Loss),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Guarding,
    Told {
        at: Instant,
    },
    /// The child was killed because it was held for the longest time allowed. The lease is kept
    /// until the child has gone: it need not obey.
    Overdue,
    /// The child was killed, and the lease is lost.
    Killed,
    /// The child runs on without a lease, as was asked for.
    LetGo,
}

/// Watches one lease on behalf of one child.
#[derive(Debug)]
pub(crate) struct LossPolicy {
    on_lost: OnLost,
    grace: Duration,
    /// How long before its end the lease counts as over: what a kill takes.
    margin: Duration,
    /// What was left right after the last renewal.
    basis: Duration,
    seen: Duration,
    /// When the lease will have been held for the longest time allowed.
    longest: Option<Instant>,
    phase: Phase,
}

impl LossPolicy {
    pub(crate) fn new(
        on_lost: OnLost,
        grace: Duration,
        ttl: Duration,
        longest: Option<Instant>,
    ) -> Self {
        Self {
            on_lost,
            grace,
            margin: (ttl / 20).min(Duration::from_millis(50)),
            basis: Duration::ZERO,
            seen: Duration::ZERO,
            longest,
            phase: Phase::Guarding,
        }
    }

    /// Whether the child was told, killed, or left to itself because of the lease.
    pub(crate) fn lost(&self) -> bool {
        self.phase != Phase::Guarding
    }

    /// Whether the child was killed: as long as it is there, it is killed again.
    pub(crate) fn kills(&self) -> bool {
        matches!(self.phase, Phase::Overdue | Phase::Killed)
    }

    /// Whether the lease is kept while the child that was killed is still there.
    pub(crate) fn keeps(&self) -> bool {
        self.phase == Phase::Overdue
    }

    /// Whether the child may be ended because of the lease.
    pub(crate) fn strikes(&self) -> bool {
        self.on_lost != OnLost::Ignore
    }

    /// Looks at the lease: what is to be done now, at most once each.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        remaining: Duration,
        state: LeaseState,
    ) -> Option<Action> {
        if remaining > self.seen {
            self.basis = remaining;
        }
        self.seen = remaining;
        let left = self.left(now, remaining);
        let lease = self.ended(now, remaining, state);
        let action = match self.phase {
            Phase::Killed | Phase::LetGo => None,
            Phase::Overdue => lease.map(Action::Warn),
            Phase::Guarding => self.judge(now, left, state),
            Phase::Told { at } => {
                let end = self.ended(now, left, state);
                let end = end.filter(|&loss| !is_said_by_store(loss) || now >= at + self.grace);
                end.map(Action::Kill)
            }
        };
        self.phase = match action {
            None => self.phase,
            Some(Action::Tell(..)) => Phase::Told { at: now },
            Some(Action::Kill(_)) if lease.is_none() => Phase::Overdue,
            Some(Action::Kill(_)) => Phase::Killed,
            Some(Action::Warn(_)) if self.phase == Phase::Overdue => Phase::Killed,
            Some(Action::Warn(_)) => Phase::LetGo,
        };
        action
    }

    /// How long to sleep before the next look, unless something happens.
    pub(crate) fn sleep(&self, now: Instant, remaining: Duration, state: LeaseState) -> Duration {
        let remaining = self.left(now, remaining);
        let left = match self.phase {
            Phase::Overdue | Phase::Killed | Phase::LetGo => LONGEST_SLEEP,
            Phase::Guarding if self.on_lost == OnLost::Term => {
                remaining.saturating_sub(self.grace())
            }
            Phase::Told { at } if matches!(state, LeaseState::Lost(_)) => {
                (at + self.grace).saturating_duration_since(now)
            }
            Phase::Guarding | Phase::Told { .. } => remaining.saturating_sub(self.margin),
        };
        left.clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }

    /// What is left of the lease, or until it will have been held for the longest time allowed.
    fn left(&self, now: Instant, remaining: Duration) -> Duration {
        let longest = self.longest.map(|it| it.saturating_duration_since(now));
        longest.map_or(remaining, |longest| longest.min(remaining))
    }

    fn judge(&self, now: Instant, remaining: Duration, state: LeaseState) -> Option<Action> {
        let Some(loss) = self.ended(now, remaining, state) else {
            let near = self.on_lost == OnLost::Term && remaining <= self.grace();
            return near.then(|| Action::Tell(self.why(now, remaining), remaining));
        };
        Some(match self.on_lost {
            OnLost::Ignore => Action::Warn(loss),
            OnLost::Term if is_said_by_store(loss) => Action::Tell(loss, Duration::ZERO),
            OnLost::Term | OnLost::Kill => Action::Kill(loss),
        })
    }

    /// Why the lease has ended, if it has.
    fn ended(&self, now: Instant, remaining: Duration, state: LeaseState) -> Option<Loss> {
        match state {
            LeaseState::Lost(loss) => Some(loss),
            _ => (remaining <= self.margin).then(|| self.why(now, remaining)),
        }
    }

    /// Why a lease that is not lost yet ends so soon: it is not renewed beyond the longest time
    /// allowed, or its renewals are not answered.
    fn why(&self, now: Instant, remaining: Duration) -> Loss {
        // A lease is relied on for a little less than it has.
        let nearly = remaining + remaining / 20 + self.margin;
        match self.longest {
            Some(longest) if now + nearly >= longest => Loss::MaxHold,
            _ => Loss::Unanswered,
        }
    }

    /// The grace time, or less while the lease still lives on a shorter TTL than
    /// its own, as it does right after a long wait: a healthy lease is renewed
    /// well before half of what it had.
    fn grace(&self) -> Duration {
        self.grace.min(self.basis / 2)
    }
}

/// Whether the store says so: the child is told at once, and has the grace time. Else the time is over:
/// nothing is left for grace.
fn is_said_by_store(loss: Loss) -> bool {
    matches!(
        loss,
        Loss::Gone | Loss::Forgotten | Loss::Revoked | Loss::Superseded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(20);
    const GRACE: Duration = Duration::from_secs(5);
    const HELD: LeaseState = LeaseState::Held;
    const UNKNOWN: LeaseState = LeaseState::Unknown;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn guard(on_lost: OnLost) -> (LossPolicy, Instant) {
        (LossPolicy::new(on_lost, GRACE, TTL, None), Instant::now())
    }

    #[test]
    fn an_unanswered_renewal_tells_at_the_end_less_grace_and_kills_at_the_end() {
        let (mut guard, start) = guard(OnLost::Term);
        assert_eq!(guard.look(start, secs(20), HELD), None);
        assert_eq!(guard.sleep(start, secs(20), HELD), LONGEST_SLEEP);
        assert_eq!(guard.look(start, secs(6), UNKNOWN), None);
        assert!(!guard.lost());
        assert_eq!(
            guard.look(start, secs(5), UNKNOWN),
            Some(Action::Tell(Loss::Unanswered, secs(5)))
        );
        assert!(guard.lost());
        assert_eq!(guard.look(start, secs(1), UNKNOWN), None);
        let end = Duration::from_millis(50);
        assert_eq!(guard.sleep(start, end * 2, UNKNOWN), end);
        assert_eq!(
            guard.look(start, end, UNKNOWN),
            Some(Action::Kill(Loss::Unanswered))
        );
        assert_eq!(guard.look(start, Duration::ZERO, UNKNOWN), None);
    }

    #[test]
    fn when_the_store_says_gone_the_child_is_told_at_once_and_killed_after_grace() {
        let (mut guard, start) = guard(OnLost::Term);
        let gone = LeaseState::Lost(Loss::Gone);
        assert_eq!(guard.look(start, secs(20), HELD), None);
        let told = guard.look(start, Duration::ZERO, gone);
        assert_eq!(told, Some(Action::Tell(Loss::Gone, Duration::ZERO)));
        assert_eq!(guard.look(start + secs(4), Duration::ZERO, gone), None);
        let left = guard.sleep(
            start + GRACE - Duration::from_millis(10),
            Duration::ZERO,
            gone,
        );
        assert_eq!(left, Duration::from_millis(10));
        let killed = guard.look(start + GRACE, Duration::ZERO, gone);
        assert_eq!(killed, Some(Action::Kill(Loss::Gone)));
    }

    #[test]
    fn a_process_that_was_stopped_beyond_its_lease_kills_without_telling() {
        let (mut guard, start) = guard(OnLost::Term);
        assert_eq!(guard.look(start, secs(20), HELD), None);
        let killed = guard.look(start + secs(60), Duration::ZERO, HELD);
        assert_eq!(killed, Some(Action::Kill(Loss::Unanswered)));
    }

    #[test]
    fn the_end_of_the_longest_hold_is_called_by_its_name() {
        let start = Instant::now();
        let mut guard = LossPolicy::new(OnLost::Term, GRACE, TTL, Some(start + secs(60)));
        assert_eq!(guard.look(start, secs(20), HELD), None);
        assert_eq!(guard.look(start + secs(41), secs(19), HELD), None);
        assert_eq!(
            guard.look(start + secs(55), secs(5), HELD),
            Some(Action::Tell(Loss::MaxHold, secs(5)))
        );
        let lost = LeaseState::Lost(Loss::MaxHold);
        assert_eq!(
            guard.look(start + secs(60), Duration::ZERO, lost),
            Some(Action::Kill(Loss::MaxHold))
        );
        let mut guard = LossPolicy::new(OnLost::Term, GRACE, TTL, Some(start + secs(60)));
        assert_eq!(guard.look(start + secs(15), secs(20), HELD), None);
        assert_eq!(
            guard.look(start + secs(30), secs(5), UNKNOWN),
            Some(Action::Tell(Loss::Unanswered, secs(5)))
        );
    }

    #[test]
    fn a_child_that_outlives_the_longest_hold_keeps_its_lease_and_a_later_loss_is_told() {
        let start = Instant::now();
        let mut guard = LossPolicy::new(OnLost::Kill, GRACE, TTL, Some(start + secs(60)));
        assert_eq!(guard.look(start + secs(59), secs(20), HELD), None);
        let killed = guard.look(start + secs(60), secs(19), HELD);
        assert_eq!(killed, Some(Action::Kill(Loss::MaxHold)));
        assert!(guard.lost() && guard.kills() && guard.keeps());
        assert_eq!(guard.look(start + secs(70), secs(19), HELD), None);
        let revoked = LeaseState::Lost(Loss::Revoked);
        let told = guard.look(start + secs(80), Duration::ZERO, revoked);
        assert_eq!(told, Some(Action::Warn(Loss::Revoked)));
        assert!(guard.kills() && !guard.keeps());
        assert_eq!(guard.look(start + secs(81), Duration::ZERO, revoked), None);
    }

    #[test]
    fn kill_kills_and_ignore_warns() {
        for state in [
            LeaseState::Lost(Loss::Gone),
            LeaseState::Lost(Loss::Unanswered),
        ] {
            let (mut guard, start) = guard(OnLost::Kill);
            assert_eq!(guard.look(start, secs(1), HELD), None);
            assert!(matches!(
                guard.look(start, Duration::ZERO, state),
                Some(Action::Kill(_))
            ));
        }
        let (mut guard, start) = guard(OnLost::Ignore);
        assert_eq!(guard.look(start, secs(1), HELD), None);
        let warned = guard.look(start, Duration::ZERO, LeaseState::Lost(Loss::Revoked));
        assert_eq!(warned, Some(Action::Warn(Loss::Revoked)));
        assert!(guard.lost());
        assert_eq!(
            guard.look(start, Duration::ZERO, LeaseState::Lost(Loss::Revoked)),
            None
        );
    }

    #[test]
    fn a_lease_fresh_from_the_queue_is_not_mistaken_for_a_dying_one() {
        let mut guard = LossPolicy::new(OnLost::Term, secs(15), secs(60), None);
        let start = Instant::now();
        assert_eq!(
            guard.look(start, secs(7), HELD),
            None,
            "still on the waiter's TTL"
        );
        assert_eq!(guard.look(start, secs(4), HELD), None);
        assert_eq!(guard.look(start, secs(59), HELD), None, "renewed");
        assert!(guard.look(start, secs(15), UNKNOWN).is_some());
    }
}
