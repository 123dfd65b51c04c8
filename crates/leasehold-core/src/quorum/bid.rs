use std::time::Duration;

use super::{QuorumSize, Vote};
use crate::mutant::mutated;
use crate::{Moment, Token, drift_allowance};

/// How often one bid proposes another token at most: a rival that does the same
/// is met again after a pause.
const ROUNDS: u32 = 4;

/// How a claim bids for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BidConfig {
    /// How many servers, and how many have to agree.
    pub size: QuorumSize,
    /// For how long the claim shall live.
    pub ttl: Duration,
    /// How long one server's answer may take.
    pub patience: Duration,
}

/// How a bid ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BidVerdict {
    /// A quorum votes for the claim.
    Held {
        /// The fencing token.
        token: Token,
    },
    /// Too many servers vote for others.
    Busy {
        /// After how long enough of these votes have lapsed, at the earliest.
        left: Duration,
    },
    /// The claim id is another client's.
    Taken,
    /// The claim held before, and no quorum votes for it any more.
    Gone,
    /// Too many servers refused to vote.
    Refused {
        /// After how long enough of them may vote, where all others wait for
        /// the end of a quarantine.
        left: Option<Duration>,
    },
    /// Too many servers gave no answer, or none in time. The claim may have
    /// votes: it is to ask again, or to be released.
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

/// One attempt to get a quorum of votes for one claim: proposes a token, counts,
/// proposes a higher one where servers have seen more, and says how it ended.
///
/// Each transmission must be answered by [`Bid::handle_vote`] or
/// [`Bid::handle_silence`]; after the verdict that is optional.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bid {
    config: BidConfig,
    started: Moment,
    round_started: Moment,
    token: Token,
    /// The highest token heard of.
    seen: Token,
    ballots: Vec<Ballot>,
    rounds: u32,
    /// It has held with this token: another would be another hold.
    fixed: bool,
    verdict: Option<BidVerdict>,
}

impl Bid {
    /// A bid with the token `max(seen + 1, wall)`; `seen` is the highest token
    /// that this client has heard of for the key, `wall` its time of day in
    /// microseconds.
    #[must_use]
    pub fn new(config: BidConfig, seen: Token, wall: u64, now: Moment) -> Self {
        let token = Token(wall.max(seen.0.saturating_add(1)));
        Self::with(config, token, seen, now)
    }

    /// The same claim asks again with the token that it has proposed already. If
    /// it `has_held` with that, it finds that hold or none.
    #[must_use]
    pub fn again(
        config: BidConfig,
        token: Token,
        seen: Token,
        has_held: bool,
        now: Moment,
    ) -> Self {
        let mut bid = Self::with(config, token, seen, now);
        bid.fixed = has_held;
        bid
    }

    fn with(config: BidConfig, token: Token, seen: Token, now: Moment) -> Self {
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

    /// The token that is proposed now.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The highest token heard of.
    #[must_use]
    pub fn seen(&self) -> Token {
        self.seen
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn verdict(&self) -> Option<BidVerdict> {
        self.verdict
    }

    /// The next server to ask, and with which token.
    pub fn poll_transmit(&mut self) -> Option<(usize, Token)> {
        if self.verdict.is_some() {
            return None;
        }
        let server = self.ballots.iter().position(|b| *b == Ballot::Unsent)?;
        self.ballots[server] = Ballot::Open;
        Some((server, self.token))
    }

    /// When [`Bid::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let round = self.round_started + self.config.patience;
        self.verdict.is_none().then(|| round.min(self.end()))
    }

    /// Time has passed: who has not answered is taken for silent. Tolerates
    /// early calls.
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

    /// A server's answer to the proposal of `token`.
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

    /// No answer came, or none will.
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
            self.verdict = Some(BidVerdict::Unanswered);
            return;
        }
        let quorum = self.config.size.quorum();
        let yes = self.count(|b| *b == Ballot::Given(Vote::Yes));
        let open = self.count(|b| matches!(b, Ballot::Open | Ballot::Unsent));
        let stale = self.count(|b| matches!(b, Ballot::Given(Vote::Stale { .. })));
        if yes + usize::from(mutated("majority")) >= quorum {
            self.verdict = Some(BidVerdict::Held { token: self.token });
        } else if yes + open >= quorum {
            // Not decided yet.
        } else if self.count(|b| *b == Ballot::Given(Vote::Taken)) > 0 {
            self.verdict = Some(BidVerdict::Taken);
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
    fn found_no_more(&self, open: usize) -> BidVerdict {
        let silent = self.count(|b| {
            matches!(
                b,
                Ballot::Silent | Ballot::Given(Vote::Quarantined { .. } | Vote::Foreign)
            )
        });
        let yes = self.count(|b| *b == Ballot::Given(Vote::Yes));
        if yes + silent + open >= self.config.size.quorum() {
            BidVerdict::Unanswered
        } else {
            BidVerdict::Gone
        }
    }

    /// No quorum can come of it; `willing` servers vote for us or would.
    fn lost(&self, willing: usize) -> BidVerdict {
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
            return BidVerdict::Busy { left };
        }
        let silent = self.count(|b| *b == Ballot::Silent);
        if willing + busy.len() + silent >= quorum {
            return BidVerdict::Unanswered;
        }
        let mut waits: Vec<_> = (self.ballots.iter().filter_map(given))
            .filter_map(|vote| match vote {
                Vote::Quarantined { left } => Some(left),
                _ => None,
            })
            .collect();
        waits.sort_unstable();
        let needed = quorum - willing - busy.len();
        BidVerdict::Refused {
            left: waits.get(needed - 1).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const WALL: u64 = 1_000_000;

    fn config(servers: usize, quorum: Option<usize>) -> BidConfig {
        BidConfig {
            size: QuorumSize::new(servers, quorum).unwrap(),
            ttl: TTL,
            patience: Duration::from_millis(100),
        }
    }

    fn bid(servers: usize) -> Bid {
        let mut bid = Bid::new(config(servers, None), Token(0), WALL, Moment(0));
        ask(&mut bid);
        bid
    }

    fn ask(bid: &mut Bid) -> usize {
        std::iter::from_fn(|| bid.poll_transmit()).count()
    }

    fn vote(bid: &mut Bid, server: usize, vote: Vote) {
        bid.handle_vote(Moment(1), server, bid.token(), vote);
    }

    fn busy(millis: u64) -> Vote {
        Vote::Busy {
            left: Duration::from_millis(millis),
            highest: Token(7),
        }
    }

    #[test]
    fn a_quorum_of_votes_decides_at_once() {
        let mut bid = bid(5);
        vote(&mut bid, 3, Vote::Yes);
        vote(&mut bid, 0, Vote::Yes);
        assert_eq!(bid.verdict(), None);
        vote(&mut bid, 1, Vote::Yes);
        let token = Token(WALL);
        assert_eq!(bid.verdict(), Some(BidVerdict::Held { token }));
        let mut four = Bid::new(config(5, Some(4)), Token(WALL), WALL, Moment(0));
        assert_eq!((ask(&mut four), four.token()), (5, Token(WALL + 1)));
        for server in 0..3 {
            vote(&mut four, server, Vote::Yes);
        }
        assert_eq!(four.verdict(), None);
    }

    #[test]
    fn a_server_that_has_seen_more_gets_another_proposal() {
        let mut bid = bid(3);
        vote(&mut bid, 0, Vote::Yes);
        let highest = Token(WALL + 50);
        vote(&mut bid, 1, Vote::Stale { highest });
        assert_eq!((bid.token(), bid.verdict()), (Token(WALL), None));
        vote(&mut bid, 2, Vote::Stale { highest });
        assert_eq!(bid.token(), Token(WALL + 51));
        assert_eq!(ask(&mut bid), 3, "also who has voted");
        // An answer to the old proposal counts for nothing.
        bid.handle_vote(Moment(1), 0, Token(WALL), Vote::Yes);
        vote(&mut bid, 0, Vote::Yes);
        assert_eq!(bid.verdict(), None);
        vote(&mut bid, 1, Vote::Yes);
        assert!(matches!(bid.verdict(), Some(BidVerdict::Held { token }) if token.0 == WALL + 51));
    }

    #[test]
    fn rivals_do_not_outbid_each_other_forever() {
        let mut bid = bid(3);
        for round in 1..=ROUNDS {
            let token = bid.token();
            for server in 0..2 {
                let highest = Token(token.0 + 5);
                bid.handle_vote(Moment(1), server, token, Vote::Stale { highest });
            }
            assert_eq!(bid.token() > token, round < ROUNDS);
            ask(&mut bid);
        }
        assert_eq!(bid.verdict(), None, "the third may vote for another");
        bid.handle_silence(Moment(1), 2, bid.token());
        assert_eq!(
            bid.verdict(),
            Some(BidVerdict::Busy {
                left: Duration::ZERO
            })
        );
    }

    #[test]
    fn busy_says_when_enough_votes_lapse() {
        let mut bid = bid(5);
        for (server, millis) in [(0, 30), (1, 10), (2, 20)] {
            vote(&mut bid, server, busy(millis));
        }
        let left = Duration::from_millis(10);
        assert_eq!(bid.verdict(), Some(BidVerdict::Busy { left }));
        let mut bid = self::bid(3);
        vote(&mut bid, 0, busy(30));
        bid.handle_silence(Moment(1), 1, bid.token());
        assert_eq!(bid.verdict(), None);
        vote(&mut bid, 2, Vote::Yes);
        assert_eq!(
            bid.verdict(),
            Some(BidVerdict::Busy {
                left: Duration::from_millis(30)
            })
        );
    }

    #[test]
    fn too_many_silent_servers_are_no_answer() {
        let mut bid = bid(5);
        for server in 0..2 {
            vote(&mut bid, server, Vote::Yes);
        }
        bid.handle_timeout(Moment(99_999));
        assert_eq!(bid.verdict(), None);
        assert_eq!(bid.poll_timeout(), Some(Moment(100_000)));
        bid.handle_timeout(Moment(100_000));
        assert_eq!(bid.verdict(), Some(BidVerdict::Unanswered));
        assert_eq!((bid.poll_transmit(), bid.poll_timeout()), (None, None));
    }

    #[test]
    fn a_quorum_that_comes_too_late_is_none() {
        let mut bid = bid(3);
        vote(&mut bid, 0, Vote::Yes);
        let late = (Moment(0) + TTL).before(drift_allowance(TTL));
        bid.handle_vote(late, 1, bid.token(), Vote::Yes);
        assert_eq!(bid.verdict(), Some(BidVerdict::Unanswered));
    }

    #[test]
    fn a_quarantine_says_when_to_come_back() {
        let mut bid = bid(3);
        for (server, secs) in [(0, 3), (2, 2)] {
            let left = Duration::from_secs(secs);
            vote(&mut bid, server, Vote::Quarantined { left });
        }
        vote(&mut bid, 1, Vote::Yes);
        let left = Some(Duration::from_secs(2));
        assert_eq!(bid.verdict(), Some(BidVerdict::Refused { left }));
        let mut bid = self::bid(3);
        vote(&mut bid, 0, Vote::Foreign);
        vote(&mut bid, 1, Vote::Foreign);
        assert_eq!(bid.verdict(), None, "the third may vote for another");
        vote(&mut bid, 2, Vote::Yes);
        assert_eq!(bid.verdict(), Some(BidVerdict::Refused { left: None }));
    }

    #[test]
    fn who_held_before_finds_that_hold_or_none() {
        let again = || {
            let mut bid = Bid::again(config(3, None), Token(9), Token(9), true, Moment(0));
            ask(&mut bid);
            bid
        };
        let mut bid = again();
        vote(&mut bid, 0, Vote::Yes);
        vote(&mut bid, 1, Vote::Yes);
        assert_eq!(bid.verdict(), Some(BidVerdict::Held { token: Token(9) }));
        let mut bid = again();
        let highest = Token(10);
        vote(&mut bid, 0, Vote::Stale { highest });
        vote(&mut bid, 1, Vote::Stale { highest });
        assert_eq!(bid.verdict(), Some(BidVerdict::Gone));
    }

    #[test]
    fn an_id_of_another_is_taken() {
        let mut bid = bid(3);
        vote(&mut bid, 2, Vote::Taken);
        assert_eq!(bid.verdict(), None);
        vote(&mut bid, 0, Vote::Taken);
        assert_eq!(bid.verdict(), Some(BidVerdict::Taken));
    }

    /// Another may have come to one server first.
    #[test]
    fn one_server_does_not_take_an_id_from_who_has_a_quorum() {
        let mut bid = Bid::again(config(3, None), Token(9), Token(9), true, Moment(0));
        ask(&mut bid);
        vote(&mut bid, 2, Vote::Taken);
        vote(&mut bid, 0, Vote::Yes);
        assert_eq!(bid.verdict(), None);
        vote(&mut bid, 1, Vote::Yes);
        assert_eq!(bid.verdict(), Some(BidVerdict::Held { token: Token(9) }));
    }
}
