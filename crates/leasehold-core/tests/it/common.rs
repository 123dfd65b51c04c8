//! What several of these modules use.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::time::Duration;

pub(crate) use leasehold_core::*;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// So many cases from this seed, unless the environment says otherwise.
pub(crate) fn config(cases: u32, seed: u64) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(seed);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}

/// The same, but for this.
pub(crate) fn but<T>(mut it: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut it);
    it
}

/// Of a lock: who does not write reads.
pub(crate) fn lock_mode(writes: bool) -> Mode {
    match writes {
        true => Mode::EXCLUSIVE,
        false => Mode::SHARED,
    }
}

/// A release that hands the key on, and is remembered.
pub(crate) fn release(id: ClaimId) -> Command {
    leave(id, true, false)
}

/// One that only tells the next in line that the key is vacant.
pub(crate) fn vacate(id: ClaimId) -> Command {
    leave(id, false, false)
}

/// One that hands the key on, and need not be remembered.
pub(crate) fn settle(id: ClaimId) -> Command {
    leave(id, true, true)
}

fn leave(id: ClaimId, hand_off: bool, settled: bool) -> Command {
    Command::Release(Release {
        id,
        hand_off,
        settled,
        unused: false,
    })
}

/// A break of whatever is held.
pub(crate) fn break_all() -> Command {
    let by = ClientInfo::unknown();
    Command::Break { by, only: None }
}

pub(crate) fn standing(reply: Reply) -> Standing {
    match reply {
        Reply::Standing(standing) => standing,
        other => panic!("{other:?}"),
    }
}
