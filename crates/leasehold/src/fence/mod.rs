//! Resources that refuse a stale holder.
//!
//! A lease can end without its holder noticing: a pause between the last look
//! at [`Lease::is_valid`](crate::Lease::is_valid) and the write is enough. Only
//! the resource can tell then, by the fencing token: it keeps the highest it
//! has seen, refuses a lower one, and does both in one atomic step.
//!
//! | the resource is | take |
//! |---|---|
//! | a value in this process | [`Guarded`] |
//! | anything else that this process alone writes, one at a time | [`Gate`] |
//! | a value in Redis | `fence::redis::Register` (feature `redis`) |
//! | rows of an SQL database, an object in an object store | a condition on the write: see `docs/fencing.md` |
//!
//! ```
//! use leasehold::fence::Guarded;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = leasehold::connect("memory:").await?;
//! let mutex = client.mutex("orders/42")?;
//! let state = Guarded::new("new");
//!
//! let stalled = mutex.lock().await?;
//! let old = stalled.token();
//! stalled.release().await?; // or its lease ended while it was paused
//!
//! let lease = mutex.lock().await?;
//! state.update(lease.token(), |state| *state = "paid")?;
//! let fenced = state.update(old, |state| *state = "cancelled").unwrap_err();
//! assert_eq!((fenced.token, fenced.seen), (old, lease.token()));
//! assert_eq!(state.read(|state| *state), "paid");
//! # Ok(()) }
//! ```
//!
//! A lease of the classic layout of Redis has no token ([`Token::NONE`]): every fence
//! here refuses it.
//!
//! Only exclusive leases fence. Readers and holders of permits overlap, so that
//! the order of their grants says nothing about who may write.
//!
//! # What fencing does not give
//! - **Atomicity of work in several steps.** A holder that is fenced half way
//!   leaves its first half behind.
//! - **An order among writes with one token.** They are one holder's; that one
//!   has to see to it.
//! - **A safe read before the first write.** A new holder that reads, thinks and
//!   then writes has not shown its token yet when it reads: a late write of the
//!   old holder can still slip in, and is lost. Show the token first, or read in
//!   the same step.

use std::fmt;

use leasehold_core::Token;

mod gate;
mod guarded;
#[cfg(feature = "redis")]
pub mod redis;

pub use gate::Gate;
pub use guarded::Guarded;

/// Refused: the resource has seen a higher token, so somebody else has had a
/// later lease. Nothing was written.
///
/// Stop the work; do not ask again with this token. Whoever goes on acquires
/// anew, and looks again at what is there.
///
/// [`Token::NONE`] is always refused: the lease is of a store that has no tokens
/// (the classic layout), and such a lease cannot be fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fenced {
    /// The token that came.
    pub token: Token,
    /// The highest token seen, which is higher, or as high if both are none.
    pub seen: Token,
}

/// Compares: what every fence does, in one step with what it protects.
fn check(token: Token, seen: Token) -> Result<(), Fenced> {
    if token < seen || token.is_none() {
        return Err(Fenced { token, seen });
    }
    Ok(())
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, seen } = self;
        if token.is_none() {
            return f.write_str(
                "refused: the lease has no fencing token, as its store has none to give",
            );
        }
        write!(f, "fenced: token {token} is lower than {seen}, seen before")
    }
}

impl std::error::Error for Fenced {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_both_tokens() {
        let fenced = Fenced {
            token: Token(41),
            seen: Token(42),
        };
        assert_eq!(
            fenced.to_string(),
            "fenced: token 41 is lower than 42, seen before"
        );
    }

    #[test]
    fn no_token_is_refused_whatever_was_seen() {
        for seen in [Token::NONE, Token(42)] {
            let fenced = check(Token::NONE, seen).unwrap_err();
            assert_eq!(
                fenced.to_string(),
                "refused: the lease has no fencing token, as its store has none to give"
            );
        }
        assert_eq!(check(Token(42), Token(42)), Ok(()));
    }
}
