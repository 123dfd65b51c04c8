use std::fmt;

use serde::{Deserialize, Serialize};

/// A fencing token: a number that rises with every grant of a key.
///
/// Pass it to the protected system with each write. That system refuses a token that is lower
/// than the highest it has seen. A new token is `max(last + 1, clock in µs)`, so tokens keep
/// rising after the record of a key was lost. It fits an `i64` and, until 2255, a double. Every
/// token is above zero.
///
/// A store that shares its records with other libraries has no tokens. Then the token is
/// [`Token::NONE`], which all fences of leasehold refuse. Do not store it as a number: check
/// [`Token::is_none`] first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// No token: the store has no tokens, or no token was seen yet.
    pub const NONE: Self = Self(0);

    /// Returns whether this is [`Token::NONE`], which fences nothing.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the token, or `None` for [`Token::NONE`].
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (!self.is_none()).then_some(self)
    }

    /// Returns the number; 0 for [`Token::NONE`].
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
