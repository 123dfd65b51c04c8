//! A step of a connection: how its answer comes to count, and what is known of that.

use leasehold_core::{ClaimId, Reply, StoreTime};
use leasehold_store::{Acknowledged, Answer, StoreError};
use redis::Value;

/// How the answer to a script comes to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery<'a> {
    /// It counts at once.
    Plain,
    /// If it holds the key for one of these claims, it counts once it is acknowledged, where a
    /// policy asks for it.
    Acknowledged(&'a [&'a ClaimId]),
    /// It comes from a server on its way to which the key's slot is.
    Asking,
}

/// What a script answered, and what is known of that, such as who else has it.
pub(crate) struct ScriptAnswer {
    pub(crate) value: Value,
    pub(crate) epoch: u64,
    pub(crate) acknowledged: Option<Result<Acknowledged, StoreError>>,
}

impl ScriptAnswer {
    /// Whether it is the error with this code.
    pub(crate) fn is_error(&self, code: &str) -> bool {
        matches!(&self.value, Value::ServerError(error) if error.code() == code)
    }

    /// The answer of the store, if that was the reply.
    pub(crate) fn answer(&self, (reply, at): (Reply, StoreTime)) -> Result<Answer, StoreError> {
        let mut answer = Answer::new(reply, at, self.epoch);
        if answer.has_token() {
            answer.acknowledged = self.acknowledged.clone().transpose()?;
        }
        Ok(answer)
    }
}
