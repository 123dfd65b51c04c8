use std::time::Duration;

use super::Body;
use crate::{ClaimId, Token};

/// A request for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The claim.
    pub id: ClaimId,
    /// The token that it proposes.
    pub token: Token,
    /// How long the vote lasts.
    pub ttl: Duration,
    /// The data of the claim.
    pub body: Body,
    /// Whether to notify the client when the key is released, if the key is busy now.
    pub wait: bool,
    /// How far ahead of the server's clock a token may be, so that a client with a wrong clock
    /// cannot use up the numbers.
    pub ahead: Duration,
}

/// A request to keep the vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extend {
    /// The original request for the vote; `wait` is ignored.
    pub vote: Acquire,
    /// Whether a server that no longer has the claim votes for it again, by the rules of an
    /// acquisition.
    pub repair: bool,
}

/// A request to release a vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which claim.
    pub id: ClaimId,
    /// The highest token of the claim that may still be in flight, which is refused from now on.
    /// Zero if there is none.
    pub token: Token,
    /// Whether the claim held the key, so that a waiter must be notified.
    pub wake: bool,
}

/// The answer of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It votes for the claim.
    Yes,
    /// It votes for another claim.
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
    /// It no longer votes for the claim.
    Lost,
    /// The claim belongs to another client.
    Taken,
    /// It may have lost votes, and does not vote during its quarantine.
    Quarantined {
        /// How long the quarantine still lasts.
        left: Duration,
    },
    /// It belongs to another set of servers.
    Foreign,
    /// The vote was released.
    Released {
        /// Whether there was a vote that had not expired.
        held: bool,
    },
    /// The key was taken from its holder.
    Broken {
        /// The token of the holder, which is now void; zero if there was no vote.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

/// A notification for an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// The key may be free, or has another holder or note.
    Changed,
    /// An administrator took the key from the claim with this token.
    Revoked(Token),
}
