//! The command as a process, one program for all subjects.
//!
//! `cargo test -p leasehold-cli --test it elect::` runs those of `elect`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails with the message"
)]

mod child;
mod classic;
mod common;
mod connecting;
mod deadlocks;
mod descendants;
mod doctor;
mod elect;
mod every;
mod kinds;
mod locks;
mod log;
mod looking;
mod many;
mod messages;
mod metrics;
mod nested;
mod pages;
mod patience;
mod place;
mod recover;
mod scripts;
mod serve;
mod serve_browser;
mod server;
mod terminal;
mod top;
mod upgrade;
mod usage;
mod watch;
