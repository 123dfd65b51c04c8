//! Property tests of the queue: random histories of one key, compared after every step with a
//! simple reference.
//!
//! - `reference`: a plain list of claims with a simple version of each verb;
//! - `histories`: the events, and their frequencies;
//! - `world`: the queue and the reference, step by step;
//! - `invariants`: what must hold after every step; `told`: the expected notifications;
//! - `bounds`: limits that show only with many claims; `several`: claims of several keys at once.
//!
//! `PROPTEST_CASES` sets the number of histories, `PROPTEST_RNG_SEED` their seed. The default
//! seed is the same in every run.

mod audited;
mod bounds;
mod histories;
mod invariants;
mod reference;
mod several;
mod told;
pub(crate) mod world;

use proptest::prelude::*;

proptest! {
    #![proptest_config(crate::common::config(800, 0x1ea5_e401d))]

    #[test]
    fn histories_keep_every_invariant(history in histories::history()) {
        let mut world = world::World::new(history.permits);
        for act in &history.acts {
            world.act(act);
        }
    }
}
