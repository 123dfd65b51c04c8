//! Random histories of one key, held after every step against a naive reference.
//!
//! - `reference`: a plain list of claims, every verb in the plainest words;
//! - `histories`: what may happen, in which proportions;
//! - `world`: the queue and the reference, step by step;
//! - `invariants`: what must hold after every step; `told`: who must have heard;
//! - `bounds`: what takes a crowd to see.
//!
//! `PROPTEST_CASES` raises the number of histories, `PROPTEST_RNG_SEED` moves
//! them; the default is the same set in every run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod audited;
mod bounds;
mod histories;
mod invariants;
mod reference;
mod told;
pub(crate) mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(0x1ea5_e401d);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 800;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn histories_keep_every_invariant(history in histories::history()) {
        let mut world = world::World::new(history.permits);
        for act in &history.acts {
            world.act(act);
        }
    }
}
