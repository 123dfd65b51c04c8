use std::time::Duration;

use crate::time::micros;

/// Exponential backoff with jitter: each pause is random, in the upper half of its range, so that
/// clients that failed at the same time do not retry at the same time.
///
/// Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015
/// ("equal jitter").
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// Both in microseconds.
    base: u64,
    cap: u64,
    tries: u32,
    state: u64,
}

impl Backoff {
    /// Makes pauses from about `base` up to `cap`, with random numbers from `seed`.
    #[must_use]
    pub fn new(base: Duration, cap: Duration, seed: u64) -> Self {
        Self {
            base: micros(base),
            cap: micros(cap),
            tries: 0,
            state: seed,
        }
    }

    /// Returns the next pause: between half and all of `base × 2^tries`, at most `cap`.
    pub fn pause(&mut self) -> Duration {
        let top = grown(self.base, self.cap, self.tries);
        self.tries = self.tries.saturating_add(1);
        between(&mut self.state, top / 2, top)
    }

    /// Returns whether there was no pause since the last success.
    pub(crate) fn is_fresh(&self) -> bool {
        self.tries == 0
    }

    /// Starts again at `base`, after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// `base × 2^tries`, at most `cap`.
fn grown(base: u64, cap: u64, tries: u32) -> u64 {
    base.saturating_mul(1 << tries.min(20)).min(cap)
}

/// A random duration between these microseconds, both bounds included.
fn between(state: &mut u64, low: u64, high: u64) -> Duration {
    let span = high.saturating_sub(low);
    Duration::from_micros(low + draw(state) % span.saturating_add(1).max(1))
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How a claim without a place in the queue retries when the key is busy.
///
/// Source of the strategies with jitter: "Exponential Backoff And Jitter", AWS Architecture Blog,
/// 2015.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::Retry;
/// let mut pauses = Retry::Fixed(Duration::from_millis(5)).pauses(1);
/// assert_eq!(pauses.next(), Some(Duration::from_millis(5)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// The same pause each time. Clients that start at the same time also retry at the same time.
    Fixed(Duration),
    /// A random pause between zero and `base × 2^tries`, at most `cap`.
    FullJitter {
        /// The longest first pause.
        base: Duration,
        /// The longest pause.
        cap: Duration,
    },
    /// A random pause between `base` and three times the last pause, at most `cap`.
    Decorrelated {
        /// The shortest pause.
        base: Duration,
        /// The longest pause.
        cap: Duration,
    },
}

impl Default for Retry {
    /// Full jitter from 10 ms up to 1 s.
    fn default() -> Self {
        let (base, cap) = (Duration::from_millis(10), Duration::from_secs(1));
        Self::FullJitter { base, cap }
    }
}

impl Retry {
    /// Returns the pauses, with random numbers from `seed`.
    #[must_use]
    pub fn pauses(self, seed: u64) -> Pauses {
        Pauses {
            retry: self,
            tries: 0,
            last: Duration::ZERO,
            state: seed,
        }
    }
}

/// The pauses of a [`Retry`]: endless.
#[derive(Debug, Clone)]
pub struct Pauses {
    retry: Retry,
    tries: u32,
    last: Duration,
    state: u64,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = match self.retry {
            Retry::Fixed(pause) => pause,
            Retry::FullJitter { base, cap } => {
                let top = grown(micros(base), micros(cap), self.tries);
                between(&mut self.state, 0, top)
            }
            Retry::Decorrelated { base, cap } => {
                let top = self.last.saturating_mul(3).max(base);
                between(&mut self.state, micros(base), micros(top)).min(cap)
            }
        };
        self.tries = self.tries.saturating_add(1);
        self.last = pause;
        Some(pause)
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
    fn retries_keep_to_their_ranges() {
        let ms = Duration::from_millis;
        for seed in 0..1000 {
            let (base, cap) = (ms(10), ms(100));
            let full = Retry::FullJitter { base, cap }.pauses(seed);
            for (pause, top) in full.zip([10, 20, 40, 80, 100, 100]) {
                assert!(pause <= ms(top), "{pause:?} of {top} ms");
            }
            let mut last = base;
            let decorrelated = Retry::Decorrelated { base, cap };
            for pause in decorrelated.pauses(seed).take(50) {
                assert!(pause >= base && pause <= cap.min(last * 3), "{pause:?}");
                last = pause;
            }
        }
        let spread = |retry: Retry| {
            let all: std::collections::BTreeSet<_> = retry.pauses(3).take(50).collect();
            all.len()
        };
        assert!(spread(Retry::default()) > 40);
        assert_eq!(spread(Retry::Fixed(ms(3))), 1);
        let odd = Retry::Decorrelated {
            base: ms(9),
            cap: ms(1),
        };
        assert!(odd.pauses(1).take(9).all(|pause| pause == ms(1)));
        let huge = Retry::FullJitter {
            base: Duration::MAX,
            cap: Duration::MAX,
        };
        assert_eq!(huge.pauses(1).take(99).count(), 99);
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
