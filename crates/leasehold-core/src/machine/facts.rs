//! Facts: the events of a claim, as typed values.
//!
//! A fact is the difference between two observations of a [`ClaimMachine`]. The life itself does not
//! record what was reported, and has no cost without an observer.

use std::time::Duration;

use super::{ClaimMachine, End, LeaseState, Loss, Phase};
use crate::{Moment, Token};

/// An event of a claim, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// The claim is asked for.
    Requested,
    /// The claim waits in the queue, or has moved in it.
    Queued {
        /// Its position, an upper bound; 1 is next.
        position: u64,
    },
    /// The claim was granted, and the lease is held.
    Granted {
        /// The fencing token; [`Token::NONE`] if the store has none.
        token: Token,
        /// The time from the request to the grant.
        waited: Duration,
    },
    /// A renewal was answered.
    Renewed {
        /// How long the lease is valid from now.
        remaining: Duration,
    },
    /// A renewal failed: it was not answered, or was refused or not acknowledged. It is repeated
    /// until the validity of the lease ends.
    Unanswered {
        /// How long the lease is valid from now.
        remaining: Duration,
    },
    /// The lease is lost: another client may hold the key.
    Lost {
        /// Why.
        loss: Loss,
        /// The time from the grant to the loss.
        held: Duration,
    },
    /// The holder releases the lease.
    Released {
        /// The time from the grant to the release.
        held: Duration,
    },
    /// The claim ended before its caller had the lease: given up or refused.
    Ended {
        /// Why it ended; `None` if its caller gave it up.
        end: Option<End>,
        /// The time from the request to the end.
        waited: Duration,
    },
}

/// What was seen of a claim, so that the next look tells what is new.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    requested: bool,
    /// Zero before it waits.
    position: u64,
    /// When it was asked for; once it is held, when it was granted.
    since: Moment,
    /// Once it was held.
    state: Option<LeaseState>,
    valid_until: Moment,
    over: bool,
}

impl Facts {
    /// Nothing was seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            requested: false,
            position: 0,
            since: Moment(0),
            state: None,
            valid_until: Moment(0),
            over: false,
        }
    }

    /// Looks at the claim, and tells what has happened since the last look, in order.
    pub fn look(&mut self, life: &ClaimMachine, now: Moment, mut tell: impl FnMut(Fact)) {
        if self.over {
            return;
        }
        if !std::mem::replace(&mut self.requested, true) {
            self.since = now;
            tell(Fact::Requested);
        }
        if let Some(position) = life.position().filter(|now| *now != self.position) {
            self.position = position;
            tell(Fact::Queued { position });
        }
        let waited = now.since(self.since);
        if life.phase() == Phase::Held && self.state.is_none() {
            self.since = now;
            (self.state, self.valid_until) = (life.state(), life.valid_until());
            let token = life.token().unwrap_or_default();
            tell(Fact::Granted { token, waited });
        }
        if self.state.is_none() {
            if matches!(life.phase(), Phase::Leaving | Phase::Over) && !life.is_withdrawing() {
                self.over = true;
                let end = life.end();
                tell(Fact::Ended { end, waited });
            }
            return;
        }
        let held = now.since(self.since);
        let was = std::mem::replace(&mut self.state, life.state());
        let until = std::mem::replace(&mut self.valid_until, life.valid_until());
        let remaining = life.valid_until().since(now);
        if let Some(LeaseState::Lost(loss)) = self.state {
            self.over = true;
            tell(Fact::Lost { loss, held });
        } else if life.phase() != Phase::Held {
            self.over = true;
            tell(Fact::Released { held });
        } else if self.state == Some(LeaseState::Unknown) && was != self.state {
            tell(Fact::Unanswered { remaining });
        } else if life.valid_until() > until {
            tell(Fact::Renewed { remaining });
        }
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self::new()
    }
}
