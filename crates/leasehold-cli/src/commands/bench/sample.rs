//! Latencies, and medians of rounds.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Times of one kind, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Sample(Histogram<u64>);

impl Sample {
    pub(super) fn new() -> Self {
        // Three digits; grows as it must.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed")))
    }

    pub(super) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows as it must.
        self.0.record(nanos).ok();
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Both grow as they must.
        self.0.add(&other.0).ok();
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a time in a report")]
        let nanos = self.0.value_at_quantile(quantile) as f64;
        nanos / 1e3
    }
}

/// The middle one.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median([f64::NAN]).is_nan());
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut sample = Sample::new();
        for micros in 1..=100 {
            sample.add(Duration::from_micros(micros));
        }
        assert!((sample.quantile(0.5) - 50.0).abs() < 0.5);
        assert_eq!(sample.count(), 100);
    }
}
