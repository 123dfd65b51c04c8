use std::fmt;

use serde::{Deserialize, Serialize};

/// The fencing token: a number that rises with every grant of a key.
///
/// Hand it to the protected system with each write; that system refuses a token
/// lower than the highest it has seen. `max(last + 1, clock in µs)`, so tokens
/// go on rising after the record of a key was lost. Fits an `i64` and, until
/// 2255, a double.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// The number.
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
