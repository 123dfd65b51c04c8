//! What leasehold is tested with.
//!
//! - [`mod@facade`] — what users of the library rely on, over any store;
//! - [`server`] — real servers, started by the test and ended with it;
//! - [`deployment`] — several of them together: Sentinels, a Cluster, a quorum;
//! - [`postgres`] — PostgreSQL servers, replicas of them, and PgBouncer in front;
//! - [`zookeeper`] — ZooKeeper servers, and ensembles of three;
//! - [`proxy`] — a TCP proxy in front of one, with faults that a test switches on and off;
//! - [`python`] — Python with packages of others;
//! - [`redis_py`] — another library that takes the same locks, in Python;
//! - [`expect`] — what a text has to contain;
//! - [`dice`] — numbers from a seed;
//! - [`process`] — child processes whose lines and signals a test can wait for;
//! - [`tls`] — certificates.
//!
//! Test support says what went wrong by panicking: a test has nothing better to do with an error
//! than to fail with its text. What a test may want to look at is a value.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test support fails the test that uses it, with a message, and nothing else"
)]

pub mod deployment;
pub mod dice;
pub mod expect;
pub mod facade;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod redis_py;
mod scratch;
pub mod server;
pub mod tls;
pub mod zookeeper;
