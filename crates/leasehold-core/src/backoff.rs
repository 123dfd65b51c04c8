use std::time::Duration;

use crate::time::micros;

/// Growing pauses between tries, each drawn at random from the upper half of
/// its range, so that clients that failed together do not come back together.
///
/// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015
/// ("equal jitter").
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    tries: u32,
    state: u64,
}

impl Backoff {
    /// Pauses from about `base` up to `cap`, drawn from `seed`.
    #[must_use]
    pub fn new(base: Duration, cap: Duration, seed: u64) -> Self {
        Self {
            base,
            cap,
            tries: 0,
            state: seed,
        }
    }

    /// The next pause: between half and all of `base × 2^tries`, `cap` at most.
    pub fn pause(&mut self) -> Duration {
        let grown = self
            .base
            .saturating_mul(1 << self.tries.min(20))
            .min(self.cap);
        self.tries = self.tries.saturating_add(1);
        let half = micros(grown) / 2;
        Duration::from_micros(half + self.draw() % (half + 1))
    }

    /// Starts again at `base`: something went well.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
    /// generators", 2014).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_range_and_start_again() {
        let ms = Duration::from_millis;
        for seed in 0..1000 {
            let mut backoff = Backoff::new(ms(10), ms(100), seed);
            for range in [10, 20, 40, 80, 100, 100] {
                let pause = backoff.pause();
                assert!(
                    pause >= ms(range) / 2 && pause <= ms(range),
                    "{pause:?} of {range} ms"
                );
            }
            backoff.reset();
            assert!(backoff.pause() <= ms(10));
        }
    }

    #[test]
    fn two_seeds_part() {
        let pauses = |seed| {
            let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(9), seed);
            (0..8).map(|_| b.pause()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }
}
