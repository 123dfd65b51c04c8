//! Locks on several independent servers (Redlock): a majority of votes decides.
//!
//! Each member of the set is an ordinary store with a [`Queue`](crate::Queue) per key and one
//! [`ServerMarker`](crate::ServerMarker) for itself. A [`QuorumRound`] sends one command with a
//! [`Proposal`](crate::Proposal) to all members, and folds their replies into one verdict; a
//! [`QuorumRelease`] takes a claim back everywhere. `docs/proof/quorum.md` in the repository
//! explains why this is safe, and under which assumptions.
//!
//! The client proposes the token. A member accepts it only if it is higher than all tokens that
//! it has seen. Two successful rounds share at least one member, so the later one has the higher
//! token, whatever the clocks show.

mod release;
mod round;

pub use release::{QuorumRelease, ReleaseVerdict};
pub use round::{Proposed, QuorumRound, RoundConfig, RoundVerdict};

use crate::Invalid;

/// The number of servers, and the size of the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuorumSize {
    servers: usize,
    quorum: usize,
}

impl QuorumSize {
    /// The most servers.
    pub const MAX_SERVERS: usize = 32;

    /// Makes the size of a set: `servers` servers, and the smallest majority of them, or a larger
    /// quorum.
    ///
    /// # Errors
    /// [`Invalid`] below 3 or above [`QuorumSize::MAX_SERVERS`] servers, and for a quorum that is
    /// not a majority, or larger than the number of servers.
    pub fn new(servers: usize, quorum: Option<usize>) -> Result<Self, Invalid> {
        let most = Self::MAX_SERVERS;
        if !(3..=most).contains(&servers) {
            return Err(Invalid::new(
                format!("{servers} servers cannot form a quorum"),
                format!("name 3 to {most} servers; 5 is a good choice"),
            ));
        }
        let majority = servers / 2 + 1;
        let quorum = quorum.unwrap_or(majority);
        if !(majority..=servers).contains(&quorum) {
            return Err(Invalid::new(
                format!("a quorum cannot be {quorum} of {servers} servers"),
                format!("choose {majority} to {servers}"),
            ));
        }
        Ok(Self { servers, quorum })
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn servers(self) -> usize {
        self.servers
    }

    /// Returns how many servers must agree.
    #[must_use]
    pub fn quorum(self) -> usize {
        self.quorum
    }

    /// Returns how many servers may be down while locks are still granted.
    #[must_use]
    pub fn may_be_down(self) -> usize {
        self.servers - self.quorum
    }

    /// Returns how many servers may lose data or step their clocks without two clients holding at
    /// the same time: any two quorums share one server more than that. The smallest majority of
    /// an odd number tolerates none.
    #[must_use]
    pub fn may_misbehave(self) -> usize {
        2 * self.quorum - self.servers - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_quorum_bears() {
        for (servers, quorum, down, misbehaving) in [
            (3, None, 1, 0),
            (3, Some(3), 0, 2),
            (4, None, 1, 1),
            (5, None, 2, 0),
            (5, Some(4), 1, 2),
            (5, Some(5), 0, 4),
            (7, Some(5), 2, 2),
        ] {
            let size = QuorumSize::new(servers, quorum).unwrap();
            assert_eq!(size.may_be_down(), down, "{size:?}");
            assert_eq!(size.may_misbehave(), misbehaving, "{size:?}");
        }
    }

    #[test]
    fn what_is_no_quorum_is_refused() {
        for (servers, quorum) in [
            (0, None),
            (2, None),
            (33, None),
            (5, Some(2)),
            (4, Some(2)),
            (5, Some(6)),
        ] {
            assert!(QuorumSize::new(servers, quorum).is_err());
        }
    }
}
