//! Simulation of the client's state machines with the queue, deterministic by a seed: manual
//! clocks; a network that delays, loses, reorders and disconnects; clients that pause or die; a
//! store that loses data; leases that are rotated, adopted and downgraded.
//!
//! - `chance`: what is drawn and counted;
//! - `climate`: the parameters of a world; `world`: the events, and their times;
//! - `network`: the store and the network; `shell`: a client that drives the state machines;
//! - `changes`: rotation, adoption and downgrade;
//! - `checks`: the invariants.
//!
//! `LEASEHOLD_SEEDS=100000` runs more worlds; `LEASEHOLD_SEED=17` runs one and prints its events.

mod chance;
mod changes;
mod checks;
mod climate;
mod network;
mod shell;
mod world;

use crate::client_machines::chance::Counts;
use crate::client_machines::world::World;

/// Gives what was had.
fn live(seed: u64, story: bool) -> Counts {
    let mut world = World::new(seed);
    world.story = story;
    world.tell(|| format!("{:#?}", world.climate));
    world.run(world.climate.until);
    world.the_last_is_granted();
    world.had
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn worlds_keep_every_promise() {
    if let Some(seed) = number("LEASEHOLD_SEED") {
        live(seed, true);
        return;
    }
    let seeds = number("LEASEHOLD_SEEDS").unwrap_or(2_000);
    let mut failed = Vec::new();
    let mut had = Counts::default();
    for seed in 0..seeds {
        match std::panic::catch_unwind(|| live(seed, false)) {
            Ok(world) => had.add_all(&world),
            Err(_) => failed.push(seed),
        }
        if failed.len() >= 20 {
            break;
        }
    }
    assert!(failed.is_empty(), "LEASEHOLD_SEED= one of {failed:?}");
    for (what, enough) in [
        ("leases", seeds * 5),
        ("rotations", seeds),
        ("adoptions", seeds / 4),
        ("grants not heard", seeds / 4),
        ("downgrades", seeds / 4),
        ("longest holds", seeds / 50),
        ("stale answers", seeds / 100),
    ] {
        assert!(had.of(what) > enough, "too few {what}: {had:?}");
    }
}
