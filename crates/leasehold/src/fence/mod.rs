//! Fencing: resources that refuse a stale lease holder by its token.
//!
//! A lease can end without its holder noticing: a pause between the check of
//! [`Lease::is_valid`](crate::Lease::is_valid) and the write is enough. Then only the resource
//! can detect it, by the fencing token. The resource keeps the highest token it has seen and
//! refuses a lower one, both in one atomic step.
//!
//! | the resource is | take |
//! |---|---|
//! | a value in this process | [`Guarded`] |
//! | anything else that this process alone writes, one at a time | [`Gate`] |
//! | a value in Redis | `fence::redis::Register` (feature `redis`) |
//! | rows of an SQL database | a condition on the write: `UPDATE … WHERE id = :id AND token <= :token` |
//! | an object in an object store | the token in its metadata, and a write only if its version is the one that was read |
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
//! drop(stalled); // or its lease ended while it was paused
//!
//! let lease = mutex.lock().await?;
//! state.update(lease.token(), |state| *state = "paid")?;
//! let fenced = state.update(old, |state| *state = "cancelled").unwrap_err();
//! assert_eq!((fenced.token, fenced.seen), (old, lease.token()));
//! assert_eq!(state.read(|state| *state), "paid");
//! # Ok(()) }
//! ```
//!
//! A lease of the classic Redis layout has no token ([`Token::NONE`]): all fences of this module
//! refuse it.
//!
//! Only exclusive leases have a fencing token. Readers and holders of permits overlap, so the
//! order of their grants does not say who may write.
//!
//! # What fencing does not give
//! - **Atomicity of work in several steps.** If a holder is fenced half way, the first half of
//!   its work remains.
//! - **An order among writes with the same token.** They come from one holder, which must order
//!   them itself.
//! - **A safe read before the first write.** A new holder that first reads and then writes has
//!   not presented its token when it reads: a late write of the former holder can still be
//!   accepted after the read, and is then overwritten. Present the token first, or read in the
//!   same step.

use std::fmt;

use leasehold_core::Token;

mod gate;
mod guarded;
#[cfg(feature = "redis")]
pub mod redis;

pub use gate::Gate;
pub use guarded::Guarded;

/// The error of a fenced access: the resource has seen a higher token, so another client has had
/// a later lease. Nothing was written.
///
/// Stop the work; do not retry with this token. To continue, acquire the lock again and read the
/// resource again.
///
/// [`Token::NONE`] is always refused: the lease comes from a store without tokens (the classic
/// layout) and cannot be fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fenced {
    /// The token that was refused.
    pub token: Token,
    /// The highest token seen. It is higher, or equal if both are [`Token::NONE`].
    pub seen: Token,
}

impl Fenced {
    /// Makes the error of a fence of your own.
    #[must_use]
    pub fn new(token: Token, seen: Token) -> Self {
        Self { token, seen }
    }
}

/// The comparison that every fence makes, in one step with the access.
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
            let why = "refused: the lease has no fencing token, as its store has none to give";
            return f.write_str(why);
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
            token: Token::from(41),
            seen: Token::from(42),
        };
        assert_eq!(
            fenced.to_string(),
            "fenced: token 41 is lower than 42, seen before"
        );
    }

    #[test]
    fn no_token_is_refused_whatever_was_seen() {
        for seen in [Token::NONE, Token::from(42)] {
            let fenced = check(Token::NONE, seen).unwrap_err();
            assert_eq!(
                fenced.to_string(),
                "refused: the lease has no fencing token, as its store has none to give"
            );
        }
        assert_eq!(check(Token::from(42), Token::from(42)), Ok(()));
    }
}
