//! What the tests are made with, tested itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails with the message"
)]

mod cluster;
mod independent;
mod postgres;
mod proxy;
mod sentinels;
mod server;
mod zookeeper;
