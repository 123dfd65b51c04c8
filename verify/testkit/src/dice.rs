//! Numbers from a seed, so that a failure comes again.

use std::time::Duration;

/// The same numbers for the same seed, on every machine and with every version of this crate:
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
///
/// ```
/// use leasehold_testkit::dice::Dice;
///
/// let (mut one, mut other) = (Dice(7), Dice(7));
/// assert_eq!(one.roll(1_000), other.roll(1_000));
/// ```
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `sides`, which is not zero.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    /// True once in so many times.
    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// One of several; there is at least one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let sides = u64::try_from(from.len()).expect("a length");
        &from[usize::try_from(self.roll(sides)).expect("an index")]
    }

    /// Whole milliseconds from `from` to below `to`.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll(to - from))
    }

    /// Whole microseconds below `most`, which is at least one.
    pub fn below(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.roll(u64::try_from(most.as_micros()).expect("years")))
    }
}
