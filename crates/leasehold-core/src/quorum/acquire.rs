use std::time::Duration;

use super::{QuorumSize, Vote};
use crate::mutant::mutated;
use crate::{Moment, Token, drift_allowance};

/// How often one bid proposes another token at most: a rival that does the same
/// is met again after a pause.
const ROUNDS: u32 = 4;

/// The settings of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AcquireConfig {
    /// How many servers, and how many have to agree.
    pub size: QuorumSize,
    /// How long the claim lives.
    pub ttl: Duration,
    /// How long one server's answer may take.
    pub patience: Duration,
}

/// The proposal of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// The token.
    pub token: Token,
    /// When it was proposed.
    pub at: Moment,
    /// Whether a quorum has voted for the claim.
    pub held: bool,
}

/// The result of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AcquireVerdict {
    /// A quorum votes for the claim.
    Held {
        /// The fencing token.
        token: Token,
    },
    /// Too many servers vote for other claims.
    Busy {
        /// After how long enough of these votes have expired, at the earliest.
        left: Duration,
    },
    /// The claim id belongs to another client.
    Taken,
    /// The claim held before, and no quorum votes for it any more.
    Gone,
    /// Too many servers refused to vote.
    Refused {
        /// After how long enough of them may vote, if they only wait for the end of a quarantine.
        left: Option<Duration>,
    },
    /// Too many servers did not answer in time. The claim may have votes, so it must be repeated
    /// or released.
    Unanswered,
}

/// What a server said to the current proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ballot {
    Unsent,
    Open,
    Silent,
    Given(Vote),
}

/// One attempt to get a quorum of votes for a claim. It proposes a token, counts the votes, and
/// proposes a higher token if servers have seen one.
///
/// The result of each transmission must be passed to [`QuorumAcquire::handle_vote`] or
/// [`QuorumAcquire::handle_silence`]; after the verdict this is optional.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuorumAcquire {
    config: AcquireConfig,
    started: Moment,
    round_started: Moment,
    token: Token,
    /// Returns the highest token that is known.
    seen: Token,
    ballots: Vec<Ballot>,
    rounds: u32,
    /// It has held with this token: another would be another hold.
    fixed: bool,
    verdict: Option<AcquireVerdict>,
}

impl QuorumAcquire {
    /// Makes an attempt with the token `max(seen + 1, wall)`. `seen` is the highest token of the
    /// key that this client knows; `wall` is its wall-clock time in microseconds.
    #[must_use]
    pub fn new(config: AcquireConfig, seen: Token, wall: u64, now: Moment) -> Self {
        let token = Token(wall.max(seen.0.saturating_add(1)));
        Self::with(config, token, seen, now)
    }

    /// Repeats an attempt of the same claim with the token that it has already proposed. If the
    /// claim has held with that token, it finds that hold or none. If it has not, and proposed
    /// the token more than half a TTL ago, it proposes another one: servers may have lost higher
    /// tokens since, and may have ended their quarantine.
    #[must_use]
    pub fn again(
        config: AcquireConfig,
        before: Proposal,
        seen: Token,
        wall: u64,
        now: Moment,
    ) -> Self {
        let stale = now.since(before.at) >= config.ttl / 2;
        if stale && !before.held {
            return Self::new(config, seen.max(before.token), wall, now);
        }
        let mut bid = Self::with(config, before.token, seen, now);
        bid.fixed = before.held;
        bid
    }

    fn with(config: AcquireConfig, token: Token, seen: Token, now: Moment) -> Self {
        Self {
            ballots: vec![Ballot::Unsent; config.size.servers()],
            config,
            started: now,
            round_started: now,
            token,
            seen,
            rounds: 1,
            fixed: false,
            verdict: None,
        }
    }

    /// Returns the proposed token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the highest token that is known.
    #[must_use]
    pub fn seen(&self) -> Token {
        self.seen
    }

    /// Returns the result, once it is known.
    #[must_use]
    pub fn verdict(&self) -> Option<AcquireVerdict> {
        self.verdict
    }

    /// Returns the next server to ask, and the token.
    pub fn poll_transmit(&mut self) -> Option<(usize, Token)> {
        if self.verdict.is_some() {
            return None;
        }
        let server = self.ballots.iter().position(|b| *b == Ballot::Unsent)?;
        self.ballots[server] = Ballot::Open;
        Some((server, self.token))
    }

    /// Returns when to call [`QuorumAcquire::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let round = self.round_started + self.config.patience;
        self.verdict.is_none().then(|| round.min(self.end()))
    }

    /// Handles that time has passed: servers without an answer count as silent. Early calls are
    /// allowed.
    pub fn handle_timeout(&mut self, now: Moment) {
        if now >= (self.round_started + self.config.patience).min(self.end()) {
            for ballot in &mut self.ballots {
                if matches!(ballot, Ballot::Open | Ballot::Unsent) {
                    *ballot = Ballot::Silent;
                }
            }
        }
        self.decide(now);
    }

    /// Handles a server's answer to the proposal of `token`.
    pub fn handle_vote(&mut self, now: Moment, server: usize, token: Token, vote: Vote) {
        if let Vote::Busy { highest, .. } | Vote::Stale { highest } = vote {
            self.seen = self.seen.max(highest);
        }
        if token == self.token
            && let Some(ballot) = self.ballots.get_mut(server)
        {
            *ballot = Ballot::Given(vote);
        }
        self.decide(now);
    }

    /// Handles that a server did not answer.
    pub fn handle_silence(&mut self, now: Moment, server: usize, token: Token) {
        if token == self.token
            && let Some(ballot) = self.ballots.get_mut(server)
            && !matches!(ballot, Ballot::Given(_))
        {
            *ballot = Ballot::Silent;
        }
        self.decide(now);
    }

    /// From when on a quorum would come too late.
    fn end(&self) -> Moment {
        let ttl = self.config.ttl;
        self.started + ttl.saturating_sub(drift_allowance(ttl))
    }

    fn count(&self, like: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().filter(|b| like(b)).count()
    }

    fn decide(&mut self, now: Moment) {
        if self.verdict.is_some() {
            return;
        }
        if now >= self.end() {
            self.verdict = Some(AcquireVerdict::Unanswered);
            return;
        }
        let quorum = self.config.size.quorum();
        let yes = self.count(|b| *b == Ballot::Given(Vote::Yes));
        let open = self.count(|b| matches!(b, Ballot::Open | Ballot::Unsent));
        let stale = self.count(|b| matches!(b, Ballot::Given(Vote::Stale { .. })));
        if yes + usize::from(mutated("majority")) >= quorum {
            self.verdict = Some(AcquireVerdict::Held { token: self.token });
        } else if yes + open >= quorum {
            // Not decided yet.
        } else if self.count(|b| *b == Ballot::Given(Vote::Taken)) > 0 {
            self.verdict = Some(AcquireVerdict::Taken);
        } else if self.fixed {
            self.verdict = Some(self.found_no_more(open));
        } else if yes + open + stale >= quorum && self.rounds < ROUNDS {
            // The servers that voted already are asked for the new token too: all
            // votes of a quorum are for one.
            self.rounds += 1;
            self.round_started = now;
            self.token = Token(self.seen.0.max(self.token.0) + 1);
            self.ballots.fill(Ballot::Unsent);
        } else {
            // Others' votes alone decide at once; for any other reason those who
            // have not answered yet may know better.
            let busy = self.count(|b| matches!(b, Ballot::Given(Vote::Busy { .. })));
            if open == 0 || busy > self.config.size.may_be_down() {
                self.verdict = Some(self.lost(yes + open + stale));
            }
        }
    }

    /// A claim that held before, and has no quorum now.
    fn found_no_more(&self, open: usize) -> AcquireVerdict {
        let silent = self.count(|b| {
            matches!(
                b,
                Ballot::Silent | Ballot::Given(Vote::Quarantined { .. } | Vote::Foreign)
            )
        });
        let yes = self.count(|b| *b == Ballot::Given(Vote::Yes));
        if yes + silent + open >= self.config.size.quorum() {
            AcquireVerdict::Unanswered
        } else {
            AcquireVerdict::Gone
        }
    }

    /// No quorum can come of it; `willing` servers vote for us or would.
    fn lost(&self, willing: usize) -> AcquireVerdict {
        let quorum = self.config.size.quorum();
        let given = |ballot: &Ballot| match ballot {
            Ballot::Given(vote) => Some(*vote),
            _ => None,
        };
        let mut busy: Vec<_> = (self.ballots.iter().filter_map(given))
            .filter_map(|vote| match vote {
                Vote::Busy { left, .. } => Some(left),
                _ => None,
            })
            .collect();
        busy.sort_unstable();
        if willing + busy.len() >= quorum {
            let needed = quorum.saturating_sub(willing).max(1);
            let left = busy.get(needed - 1).copied().unwrap_or_default();
            return AcquireVerdict::Busy { left };
        }
        let silent = self.count(|b| *b == Ballot::Silent);
        if willing + busy.len() + silent >= quorum {
            return AcquireVerdict::Unanswered;
        }
        let mut waits: Vec<_> = (self.ballots.iter().filter_map(given))
            .filter_map(|vote| match vote {
                Vote::Quarantined { left } => Some(left),
                _ => None,
            })
            .collect();
        waits.sort_unstable();
        let needed = quorum - willing - busy.len();
        AcquireVerdict::Refused {
            left: waits.get(needed - 1).copied(),
        }
    }
}

#[cfg(test)]
mod tests;
