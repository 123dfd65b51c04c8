//! What each kind of lock promises, one file a kind; each can be read alone.
//!
//! `cast` is what they share: a few clients at one key, and random scripts for
//! them. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` raise and move the scripts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod cast;
mod election;
mod min_hold;
mod multi;
mod quarantine;
mod read_write;
mod record;
mod reentrant;
mod repeats;
mod rotation;
mod semaphore;
