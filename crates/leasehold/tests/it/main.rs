//! The integration tests, in one program: they share its build, its servers and its threads.
//!
//! Each module is one subject: `cargo test -p leasehold --test it redlock::` runs the tests of
//! Redlock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails with the message, and says what it measured or left out"
)]

#[cfg(feature = "redis")]
mod access;
mod answers;
mod api;
mod certificates;
mod classic;
mod classic_python;
mod classic_store;
mod deadlocks;
mod every_call;
mod example_programs;
mod faces;
mod fence_redis;
mod fencing_examples;
mod forked;
mod forms;
mod http;
mod journal;
mod linked;
mod local_cleaning;
mod local_deaths;
mod local_files;
mod local_machine;
mod local_multi;
mod local_outside;
mod local_processes;
mod local_space;
mod local_store;
#[cfg(all(unix, feature = "local"))]
mod local_support;
mod log;
mod machine_sleep;
mod memory_conformance;
mod memory_facade;
#[cfg(feature = "metrics")]
mod metrics;
mod observing;
mod outside_runtime;
mod postgres_guard;
mod postgres_server;
mod postgres_settings;
mod postgres_standbys;
mod postgres_store;
#[cfg(feature = "redis")]
mod quarantine_support;
mod redis_acknowledged;
mod redis_audit;
mod redis_calls;
mod redis_cluster;
mod redis_cluster_faults;
mod redis_connection;
mod redis_failover;
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_forgeries;
mod redis_memory;
mod redis_not_now;
mod redis_primary;
mod redis_quarantine;
mod redis_replicas;
mod redis_rights;
mod redis_runs;
mod redis_runs_stress;
mod redis_scripts;
mod redis_sentinel;
mod redis_server;
mod redis_store;
#[cfg(feature = "redis")]
mod redis_support;
mod redlock;
mod redlock_listing;
mod redlock_store;
#[cfg(feature = "redis")]
mod redlock_support;
mod sources;
mod steps;
mod strangers;
mod support;
#[cfg(feature = "testing")]
mod testing_page;
mod zookeeper_server;
mod zookeeper_store;
#[cfg(all(feature = "zookeeper", feature = "tls-ring"))]
mod zookeeper_tls;
