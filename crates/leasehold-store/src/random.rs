//! Random numbers for inbox names, ids and jitter.
//!
//! The generator behind them keeps its state in memory, so a forked child would draw the numbers of
//! its parent and of the other children: their claims would have the same ids, and the store would
//! take them for one claim. Each process mixes in a number of its own, which the system has drawn.

use crate::clock;
use crate::fork::PerProcess;

static OWN: PerProcess<u128> = PerProcess::new();

/// Returns an unguessable random number of 64 bits.
#[must_use]
pub fn random_u64() -> u64 {
    (random_u128() & u128::from(u64::MAX)) as u64
}

/// Returns an unguessable and unique random number of 128 bits.
#[must_use]
pub fn random_u128() -> u128 {
    #[allow(clippy::disallowed_methods, reason = "what it repeats is mixed here")]
    let of_this_thread: u128 = rand::random();
    of_this_thread ^ OWN.get_or_init(drawn)
}

fn drawn() -> u128 {
    let mut drawn = [0; 16];
    match getrandom::fill(&mut drawn) {
        Ok(()) => u128::from_ne_bytes(drawn),
        // No other process has both at once.
        Err(_) => clock::wall().as_nanos() ^ (u128::from(std::process::id()) << 96),
    }
}
