use std::time::Duration;

use super::QuorumSize;
use crate::validity::reliable;
use crate::{Moment, Reply, StoreTime, Token};

/// How often one round proposes a token at most: a rival that does the same is met again after a
/// pause.
const PROPOSALS: u32 = 4;

/// The settings of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoundConfig {
    /// How many members, and how many have to agree.
    pub size: QuorumSize,
    /// How long the claim lives.
    pub ttl: Duration,
    /// How long one member's answer may take.
    pub patience: Duration,
}

/// What a claim has proposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed {
    /// The token.
    pub token: Token,
    /// When it was proposed.
    pub at: Moment,
    /// Whether a quorum has voted for the claim.
    pub held: bool,
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoundVerdict {
    /// A quorum votes for the claim: the lease is valid for a TTL, counted from the sending.
    Held {
        /// The fencing token.
        token: Token,
    },
    /// Too many members vote for other claims.
    Busy {
        /// After how long enough of these votes have expired, at the earliest.
        left: Duration,
    },
    /// The claim id belongs to another client.
    Taken,
    /// The claim held before, and no quorum votes for it any more; or it was released.
    Gone,
    /// Too many members refused to vote.
    Refused {
        /// After how long enough of them may vote, if they only wait for the end of a quarantine.
        left: Option<Duration>,
    },
    /// Too many members did not answer in time. The claim may have votes, so it must be repeated
    /// or released.
    Unanswered,
}

/// What a member said to the current proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ballot {
    Unsent,
    Open,
    Silent,
    Yes,
    Busy(Duration),
    /// It has seen a higher token.
    Stale,
    /// The token is too far ahead of its clock.
    Skewed,
    /// It does not vote for the claim any more.
    Lost,
    Taken,
    Quarantined(Duration),
}

/// One attempt to get a quorum of votes for a claim, or to keep it. It proposes a token, counts
/// the votes, and proposes a higher token if members have seen one.
///
/// The result of each transmission must be passed to [`QuorumRound::handle_reply`] or
/// [`QuorumRound::handle_silence`]; after the verdict this is optional.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuorumRound {
    config: RoundConfig,
    started: Moment,
    sent: Moment,
    token: Token,
    seen: Token,
    ballots: Vec<Ballot>,
    proposals: u32,
    /// It has held with this token: another would be another hold.
    fixed: bool,
    verdict: Option<RoundVerdict>,
}

impl QuorumRound {
    /// Starts an attempt with the token `max(seen + 1, wall)`. `seen` is the highest token of the
    /// key that this client knows; `wall` is its wall-clock time in microseconds.
    #[must_use]
    pub fn new(config: RoundConfig, seen: Token, wall: u64, now: Moment) -> Self {
        let token = Token(wall.max(seen.0.saturating_add(1)));
        Self::with(config, token, false, now)
    }

    /// Repeats an attempt of the same claim with the token that it has already proposed. If the
    /// claim has held with that token, it finds that hold or none: this is how a lease is
    /// renewed. If it has not, and proposed the token more than half a TTL ago, it proposes
    /// another one: members may have lost higher tokens since, and may have ended their
    /// quarantine.
    #[must_use]
    pub fn again(config: RoundConfig, before: Proposed, wall: u64, now: Moment) -> Self {
        if now.since(before.at) >= config.ttl / 2 && !before.held {
            return Self::new(config, before.token, wall, now);
        }
        Self::with(config, before.token, before.held, now)
    }

    fn with(config: RoundConfig, token: Token, fixed: bool, now: Moment) -> Self {
        Self {
            ballots: vec![Ballot::Unsent; config.size.servers()],
            config,
            started: now,
            sent: now,
            token,
            seen: Token::NONE,
            proposals: 1,
            fixed,
            verdict: None,
        }
    }

    /// Returns the proposed token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the highest token that members have named.
    #[must_use]
    pub fn seen(&self) -> Token {
        self.seen
    }

    /// Returns the result, once it is known.
    #[must_use]
    pub fn verdict(&self) -> Option<RoundVerdict> {
        self.verdict
    }

    /// Returns the next member to ask, and the token.
    pub fn poll_transmit(&mut self) -> Option<(usize, Token)> {
        if self.verdict.is_some() {
            return None;
        }
        let server = self.ballots.iter().position(|b| *b == Ballot::Unsent)?;
        self.ballots[server] = Ballot::Open;
        Some((server, self.token))
    }

    /// Returns when to call [`QuorumRound::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let round = self.sent + self.config.patience;
        self.verdict.is_none().then(|| round.min(self.end()))
    }

    /// Handles that time has passed: members without an answer count as silent. Early calls are
    /// allowed.
    pub fn handle_timeout(&mut self, now: Moment) {
        if now >= (self.sent + self.config.patience).min(self.end()) {
            for ballot in &mut self.ballots {
                if matches!(ballot, Ballot::Open | Ballot::Unsent) {
                    *ballot = Ballot::Silent;
                }
            }
        }
        self.decide(now);
    }

    /// Handles a member's reply to the proposal of `token`, given at its time `at`.
    pub fn handle_reply(
        &mut self,
        now: Moment,
        member: usize,
        token: Token,
        reply: Reply,
        at: StoreTime,
    ) {
        if let Reply::Outbid { highest, .. } = reply {
            self.seen = self.seen.max(highest);
        }
        // A member without tokens says none.
        let ours = |it: Token| it == token || it.is_none();
        let ballot = match reply {
            Reply::Standing(standing) if standing.token.is_some_and(ours) => Ballot::Yes,
            Reply::Busy { blocked_until } => Ballot::Busy(blocked_until.since(at)),
            Reply::Outbid { most, .. } if token > most => Ballot::Skewed,
            Reply::Outbid { .. } => Ballot::Stale,
            Reply::Taken => Ballot::Taken,
            Reply::Quarantined { until } => Ballot::Quarantined(until.since(at)),
            _ => Ballot::Lost,
        };
        self.put(now, member, token, ballot);
    }

    /// Handles that a member did not answer.
    pub fn handle_silence(&mut self, now: Moment, member: usize, token: Token) {
        self.put(now, member, token, Ballot::Silent);
    }

    fn put(&mut self, now: Moment, member: usize, token: Token, ballot: Ballot) {
        if token == self.token
            && let Some(place) = self.ballots.get_mut(member)
            && (ballot != Ballot::Silent || matches!(place, Ballot::Open | Ballot::Unsent))
        {
            *place = ballot;
        }
        self.decide(now);
    }

    /// From when on a quorum would come too late.
    fn end(&self) -> Moment {
        self.started + reliable(self.config.ttl)
    }

    fn count(&self, like: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().filter(|b| like(b)).count()
    }

    fn decide(&mut self, now: Moment) {
        if self.verdict.is_some() {
            return;
        }
        if now >= self.end() {
            self.verdict = Some(RoundVerdict::Unanswered);
            return;
        }
        let quorum = self.config.size.quorum();
        let yes = self.count(|b| *b == Ballot::Yes);
        let open = self.count(|b| matches!(b, Ballot::Open | Ballot::Unsent));
        let stale = self.count(|b| *b == Ballot::Stale);
        if yes >= quorum {
            self.verdict = Some(RoundVerdict::Held { token: self.token });
        } else if yes + open >= quorum {
            // Not decided yet.
        } else if self.count(|b| *b == Ballot::Taken) > 0 {
            self.verdict = Some(RoundVerdict::Taken);
        } else if self.fixed {
            let unknown = self.count(|b| matches!(b, Ballot::Silent | Ballot::Quarantined(_)));
            self.verdict = Some(match yes + unknown + open >= quorum {
                true => RoundVerdict::Unanswered,
                false => RoundVerdict::Gone,
            });
        } else if yes + open + stale >= quorum && self.proposals < PROPOSALS {
            // The members that voted already are asked for the new token too: all
            // votes of a quorum are for one.
            self.proposals += 1;
            self.sent = now;
            self.token = Token(self.seen.0.max(self.token.0).saturating_add(1));
            self.ballots.fill(Ballot::Unsent);
        } else {
            // Others' votes alone decide at once; for any other reason those who
            // have not answered yet may know better.
            let busy = self.count(|b| matches!(b, Ballot::Busy(_)));
            if open == 0 || busy > self.config.size.may_be_down() {
                self.verdict = Some(self.lost(yes + open + stale));
            }
        }
    }

    /// No quorum can come of it; so many members are `willing`: they vote for us or would.
    fn lost(&self, willing: usize) -> RoundVerdict {
        let quorum = self.config.size.quorum();
        // When enough of those who name a time may vote.
        let after = |needed: usize, time: fn(&Ballot) -> Option<Duration>| {
            let mut times: Vec<_> = self.ballots.iter().filter_map(time).collect();
            times.sort_unstable();
            times.get(needed.max(1) - 1).copied()
        };
        let busy = self.count(|b| matches!(b, Ballot::Busy(_)));
        if willing + busy >= quorum {
            let left = after(quorum.saturating_sub(willing), |ballot| match ballot {
                Ballot::Busy(left) => Some(*left),
                _ => None,
            });
            let left = left.unwrap_or_default();
            return RoundVerdict::Busy { left };
        }
        if willing + busy + self.count(|b| *b == Ballot::Silent) >= quorum {
            return RoundVerdict::Unanswered;
        }
        if self.count(|b| *b == Ballot::Lost) > 0 {
            return RoundVerdict::Gone;
        }
        let left = after(quorum - willing - busy, |ballot| match ballot {
            Ballot::Quarantined(left) => Some(*left),
            _ => None,
        });
        RoundVerdict::Refused { left }
    }
}

#[cfg(test)]
mod tests;
