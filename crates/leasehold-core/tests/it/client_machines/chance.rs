//! What a world draws, and what it counts.

use std::collections::BTreeMap;

/// Numbers from a seed (SplitMix64).
#[derive(Debug, Clone, Default)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.draw() % sides
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll((high - low).max(1))
    }

    /// Whether something with so many chances in a thousand happens.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.roll(1_000) < per_mille
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.draw()).unwrap_or(0) % of.len()]
    }
}

/// How often what happened.
#[derive(Debug, Default)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            self.add(what, *times);
        }
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}
