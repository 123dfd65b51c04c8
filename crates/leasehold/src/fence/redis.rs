//! A fenced value in Redis: one script compares the token stored beside the value and writes, in
//! one step.
//!
//! It works on any connection: the methods of [`Register`] take a [`redis::aio::ConnectionLike`],
//! those named `…_blocking` a [`redis::ConnectionLike`]. It need not be the server that keeps the
//! lock.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::fence::redis::Register;
//!
//! let client = leasehold::connect("redis://127.0.0.1/").await?;
//! let lease = client.mutex("orders/42")?.lock().await?;
//!
//! let redis = redis::Client::open("redis://127.0.0.1/")?;
//! let mut redis = redis.get_multiplexed_async_connection().await?;
//! let state = Register::at("order:42:state");
//! let before = state.claim(&mut redis, lease.token()).await?; // token first, then read
//! if before.as_deref() != Some(b"paid".as_slice()) {
//!     state.set(&mut redis, lease.token(), "paid").await?;
//! }
//! # Ok(()) }
//! ```
//!
//! # Layout
//! One hash at the key, in any Redis from 4.0 and in Valkey, and in a cluster too:
//!
//! | field | |
//! |---|---|
//! | `token` | the highest token seen, as decimal text |
//! | `value` | the value, as it was given; absent if there is none |
//!
//! Tokens are compared exactly up to `u64::MAX`, beyond the range of a Lua number. Other clients
//! may read the hash. A client that writes it must compare the token. Deleting the hash deletes
//! the token too ([`Register::clear`] keeps it).
//!
//! The Redis user needs `+evalsha +script|load +type +hmget +hset +hdel +persist +pexpire` on the
//! key.
//!
//! # When it forgets
//! Value and token are in the same hash, so they are lost together: by a restart without
//! persistence, a fail-over, an eviction, an expiry or a deletion. After that the first token is
//! admitted, even a stale one.

use std::time::Duration;

use ::redis::{RedisError, RedisResult, Script, ScriptInvocation, aio};
use leasehold_core::{Invalid, Token, written};
use leasehold_store::fork::Lazy;

use super::{Fenced, check};

/// The verb that needs no token.
const READ: &str = "get";

static GUARD: Lazy<Script> = Lazy::new(|| Script::new(include_str!("guard.lua")));

/// What the script answers: how it went, the highest token (or what is there
/// instead), the value.
type Answer = (u8, String, Option<Vec<u8>>);

/// A fenced value at a key of Redis. A cheap handle; making it does no I/O.
///
/// # Cancel safety
/// If a future is dropped, the step may have been done or not, as after [`Error::Redis`]. A retry
/// with the same token is safe, if this holder has written nothing else in between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Register {
    key: String,
    keep: Option<Duration>,
}

/// The content of a [`Register`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Stored {
    /// The highest token seen; 0 before the first.
    pub seen: Token,
    /// The value, if there is one.
    pub value: Option<Vec<u8>>,
}

/// Why an access to a [`Register`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A higher token was seen, and nothing was written. Stop: another client has had the lease
    /// since.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The key contains something else; nothing was overwritten. Choose another key, or find out
    /// who uses this one.
    #[error("the key {key:?} holds {found}, not a fenced value")]
    Foreign {
        /// The key in Redis.
        key: String,
        /// What the key contains.
        found: String,
    },
    /// The server refused, or did not answer; the source says which. Without an answer the
    /// outcome is unknown, and a retry with the same token is safe.
    #[error("no good answer from the server about the fenced value at {key:?}")]
    Redis {
        /// The key in Redis.
        key: String,
        /// The error of the connection.
        source: RedisError,
    },
}

impl Error {
    /// Returns the [`Fenced`] error, if it is one.
    #[must_use]
    pub fn fenced(&self) -> Option<Fenced> {
        match self {
            Self::Fenced(fenced) => Some(*fenced),
            Self::Foreign { .. } | Self::Redis { .. } => None,
        }
    }
}

impl Register {
    /// The shortest expiry.
    pub const MIN_EXPIRY: Duration = Duration::from_secs(1);
    /// The longest expiry: a hundred years of 365 days.
    pub const MAX_EXPIRY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// Makes a handle for the value at that key, without an expiry.
    pub fn at(key: impl Into<String>) -> Self {
        let key = key.into();
        Self { key, keep: None }
    }

    /// Lets value *and token* expire when nothing was written for `idle`, rounded up to
    /// milliseconds. Each admitted step restarts the expiry; a step through a register without
    /// expiry removes it.
    ///
    /// A holder that is paused for longer than that is not fenced afterwards, so choose a long
    /// expiry: a day rather than a minute.
    ///
    /// # Errors
    /// [`Invalid`] unless it is [`Register::MIN_EXPIRY`] to
    /// [`Register::MAX_EXPIRY`].
    pub fn expire_after(mut self, idle: Duration) -> Result<Self, Invalid> {
        if !(Self::MIN_EXPIRY..=Self::MAX_EXPIRY).contains(&idle) {
            let idle = written(idle);
            return Err(Invalid::new(
                format!("an expiry of {idle} is out of bounds for a fenced value"),
                "choose 1 s to 100 years, longer than any holder may be paused",
            ));
        }
        self.keep = Some(idle);
        Ok(self)
    }

    /// The key in Redis.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Declares the steps of a register, each twice: async, and blocking the thread. A step has a
/// verb, a token and a value for the script, and makes its answer of what is stored.
macro_rules! verbs {
    ($(
        $(#[$doc:meta])* $name:ident, $blocking:ident($($arg:ident: $ty:ty),*) -> $answer:ty:
        $verb:expr, $token:expr, $value:expr, $answered:expr;
    )*) => {
        impl Register { $(
            $(#[$doc])*
            pub async fn $name(
                &self,
                connection: &mut impl aio::ConnectionLike
                $(, $arg: $ty)*
            ) -> Result<$answer, Error> {
                let step = self.step($verb, $token, $value)?;
                self.read($token, step.invoke_async(connection).await).map($answered)
            }

            #[doc = concat!("[`Register::", stringify!($name), "`], blocking the thread.")]
            ///
            /// # Errors
            /// The same as the async method.
            pub fn $blocking(
                &self,
                connection: &mut dyn ::redis::ConnectionLike
                $(, $arg: $ty)*
            ) -> Result<$answer, Error> {
                let step = self.step($verb, $token, $value)?;
                self.read($token, step.invoke(connection)).map($answered)
            }
        )* }
    };
}

verbs! {
    /// Writes the value, and refuses all lower tokens from now on.
    ///
    /// # Errors
    /// [`Error`]; on every kind but `Redis` nothing was written.
    set, set_blocking(token: Token, value: impl AsRef<[u8]>) -> ():
        "set", token, value.as_ref(), drop;

    /// Refuses all lower tokens from now on, and reads the value in the same step. A holder that
    /// reads before it writes starts with this.
    ///
    /// # Errors
    /// [`Error`]; on every kind but `Redis` nothing was written.
    claim, claim_blocking(token: Token) -> Option<Vec<u8>>:
        "claim", token, &[], |stored| stored.value;

    /// Deletes the value and keeps the token: refuses all lower ones from now on.
    ///
    /// # Errors
    /// [`Error`]; on every kind but `Redis` nothing was written.
    clear, clear_blocking(token: Token) -> ():
        "clear", token, &[], drop;

    /// Reads the value without a token, for readers that do not write. Holders use
    /// [`Register::claim`].
    ///
    /// # Errors
    /// [`Error`], never `Fenced`.
    get, get_blocking() -> Stored:
        READ, Token::NONE, &[], |stored| stored;
}

impl Register {
    /// One call of the script. A step that is fenced needs a token: [`Token::NONE`] is refused
    /// without a request.
    fn step(
        &self,
        verb: &str,
        token: Token,
        value: &[u8],
    ) -> Result<ScriptInvocation<'static>, Fenced> {
        if verb != READ {
            check(token, Token::NONE)?;
        }
        let keep = self.keep.unwrap_or_default();
        let keep = keep.as_nanos().div_ceil(1_000_000);
        let mut step = GUARD.prepare_invoke();
        step.key(&self.key)
            .arg(verb)
            .arg(token.to_string())
            .arg(keep.to_string())
            .arg(value);
        Ok(step)
    }

    fn read(&self, token: Token, answer: RedisResult<Answer>) -> Result<Stored, Error> {
        let key = self.key.clone();
        let (went, text, value) = match answer {
            Ok(answer) => answer,
            Err(source) => return Err(Error::Redis { key, source }),
        };
        let foreign = |found| Error::Foreign { key, found };
        if went == 2 {
            return Err(foreign(text));
        }
        let seen = text.parse::<u64>().map(Token::from);
        let seen = seen.map_err(|_| foreign(format!("a hash with the token {text:?}")))?;
        if went == 0 {
            return Err(Fenced { token, seen }.into());
        }
        Ok(Stored { seen, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_has_bounds() {
        let register = Register::at("k");
        for good in [Register::MIN_EXPIRY, Register::MAX_EXPIRY] {
            assert!(register.clone().expire_after(good).is_ok());
        }
        for bad in [
            Duration::ZERO,
            Register::MIN_EXPIRY - Duration::from_nanos(1),
            Register::MAX_EXPIRY + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            assert!(register.clone().expire_after(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_no_success() {
        let register = Register::at("k");
        let odd = register.read(Token::from(1), Ok((1, "99999999999999999999".into(), None)));
        let message = odd.unwrap_err().to_string();
        assert!(message.contains("99999999999999999999"), "{message}");
    }
}
