//! What only a member of a set of servers is asked: see [`crate::quorum`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ClaimId, ClientInfo, Token};

/// The token that a claim proposes. A member accepts it only above all tokens that it has
/// accepted or voided; the claim never waits there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proposal {
    /// The token.
    pub token: Token,
    /// How far ahead of the member's clock the token may be, so that a client with a wrong clock
    /// cannot use up the numbers.
    pub ahead: Duration,
}

/// Makes tokens void, and takes the key from a claim or from all that hold by them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Void {
    /// No token up to this one is accepted any more. Zero: nothing can be under way.
    pub up_to: Token,
    /// Whose grant ends.
    pub whose: Voided,
}

/// See [`Void::whose`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Voided {
    /// One claim's. The reply is a [`ReleaseReply`](crate::ReleaseReply).
    Claim {
        /// The claim.
        id: ClaimId,
        /// Whether its client releases it: then the id stays released, and if it held, one client
        /// that asked in vain is told. If not, it only gives up this proposal.
        released: bool,
    },
    /// That of each claim with such a token: for administrators. The reply is a
    /// [`BreakReply`](crate::BreakReply).
    Key {
        /// The client that does it, for the audit log.
        by: ClientInfo,
    },
}
