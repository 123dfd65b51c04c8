//! The state machine of one claim at its client: asking → waiting → held → leaving → over.
//!
//! [`ClaimMachine`] begins before the claim's first request and ends when nothing of it can be left
//! at the store. It decides about its retries, acknowledgements and releases, and handles late
//! answers. What one claim means to another is [`KeyMachine`](super::KeyMachine)'s to decide.

use std::sync::Arc;
use std::time::Duration;

use super::identity::Identity;
use super::push_validation::HintLimit;
use super::release::Releasing;
use super::renewal::Renewal;
use super::timing::REQUEST_PART;
use super::types::{
    Acknowledges, ChangeId, Changing, Deadlines, End, LeaseState, Loss, Phase, Request,
    RequestKind, Terms, Transmit,
};
use super::waiter::Waiter;
use crate::{Arrival, Claim, ClaimId, Command, Moment, Renew, Rotate, Token};

/// One claim of one client.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct ClaimMachine {
    pub(super) terms: Arc<Terms>,
    pub(super) seed: u64,
    pub(super) identity: Identity,
    pub(super) stage: Stage,
    /// How often it was asked for.
    pub(super) sends: u32,
    /// Whether it was asked for once and that was answered: no request that could bring it
    /// back is under way.
    pub(super) settled: bool,
    /// Whether its caller has had it in hand.
    pub(super) used: bool,
    /// Whether only the store can say if it still held when it was released: its caller was told
    /// its id, which others may know, or another server has taken over.
    pub(super) doubtful: bool,
    /// Its token, if it was released while it was valid, so that the next in its run holds;
    /// [`Token::NONE`] if not.
    pub(super) passed: Token,
    pub(super) arrival: Option<Arrival>,
    /// Until when the store keeps it, if that is longer than its TTL here.
    pub(super) lapses: Moment,
    pub(super) hints: HintLimit,
    /// When the id was replaced last, or first used.
    pub(super) rotated: Moment,
    pub(super) changes: Vec<Changing>,
    pub(super) last_change: ChangeId,
    pub(super) handing: Handing,
    pub(super) end: Option<End>,
    /// What is known of the lease, once it is not held any more.
    pub(super) known: Option<LeaseState>,
    /// What the release of its caller has found: whether it still held the key.
    pub(super) released: Option<bool>,
    /// Whether the store has said that it left, and not that it knew nothing of it.
    pub(super) confirmed: bool,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) enum Stage {
    // Apart, since most claims are held for most of their lives, and many may be.
    Waiting(Box<Waiter>),
    Held(Renewal),
    Leaving(Releasing),
    Over,
}

/// How far a grant is on its way to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Handing {
    /// Others must acknowledge it first.
    Unconfirmed,
    Confirming(ChangeId),
    Fresh,
    /// It waited too long on its way, and is renewed once.
    Topping(ChangeId),
    Topped,
}

impl ClaimMachine {
    /// Makes the state machine of a new claim.
    pub(super) fn claim(
        claim: Claim,
        terms: impl Into<Arc<Terms>>,
        deadlines: Deadlines,
        now: Moment,
    ) -> Self {
        let identity = Identity::new(claim.id.clone(), 0);
        let ask = Command::Claim(claim);
        Self::new(ask, identity, terms.into(), deadlines, now)
    }

    /// Makes the state machine of a claim that is taken over from another client: `id`, replaced
    /// as `rotate` says.
    pub(super) fn adopt(
        id: ClaimId,
        rotate: Rotate,
        terms: impl Into<Arc<Terms>>,
        deadlines: Deadlines,
        now: Moment,
    ) -> Self {
        let terms = terms.into();
        let identity = Identity::new(rotate.to.clone(), rotate.version.saturating_add(1));
        let renew = Renew {
            rotate: Some(rotate),
            confirms: terms.acknowledges != Acknowledges::Nothing,
            ..Renew::new(id, terms.ttl)
        };
        Self {
            // Whoever had it before has used it.
            used: true,
            ..Self::new(Command::Renew(renew), identity, terms, deadlines, now)
        }
    }

    fn new(
        ask: Command,
        identity: Identity,
        terms: Arc<Terms>,
        deadlines: Deadlines,
        now: Moment,
    ) -> Self {
        Self {
            seed: deadlines.seed,
            identity,
            stage: Stage::Waiting(Box::new(Waiter::new(ask, &terms, &deadlines, now))),
            sends: 0,
            settled: false,
            used: false,
            doubtful: false,
            passed: Token::NONE,
            arrival: None,
            lapses: Moment::default(),
            hints: HintLimit::default(),
            rotated: terms.rotate_every.map(|_| now).unwrap_or_default(),
            changes: Vec::new(),
            last_change: ChangeId::default(),
            handing: match terms.acknowledges {
                Acknowledges::Nothing => Handing::Fresh,
                _ => Handing::Unconfirmed,
            },
            end: None,
            known: None,
            released: None,
            confirmed: false,
            terms,
        }
    }

    // ---- where it stands ----

    /// Returns its phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &self.stage {
            Stage::Waiting(_) if self.arrival.is_none() => Phase::Asking,
            Stage::Waiting(_) => Phase::Waiting,
            Stage::Held(_) => Phase::Held,
            Stage::Leaving(_) => Phase::Leaving,
            Stage::Over => Phase::Over,
        }
    }

    /// Returns its settings.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns its arrival number, once it was answered.
    #[must_use]
    pub fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    /// Returns the position of a waiting claim: an upper bound, 1 is next.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        match &self.stage {
            Stage::Waiting(waiter) => waiter.position().map(|(_, position)| position),
            _ => None,
        }
    }

    /// Returns the claim of the same client behind which this one is granted, in a run.
    #[must_use]
    pub fn behind(&self) -> Option<Arrival> {
        match &self.stage {
            Stage::Waiting(waiter) => waiter.behind(),
            _ => None,
        }
    }

    /// Returns the arrival number and token of its grant, once its lease was released while it
    /// was valid. From then on the claim directly behind it in its run holds
    /// (`ClaimMachine::handle_run`).
    #[must_use]
    pub fn passed(&self) -> Option<(Arrival, Token)> {
        let passed = Some(self.passed).filter(|token| *token != Token::NONE);
        self.arrival.zip(passed)
    }

    /// Returns its id to its caller, from whom others may learn it.
    pub fn expose(&mut self) -> (&ClaimId, u64) {
        self.doubtful = true;
        self.identity()
    }

    /// Its lease, while that is held.
    fn lease(&self) -> Option<&Renewal> {
        match &self.stage {
            Stage::Held(renewal) => Some(renewal),
            _ => None,
        }
    }

    /// Returns the fencing token of its grant.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.lease().map(Renewal::token)
    }

    /// Returns the state of the lease, once it was granted.
    #[must_use]
    pub fn state(&self) -> Option<LeaseState> {
        self.lease().map(Renewal::state).or(self.known)
    }

    /// Returns until when the lease is valid; the earliest moment, if it is not.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        let validity = self.lease().map(Renewal::validity);
        validity.unwrap_or_default().until()
    }

    /// Returns why the lease will be lost, if no answer arrives before its validity ends.
    #[must_use]
    pub fn loss_at_end(&self) -> Option<Loss> {
        self.lease().map(Renewal::loss_at_end)
    }

    /// Returns why it ended before it was handed out, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end.filter(|_| !self.is_withdrawing())
    }

    /// Whether its time is over, and the store has not answered its withdrawal: only then is it
    /// known that others have the key, and not that the store is out of reach.
    pub(super) fn is_withdrawing(&self) -> bool {
        let asks = matches!(&self.stage, Stage::Leaving(leaving) if !leaving.refused);
        self.end == Some(End::TimedOut) && asks
    }

    /// Returns its id at the store, and how often that was replaced.
    #[must_use]
    pub fn identity(&self) -> (&ClaimId, u64) {
        (self.identity.id(), self.identity.version())
    }

    /// Returns the result of a release by its caller, once it is answered: whether the lease was
    /// held until then.
    #[must_use]
    pub fn released(&self) -> Option<bool> {
        self.released
    }

    /// Returns whether the store has refused to release it. The release is repeated in the
    /// background.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(&self.stage, Stage::Leaving(leaving) if leaving.refused)
    }

    /// Returns whether the store has confirmed its release.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.confirmed
    }

    // ---- time ----

    /// Returns when to call [`ClaimMachine::handle_timeout`] and [`ClaimMachine::poll_transmit`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let stage = match &self.stage {
            Stage::Waiting(waiter) => waiter.poll_timeout(),
            Stage::Held(renewal) => renewal.poll_timeout(),
            Stage::Leaving(leaving) => leaving.poll_timeout(),
            Stage::Over => None,
        };
        let changes = self.changes.iter().filter_map(Changing::due);
        stage.into_iter().chain(changes).min()
    }

    /// Handles that time has passed. Early calls are allowed.
    pub fn handle_timeout(&mut self, now: Moment) {
        match &mut self.stage {
            Stage::Waiting(waiter) => waiter.handle_timeout(now),
            Stage::Held(renewal) => renewal.handle_timeout(now),
            Stage::Leaving(_) | Stage::Over => {}
        }
        self.move_on(now);
    }

    /// Returns the request to send now, if one is due. Its result must be passed to
    /// `ClaimMachine::handle_answer`. `fresh` makes a new claim id for a rotation that is due. Without
    /// one, the rotation waits for the next renewal.
    pub fn poll_transmit(
        &mut self,
        now: Moment,
        fresh: impl FnOnce() -> Option<ClaimId>,
    ) -> Option<Transmit> {
        if let Some(change) = self.poll_change(now) {
            return Some(change);
        }
        let send = |command, errand, limit| Transmit {
            command,
            sent: now,
            limit,
            errand,
        };
        let limit = self.request_limit();
        let (ttl, confirms) = match &mut self.stage {
            Stage::Waiting(waiter) => match waiter.poll_transmit(now)? {
                Request::Claim => {
                    self.sends = self.sends.saturating_add(1);
                    let end = waiter.poll_timeout().unwrap_or(now);
                    return Some(send(waiter.ask.clone(), RequestKind::Ask, end.since(now)));
                }
                Request::Renew(ttl) => (ttl, false),
            },
            Stage::Held(renewal) => {
                let ttl = renewal.poll_transmit(now)?;
                let every = self.terms.rotate_every;
                if every.is_some_and(|every| now.since(self.rotated) >= every)
                    && let Some(to) = fresh()
                {
                    self.identity.rotate(to);
                }
                let confirms = self.terms.acknowledges == Acknowledges::GrantsAndRenewals;
                (ttl, confirms)
            }
            Stage::Leaving(leaving) => {
                return Some(send(leaving.poll_transmit(now)?, RequestKind::Leave, limit));
            }
            Stage::Over => return None,
        };
        let renew = Command::Renew(self.identity.renew(ttl, confirms));
        Some(send(Arc::new(renew), RequestKind::Beat, limit))
    }

    pub(super) fn request_limit(&self) -> Duration {
        self.terms.operation.min(self.terms.ttl / REQUEST_PART)
    }
}
