//! Figures by name: what a measurement came to, and the medians of its rounds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Figures in the order in which they are printed. What could not be measured is left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures(Vec<(&'static str, Value)>);

impl Figures {
    /// A line of figures of that measure.
    pub(super) fn of_measure(name: &str) -> Self {
        Self::default().with("measure", name)
    }

    /// How often something was done in that time, and how long it took.
    pub(super) fn of(sample: &Sample, taken: Duration) -> Self {
        Self::default()
            .with("per_second", sample.count() / taken.as_secs_f64())
            .with("p50_us", sample.quantile(0.5))
            .with("p99_us", sample.quantile(0.99))
    }

    /// Adds a figure; nothing where it is not known or no number.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.0.push((name, value));
        }
        self
    }

    /// Adds the medians of the figures of several rounds.
    pub(super) fn with_medians(self, rounds: &[Self]) -> Self {
        let names = rounds.first().into_iter().flat_map(|round| &round.0);
        names.fold(self, |figures, (name, _)| {
            let values = rounds.iter().filter_map(|round| round.get(name));
            figures.with(name, median(values))
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        let (_, value) = self.0.iter().find(|(it, _)| *it == name)?;
        value.as_f64()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(it, _)| *it == name);
        found.and_then(|(_, value)| value.as_str()).unwrap_or("-")
    }

    /// The figure with so many digits behind the point, or a dash.
    pub(super) fn shown(&self, name: &str, digits: usize) -> String {
        let shown = self.get(name).map(|value| format!("{value:.digits$}"));
        shown.unwrap_or_else(|| "-".to_owned())
    }

    /// The figure in percent, or a dash.
    pub(super) fn percent(&self, name: &str) -> String {
        let shown = self.get(name).map(|it| format!("{:.1} %", it * 100.0));
        shown.unwrap_or_else(|| "-".to_owned())
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

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

    pub(super) fn count(&self) -> f64 {
        number(self.0.len())
    }

    /// In microseconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        number(self.0.value_at_quantile(quantile)) / 1e3
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a report")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

/// The middle one.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_of_those_that_are_known() {
        let round = |value: f64| Figures::default().with("n", value);
        let rounds = [3.0, 1.0, f64::NAN, 2.0].map(round);
        let medians = Figures::default().with_medians(&rounds);
        assert_eq!(medians.shown("n", 1), "2.0");
        assert_eq!(serde_json::to_string(&medians).unwrap(), r#"{"n":2.0}"#);
        let none = Figures::default().with_medians(&[round(f64::NAN)]);
        assert_eq!((none.get("n"), none.shown("n", 1)), (None, "-".to_owned()));
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut sample = Sample::new();
        for micros in 1..=100 {
            sample.add(Duration::from_micros(micros));
        }
        assert!((sample.quantile(0.5) - 50.0).abs() < 0.5);
        assert!((sample.count() - 100.0).abs() < f64::EPSILON);
    }
}
