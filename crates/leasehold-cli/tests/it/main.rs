//! The command as a process, one program for all subjects.
//!
//! `cargo test -p leasehold-cli --test it elect::` runs those of `elect`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails with the message, and says what it measured or left out"
)]

mod anew;
mod callers;
mod child;
mod children;
mod classic;
mod common;
mod config;
mod connecting;
mod deadlocks;
mod descendants;
mod doctor;
mod elect;
mod every;
mod failover;
mod kinds;
mod links;
mod locks;
mod log;
mod looking;
mod many;
mod messages;
mod metrics;
mod nested;
mod outer_hold;
mod pages;
mod patience;
mod pid_one;
mod place;
mod recipes;
mod recover;
mod scripts;
mod serve;
mod serve_browser;
mod server;
mod shared_directory;
mod terminal;
mod top;
mod upgrade;
mod usage;
mod user_files;
mod watch;
