use std::time::Duration;

use super::QuorumSize;
use crate::{Backoff, Moment};

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseVerdict {
    /// The claim was released, and had held the key until then.
    Held,
    /// The claim was released; no quorum confirms that it had held the key.
    NotHeld,
}

/// The release of one claim: it is sent to every server repeatedly, until each has confirmed it,
/// or until the votes have expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuorumRelease {
    size: QuorumSize,
    until: Moment,
    /// Whether the lease was valid by its own clock when it was given back.
    valid: bool,
    servers: Vec<Server>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Server {
    due: Moment,
    in_flight: bool,
    asked: bool,
    confirmed: Option<Found>,
    backoff: Backoff,
}

/// What a server had when it confirmed the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Found {
    Vote,
    NoVote,
    /// No vote, but the release was repeated: the one before may have ended the vote, and its answer
    /// was lost.
    NoVoteLeft,
}

impl QuorumRelease {
    /// Starts a release at `now`. The votes will have expired by `until`; `valid` says whether
    /// the lease was still valid.
    #[must_use]
    pub fn new(size: QuorumSize, now: Moment, until: Moment, valid: bool, seed: u64) -> Self {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(1));
        let server = |number| Server {
            due: now,
            in_flight: false,
            asked: false,
            confirmed: None,
            backoff: Backoff::new(first, longest, seed.wrapping_add(number)),
        };
        let servers = (0..size.servers() as u64).map(server).collect();
        Self {
            size,
            until,
            valid,
            servers,
        }
    }

    /// Returns the next server to send to, if one is due.
    pub fn poll_transmit(&mut self, now: Moment) -> Option<usize> {
        if now >= self.until && self.servers.iter().all(|server| server.asked) {
            return None;
        }
        let due = |s: &Server| s.confirmed.is_none() && !s.in_flight && s.due <= now;
        let server = self.servers.iter().position(due)?;
        self.servers[server].in_flight = true;
        self.servers[server].asked = true;
        Some(server)
    }

    /// Returns when to call [`QuorumRelease::poll_transmit`] next; `None` if only answers remain
    /// to be handled.
    #[must_use]
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        if now >= self.until && self.servers.iter().all(|server| server.asked) {
            return None;
        }
        let due = |s: &Server| (s.confirmed.is_none() && !s.in_flight).then_some(s.due);
        Some(self.servers.iter().filter_map(due).min()?.min(self.until))
    }

    /// Returns whether nothing is left to do at `now`.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        let answered = self.servers.iter().all(|s| s.confirmed.is_some());
        answered || (now >= self.until && self.servers.iter().all(|s| s.asked && !s.in_flight))
    }

    /// Handles that a server has released the vote; `held` says whether there was one.
    pub fn handle_released(&mut self, server: usize, held: bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.in_flight = false;
            let found = match held {
                true => Found::Vote,
                false if server.backoff.is_fresh() => Found::NoVote,
                false => Found::NoVoteLeft,
            };
            // A second answer is about nothing.
            server.confirmed.get_or_insert(found);
        }
    }

    /// Handles that a server did not answer.
    pub fn handle_silence(&mut self, now: Moment, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.in_flight = false;
            server.due = now + server.backoff.pause();
        }
    }

    /// Returns whether the claim was released, once a quorum has released its votes and can vote
    /// for another claim.
    #[must_use]
    pub fn verdict(&self) -> Option<ReleaseVerdict> {
        let quorum = self.size.quorum();
        let count = |like| self.servers.iter().filter(|s| s.confirmed == like).count();
        let held = count(Some(Found::Vote));
        let maybe_held = held + count(Some(Found::NoVoteLeft));
        let open = count(None);
        if held >= quorum {
            return Some(ReleaseVerdict::Held);
        }
        let confirmed = self.servers.len() - open;
        // Whether a server has not yet had its time for a first answer.
        let mut asked = self.servers.iter().filter(|s| s.in_flight);
        let first_is_open = asked.any(|s| s.confirmed.is_none());
        if confirmed < quorum || (maybe_held + open >= quorum && first_is_open) {
            return None;
        }
        Some(if self.valid && (held > 0 || maybe_held >= quorum) {
            ReleaseVerdict::Held
        } else {
            ReleaseVerdict::NotHeld
        })
    }

    /// Returns the servers that have not confirmed the release.
    pub fn unconfirmed(&self) -> impl Iterator<Item = usize> {
        let open = |(n, s): (usize, &Server)| s.confirmed.is_none().then_some(n);
        self.servers.iter().enumerate().filter_map(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Moment = Moment(30_000_000);

    fn farewell(valid: bool) -> QuorumRelease {
        let size = QuorumSize::new(5, None).unwrap();
        let mut farewell = QuorumRelease::new(size, Moment(0), UNTIL, valid, 1);
        for server in 0..5 {
            assert_eq!(farewell.poll_transmit(Moment(0)), Some(server));
        }
        assert_eq!(farewell.poll_transmit(Moment(0)), None);
        farewell
    }

    #[test]
    fn each_server_is_told_until_it_confirms() {
        let mut farewell = farewell(true);
        for server in 0..3 {
            assert_eq!(farewell.verdict(), None);
            farewell.handle_released(server, true);
        }
        assert_eq!(farewell.verdict(), Some(ReleaseVerdict::Held));
        assert!(!farewell.is_over(Moment(0)));
        farewell.handle_silence(Moment(5), 3);
        farewell.handle_released(4, true);
        let again = farewell.poll_timeout(Moment(5)).unwrap();
        assert!(again > Moment(5) && again <= Moment(50_005));
        assert_eq!(farewell.poll_transmit(again), Some(3));
        assert_eq!(farewell.unconfirmed().collect::<Vec<_>>(), [3]);
        farewell.handle_released(3, false);
        assert!(farewell.is_over(again));
    }

    #[test]
    fn it_ends_when_the_votes_have_lapsed() {
        let mut farewell = farewell(true);
        for server in 0..5 {
            farewell.handle_silence(Moment(5), server);
        }
        assert_eq!(farewell.verdict(), None);
        assert!(!farewell.is_over(Moment(6)));
        assert_eq!(farewell.poll_transmit(UNTIL), None);
        assert!(farewell.is_over(UNTIL));
    }

    #[test]
    fn what_was_ours_is_said_as_well_as_it_can_be() {
        // Two servers are down, one of three has lost its data.
        for (valid, verdict) in [
            (true, ReleaseVerdict::Held),
            (false, ReleaseVerdict::NotHeld),
        ] {
            let mut farewell = farewell(valid);
            farewell.handle_released(0, true);
            farewell.handle_released(1, true);
            farewell.handle_released(2, false);
            assert_eq!(farewell.verdict(), None, "the others may answer");
            farewell.handle_silence(Moment(1), 3);
            farewell.handle_silence(Moment(1), 4);
            assert_eq!(farewell.verdict(), Some(verdict));
        }
        let mut farewell = farewell(true);
        for server in 0..3 {
            farewell.handle_released(server, false);
        }
        assert_eq!(farewell.verdict(), Some(ReleaseVerdict::NotHeld));
    }

    #[test]
    fn a_repeated_release_that_finds_nothing_may_have_been_carried_out_before() {
        // `lost` first answers are lost, and the other servers never had the vote.
        for (lost, verdict) in [
            (3, ReleaseVerdict::Held),
            (2, ReleaseVerdict::NotHeld),
            (0, ReleaseVerdict::NotHeld),
        ] {
            let mut farewell = farewell(true);
            for server in 0..lost {
                farewell.handle_silence(Moment(1), server);
            }
            let again = Moment(60_000);
            let sent = std::iter::from_fn(|| farewell.poll_transmit(again));
            assert_eq!(sent.count(), lost);
            for server in 0..5 {
                farewell.handle_released(server, false);
            }
            assert_eq!(farewell.verdict(), Some(verdict), "{lost} answers lost");
        }
    }
}
