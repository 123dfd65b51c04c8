//! The parsers of answers of one server of a set. See [`crate::fuzzing`].

use leasehold_core::StoreTime;
use leasehold_core::quorum::{Node, Vote};
use leasehold_store::StoreError;
use redis::Value;

use super::script;

/// How it votes.
///
/// # Errors
/// If it is no vote.
pub fn vote(value: &Value) -> Result<(Vote, StoreTime), StoreError> {
    script::read_vote(value)
}

/// What it keeps of a key.
///
/// # Errors
/// If it is something else, or damaged.
pub fn node(value: &Value) -> Result<(StoreTime, Node), StoreError> {
    script::read_look(value)
}
