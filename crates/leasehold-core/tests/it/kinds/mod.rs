//! The guarantees of each kind of lock, one file per kind.
//!
//! `cast` is shared by all: a few clients at one key, and random scripts for them.
//! `PROPTEST_CASES` sets the number of scripts, `PROPTEST_RNG_SEED` their seed.

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
mod vote;
