use std::time::Duration;

use super::Body;
use crate::{ClaimId, Token};

/// A request for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// For which claim.
    pub id: ClaimId,
    /// The token that it proposes.
    pub token: Token,
    /// For how long.
    pub ttl: Duration,
    /// What it says about itself.
    pub body: Body,
    /// Whether to wake it when the key is released, if it is busy now.
    pub wait: bool,
    /// How far ahead of the server's clock a token may be: a client whose clock
    /// has gone mad must not use up the numbers.
    pub ahead: Duration,
}

/// A request to vote on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extend {
    /// What was asked for when it was acquired; `wait` does not count.
    pub vote: Acquire,
    /// Whether a server that lacks the claim shall take it up again, by the
    /// rules of an acquisition.
    pub repair: bool,
}

/// A request to forget a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which claim.
    pub id: ClaimId,
    /// Its highest token that may still be under way: it is refused from now on.
    /// Zero where none can be.
    pub token: Token,
    /// Whether the claim held the key, so that one who waits is to be woken.
    pub wake: bool,
}

/// What a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It votes for the claim.
    Yes,
    /// It votes for another.
    Busy {
        /// How long that vote lasts.
        left: Duration,
        /// The highest token accepted or released here.
        highest: Token,
    },
    /// The token is too low.
    Stale {
        /// The highest token accepted or released here.
        highest: Token,
    },
    /// The token is too far ahead of this server's clock.
    Skewed {
        /// By how much more than is allowed.
        by: Duration,
    },
    /// It does not vote for the claim any more.
    Lost,
    /// The claim is another client's.
    Taken,
    /// It may have forgotten votes, and gives none for so long.
    Quarantined {
        /// How long it still takes.
        left: Duration,
    },
    /// It belongs to another set of servers.
    Foreign,
    /// The vote is forgotten.
    Released {
        /// Whether there was one that had not lapsed.
        held: bool,
    },
    /// The key was taken from whoever had it.
    Broken {
        /// Whose token is void now; zero if nobody had the vote.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

/// What an inbox should hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// The key may be free, or has another holder or note: look.
    Changed,
    /// An administrator took the key from the claim with this token.
    Revoked(Token),
}
