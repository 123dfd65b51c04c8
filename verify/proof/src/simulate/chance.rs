//! What is drawn: one generator for each purpose, all from one seed, so that what one
//! part draws does not change what another does.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::trace::Digest;
use crate::split_mix::split_mix;

/// A source of choices.
#[derive(Debug, Clone)]
pub(crate) struct Chance(fastrand::Rng);

impl Chance {
    /// The choices of `purpose` in the run of `seed`.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mut digest = Digest::default();
        digest.add(&seed.to_le_bytes());
        digest.add(purpose.as_bytes());
        let mut state = digest.value();
        Self(fastrand::Rng::with_seed(split_mix(&mut state)))
    }

    /// Another source, that goes its own way from here.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.fork())
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, times: u32) -> bool {
        self.0.u32(0..100) < times
    }

    pub(crate) fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    /// An index below `len`, which must not be zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.0.usize(0..len)
    }

    /// A whole number of microseconds in the range.
    pub(crate) fn time(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.number(micros(range.start())..=micros(range.end())))
    }

    /// Mostly short, seldom long: three times in four from the first quarter.
    pub(crate) fn mostly_short(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let (low, high) = range.into_inner();
        let quarter = low + (high - low) / 4;
        if self.percent(75) {
            self.time(low..=quarter)
        } else {
            self.time(quarter..=high)
        }
    }

    /// Minus or plus up to `bound`.
    pub(crate) fn either_way(&mut self, bound: i64) -> i64 {
        self.0.i64(-bound..=bound)
    }
}
