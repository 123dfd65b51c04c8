use std::fmt;

use serde::{Deserialize, Serialize};

/// The fencing token: a number that rises with every grant of a key.
///
/// Hand it to the protected system with each write; that system refuses a token
/// lower than the highest it has seen. `max(last + 1, clock in µs)`, so tokens
/// go on rising after the record of a key was lost. Fits an `i64` and, until
/// 2255, a double. Every token is above zero.
///
/// A store whose records other libraries share has none to give: then it is
/// [`Token::NONE`], which every fence of leasehold refuses. Do not write it
/// anywhere as if it were a number: [`Token::is_none`] tells.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// No token: the lease of a store that has none, or nothing seen yet.
    pub const NONE: Self = Self(0);

    /// Whether there is none. It fences nothing.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The token, if there is one.
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (!self.is_none()).then_some(self)
    }

    /// The number; 0 for none.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
