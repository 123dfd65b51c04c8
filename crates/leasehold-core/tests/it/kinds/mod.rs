//! The guarantees of each kind of lock, one file per kind: what random histories rarely meet, or do not
//! show plainly. `queue_properties` judges the histories of all kinds.
//!
//! `cast` is shared by all: a few clients at one key.

mod cast;
mod election;
mod min_hold;
mod quarantine;
mod record;
mod reentrant;
mod rotation;
mod semaphore;
mod vote;
