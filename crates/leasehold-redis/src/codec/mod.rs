//! The wire format: the scripts, their arguments, answers and records, and the messages that they
//! publish.

pub(crate) mod audit;
mod bytes;
pub(crate) mod call;
pub(crate) mod push;
pub(crate) mod record;
mod reply;
pub(crate) mod script;
pub(crate) mod slots;

use leasehold_core::Command;
use leasehold_store::{ErrorKind, StoreError};

/// What a store says to a command that it does not know from its clients.
pub(crate) fn stores_own(command: &Command) -> StoreError {
    let message = format!("no client may ask for this: {command:?}");
    StoreError::new(ErrorKind::Unsupported, message)
}
