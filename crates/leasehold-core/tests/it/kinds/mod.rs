//! Guarantees of kinds of lock: what random histories rarely meet, or do not show plainly.
//! `queue_properties` judges the histories of all kinds.
//!
//! `cast` is shared by all: a few clients at one key.

mod cast;
mod min_hold;
mod quarantine;
mod record;
mod rotation;
mod semaphore;
mod vote;
