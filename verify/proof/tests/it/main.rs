//! The short form of the proofs, and that promises and the public API have tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails with the message"
)]

#[cfg(feature = "clients")]
mod command;
#[cfg(feature = "clients")]
mod faults;
mod layers;
mod public;
mod safety;
#[cfg(feature = "clients")]
mod simulate;
