use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A fencing token: a number that rises with every grant of a key.
///
/// Pass it to the protected system with each write. That system refuses a token that is lower
/// than the highest it has seen. A new token is `max(last + 1, clock in µs)`, so tokens keep
/// rising after the record of a key was lost. It fits an `i64` and, until 2255, a double. Every
/// token is above zero.
///
/// A store that shares its records with other libraries has no tokens. Then the token is
/// [`Token::NONE`], which all fences of leasehold refuse.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub(crate) u64);

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
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number as databases keep it: a `BIGINT` is signed. `None` for [`Token::NONE`]: no
    /// comparison in SQL admits a `NULL`.
    ///
    /// ```
    /// use leasehold_core::Token;
    /// let token = Token::try_from(1795701612111157_i64)?;
    /// assert_eq!(token.as_i64(), Some(1795701612111157));
    /// assert_eq!(Token::NONE.as_i64(), None);
    /// assert_eq!("1795701612111157".parse(), Ok(token));
    /// assert!(Token::try_from(-1_i64).is_err());
    /// assert!("-1".parse::<Token>().is_err() && "9223372036854775808".parse::<Token>().is_err());
    /// # Ok::<(), leasehold_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        Some(i64::try_from(self.some()?.0).unwrap_or(i64::MAX))
    }
}

/// Of a number that is known to be a token, such as one that was stored.
impl From<u64> for Token {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl TryFrom<i64> for Token {
    type Error = Invalid;

    /// Reads what [`Token::as_i64`] returned. Zero, as in a row that no holder has written, is
    /// [`Token::NONE`].
    fn try_from(number: i64) -> Result<Self, Invalid> {
        let token = u64::try_from(number).map(Self);
        token.map_err(|_| Invalid::plain(format!("{number} is no fencing token: it is below zero")))
    }
}

impl FromStr for Token {
    type Err = Invalid;

    /// Reads what `Display` writes, as in `LEASEHOLD_TOKEN`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let number = text.parse::<u64>();
        let number = number.ok().filter(|number| i64::try_from(*number).is_ok());
        number
            .map(Self)
            .ok_or_else(|| Invalid::plain(format!("{text:?} is no fencing token: write a number")))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
