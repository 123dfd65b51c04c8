//! The parsers of classic locks. See [`crate::fuzzing`].

use leasehold_core::{Snapshot, StoreTime};
use leasehold_store::StoreError;
use redis::Value;

use super::verb::{self, Outcome};
use super::{look, view};

/// Until when somebody holds, by the answer of a step that was taken at `at`.
///
/// # Errors
/// If it is something else.
pub fn step(answer: &Value, at: StoreTime) -> Result<Option<StoreTime>, StoreError> {
    Ok(match verb::read(answer)? {
        Outcome::Ours(left) | Outcome::Others(left) => Some(look::deadline(at, left)),
        Outcome::Taken | Outcome::Nobodys => None,
    })
}

/// What stands at a key, by the answers to `TYPE`, `GET` and `PTTL`: the id, and what
/// people see.
///
/// # Errors
/// If it is no classic lock.
pub fn seen(answers: &Value, at: StoreTime) -> Result<(Vec<u8>, Snapshot), StoreError> {
    let found = verb::read_found(answers)?;
    let snapshot = view(&found, at);
    let value = found.map(|(value, _)| value);
    Ok((value.unwrap_or_default(), snapshot))
}
