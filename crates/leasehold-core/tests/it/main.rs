//! The integration tests of the core, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails with the message"
)]

mod client_machines;
mod deadlocks;
mod kinds;
mod queue_holds;
mod queue_properties;
mod quorum;
