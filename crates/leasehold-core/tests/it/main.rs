//! The integration tests of the core, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails with the message, and says what it measured or left out"
)]

mod common;
mod deadlocks;
mod foretold;
mod kinds;
mod queue_holds;
mod queue_properties;
