//! Simulation of several clients and several servers with faults: messages that are lost,
//! duplicated, late and reordered; servers that restart with and without their data; clocks that
//! differ; clients that die.
//!
//! - `climate`: the parameters of a world; `world`: the events, and their times;
//! - `client`: a client that drives the state machines; `server`: one server, and its faults;
//! - `checks`: the invariants.
//!
//! The same worlds with a broken rule ([`climate::Broken`]) must fail, which shows that the
//! checks work. `PROPTEST_CASES` sets the number of worlds, `PROPTEST_RNG_SEED` their seed.

mod checks;
mod client;
mod climate;
mod server;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng};

use crate::common;
use crate::quorum::checks::Fault;
use crate::quorum::climate::{Broken, Climate};
use crate::quorum::world::World;
use crate::simulation::Counts;

fn config() -> Config {
    common::config(1_500, 0x0f_5e7)
}

/// How many worlds are looked at.
fn cases() -> u32 {
    config().cases
}

fn live(climate: &Climate) -> (Counts, Vec<(Fault, String)>) {
    let mut world = World::new(climate);
    world.run();
    (world.checks.had, world.checks.faults)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn worlds_keep_every_promise(climate in climate::worlds(Broken::Nothing)) {
        let (_, faults) = live(&climate);
        prop_assert!(faults.is_empty(), "{faults:?}");
    }
}

/// What happens in the worlds of `broken`, as many as are needed to have such a fault, and that
/// fault.
fn worlds(broken: Broken, wanted: impl Fn(Fault) -> bool) -> (Counts, Option<String>) {
    let strategy = climate::worlds(broken);
    let config = config();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(config, rng);
    let mut all = Counts::default();
    for number in 0..cases() {
        let (had, faults) = live(&strategy.new_tree(&mut runner).unwrap().current());
        all.add_all(&had);
        if let Some((fault, what)) = faults.into_iter().find(|(fault, _)| wanted(*fault)) {
            return (all, Some(format!("{fault:?} in world {number}: {what}")));
        }
    }
    (all, None)
}

fn is_found(broken: Broken, wanted: &[Fault]) {
    let (_, found) = worlds(broken, |fault| wanted.contains(&fault));
    let found = found.unwrap_or_else(|| panic!("{broken:?} went unnoticed"));
    eprintln!("{broken:?}: {found}");
}

#[test]
fn enough_happens_in_these_worlds() {
    let (had, found) = worlds(Broken::Nothing, |_| true);
    assert_eq!(found, None);
    eprintln!("{had:?}");
    let worlds = u64::from(cases());
    let often = "leases, renewals, busy bids, bids without an answer, further proposals, \
                 data losses, quarantined votes, repaired votes, \
                 messages after their release, leases after a loss";
    for what in often.split(", ") {
        assert!(had.of(what) > worlds / 2, "too few {what}: {had:?}");
    }
}

macro_rules! broken {
    ($(fn $name:ident() $broken:ident: $($fault:ident)+;)+) => { $(
        #[test]
        fn $name() {
            is_found(Broken::$broken, &[$(Fault::$fault),+]);
        }
    )+ };
}

broken! {
    fn without_quarantine_two_hold_at_once() NoQuarantine: TwoHolders TokenFell;
    fn a_quarantine_does_not_help_tokens_that_only_count() CountersOnly: TokenFell;
    fn counters_of_the_servers_give_a_token_twice() ServersCount: TokenFell;
    fn a_tombstone_among_the_accepted_tokens_ends_leases_for_nothing() OneRegister: LostForNothing;
    fn without_a_tombstone_a_late_request_leaves_an_orphan() NoTombstone: Orphan;
    fn renewals_that_bring_back_are_found() Resurrect: Orphan TwoHolders;
}
