use super::{QuorumSize, Vote};
use crate::Moment;

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RenewalVerdict {
    /// A quorum keeps its votes: the lease is valid for another TTL, counted from the sending.
    Held,
    /// Too many servers no longer vote for the claim, so there is no quorum.
    Gone,
    /// Too few servers have answered: the result is unknown.
    Unanswered,
}

/// One renewal of a holding claim: counts the votes.
///
/// If the result is unknown, [`crate::Life`] repeats the renewal until the validity of the lease
/// is over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuorumRenewal {
    size: QuorumSize,
    deadline: Moment,
    /// `None`: not answered yet.
    ballots: Vec<Option<Ballot>>,
    verdict: Option<RenewalVerdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ballot {
    Yes,
    No,
    /// Nothing that says whether the vote stands.
    Unknown,
}

impl QuorumRenewal {
    /// Starts a renewal that is sent to every server now. Answers may take until `deadline`.
    #[must_use]
    pub fn new(size: QuorumSize, deadline: Moment) -> Self {
        Self {
            size,
            deadline,
            ballots: vec![None; size.servers()],
            verdict: None,
        }
    }

    /// Returns the result, once it is known.
    #[must_use]
    pub fn verdict(&self) -> Option<RenewalVerdict> {
        self.verdict
    }

    /// Returns when to call [`QuorumRenewal::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.verdict.is_none().then_some(self.deadline)
    }

    /// Handles that time has passed. Early calls are allowed.
    pub fn handle_timeout(&mut self, now: Moment) {
        if now >= self.deadline {
            for ballot in &mut self.ballots {
                ballot.get_or_insert(Ballot::Unknown);
            }
            self.decide();
        }
    }

    /// Handles a server's answer.
    pub fn handle_vote(&mut self, server: usize, vote: Vote) {
        let ballot = match vote {
            Vote::Yes => Ballot::Yes,
            // It will say so itself once it votes again.
            Vote::Quarantined { .. } | Vote::Foreign => Ballot::Unknown,
            _ => Ballot::No,
        };
        self.put(server, ballot);
    }

    /// Handles that a server did not answer.
    pub fn handle_silence(&mut self, server: usize) {
        self.put(server, Ballot::Unknown);
    }

    fn put(&mut self, server: usize, ballot: Ballot) {
        if let Some(place) = self.ballots.get_mut(server) {
            *place = Some(ballot);
        }
        self.decide();
    }

    fn decide(&mut self) {
        if self.verdict.is_some() {
            return;
        }
        let count = |like: Option<Ballot>| self.ballots.iter().filter(|b| **b == like).count();
        let (yes, no, open) = (
            count(Some(Ballot::Yes)),
            count(Some(Ballot::No)),
            count(None),
        );
        let quorum = self.size.quorum();
        if yes >= quorum {
            self.verdict = Some(RenewalVerdict::Held);
        } else if self.size.servers() - no < quorum {
            self.verdict = Some(RenewalVerdict::Gone);
        } else if yes + open < quorum {
            self.verdict = Some(RenewalVerdict::Unanswered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn extension(votes: &[Option<Vote>]) -> Option<RenewalVerdict> {
        let size = QuorumSize::new(5, None).unwrap();
        let mut extension = QuorumRenewal::new(size, Moment(100));
        for (server, vote) in votes.iter().enumerate() {
            match vote {
                Some(vote) => extension.handle_vote(server, *vote),
                None => extension.handle_silence(server),
            }
        }
        extension.verdict()
    }

    #[test]
    fn a_quorum_keeps_and_too_many_refusals_end_it() {
        let (yes, no, silent) = (Some(Vote::Yes), Some(Vote::Lost), None);
        let left = Duration::from_secs(1);
        let quarantined = Some(Vote::Quarantined { left });
        use RenewalVerdict::{Gone, Held, Unanswered};
        assert_eq!(extension(&[yes, no, silent, yes, yes]), Some(Held));
        assert_eq!(extension(&[no, yes, no, yes]), None);
        assert_eq!(extension(&[no, yes, no, yes, no]), Some(Gone));
        assert_eq!(extension(&[no, no, no]), Some(Gone));
        assert_eq!(extension(&[yes, yes, no, no, silent]), Some(Unanswered));
        assert_eq!(
            extension(&[silent, quarantined, quarantined]),
            Some(Unanswered)
        );
    }

    #[test]
    fn who_is_late_is_silent() {
        let size = QuorumSize::new(3, None).unwrap();
        let mut extension = QuorumRenewal::new(size, Moment(100));
        extension.handle_vote(0, Vote::Yes);
        extension.handle_timeout(Moment(99));
        assert_eq!(extension.poll_timeout(), Some(Moment(100)));
        extension.handle_timeout(Moment(100));
        assert_eq!(extension.verdict(), Some(RenewalVerdict::Unanswered));
        extension.handle_vote(1, Vote::Yes);
        assert_eq!(extension.verdict(), Some(RenewalVerdict::Unanswered));
    }
}
