//! An observer that records metrics with the `metrics` crate.
//!
//! `ALL` lists them; a test compares the list with `docs/metrics.md`.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::{Capacity, Fact, Key, Mode};
use leasehold_store::debug;
use metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use super::{Acquisition, ObservedClaim, Observer, StoreRequest};

const MODE: &str = "leasehold.mode";
const OUTCOME: &str = "leasehold.outcome";
const REASON: &str = "leasehold.reason";
const VERB: &str = "leasehold.verb";
const KEY_CLASS: &str = "leasehold.key_class";

/// A metric, as it is described.
struct Metric {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    meaning: &'static str,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    /// Goes up and down.
    Gauge,
    /// Of seconds.
    Histogram,
}

/// Declares the metrics, and the list of them.
macro_rules! declare {
    ($($name:ident: $kind:ident, $text:literal, [$($label:ident),*], $meaning:literal;)*) => {
        $(const $name: Metric = Metric {
            name: $text,
            kind: Kind::$kind,
            labels: &[$($label),*],
            meaning: $meaning,
        };)*

        /// All of them, in the order of the documentation.
        const ALL: [&Metric; 8] = [$(&$name),*];
    };
}

declare! {
    ACQUIRE_ACTIVE: Gauge, "leasehold.acquire.active", [MODE],
        "callers that are acquiring a key now: asking the store, or waiting";
    ACQUIRE_DURATION: Histogram, "leasehold.acquire.duration", [MODE, OUTCOME],
        "from the call that acquires to its end";
    HOLD_ACTIVE: Gauge, "leasehold.hold.active", [MODE],
        "leases held now";
    HOLD_DURATION: Histogram, "leasehold.hold.duration", [MODE, OUTCOME],
        "from the grant of a lease to its release or loss";
    HOLD_LOSSES: Counter, "leasehold.hold.losses", [MODE, REASON],
        "leases that ended before their holder released them";
    HOLD_RENEWALS: Counter, "leasehold.hold.renewals", [MODE, OUTCOME],
        "renewals of leases that were answered, and leases whose renewal was late";
    RECONNECTS: Counter, "leasehold.reconnects", [],
        "connections that were lost and made anew, fail-overs included";
    REQUEST_DURATION: Histogram, "leasehold.request.duration", [VERB, OUTCOME],
        "from a request of a claim to the answer of the store";
}

/// Records metrics of a client: how long callers wait for keys and hold them, how many leases are
/// held, how many are lost and why, and how long the store takes to answer.
///
/// They go to the recorder that the program installed for the `metrics` crate. The names follow
/// the conventions of OpenTelemetry; the page *Metrics and traces* of the repository lists them all.
///
/// The key is not a label, because the number of keys has no bound. [`Metrics::by_class`] adds a
/// label that you compute from the key.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::Client;
/// use leasehold::observe::Metrics;
/// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
///
/// // Install the recorder first: gauges count from the first lease on.
/// let prometheus = PrometheusBuilder::new()
///     .with_recommended_naming(true)
///     .set_buckets_for_metric(Matcher::Prefix("leasehold".into()), &Metrics::BUCKETS)?
///     .install_recorder()?;
/// let client = Client::builder().store("memory:").observer(Metrics::new()).connect().await?;
///
/// let lease = client.mutex("orders/42")?.lock().await?;
/// let held = "leasehold_hold_active{leasehold_mode=\"exclusive\"} 1";
/// assert!(prometheus.render().contains(held));
/// # drop(lease);
/// # Ok(()) }
/// ```
pub struct Metrics {
    class: Option<Box<Class>>,
}

type Class = dyn Fn(&Key) -> SharedString + Send + Sync;

impl Metrics {
    /// Upper bounds of histogram buckets, in seconds, for all durations: a request takes less
    /// than a millisecond, and a lease may be held for an hour.
    pub const BUCKETS: [f64; 16] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
        600.0, 3600.0,
    ];

    /// Describes the metrics to the installed recorder.
    #[must_use]
    pub fn new() -> Self {
        for metric in ALL {
            let Metric { name, meaning, .. } = *metric;
            match metric.kind {
                Kind::Counter => describe_counter!(name, Unit::Count, meaning),
                Kind::Gauge => describe_gauge!(name, Unit::Count, meaning),
                Kind::Histogram => describe_histogram!(name, Unit::Seconds, meaning),
            }
        }
        Self { class: None }
    }

    /// Same as [`Metrics::new`], with the label `leasehold.key_class` on all metrics but those of
    /// requests. `class` computes it from the key: it must return few different values, and
    /// always the same one for a key.
    ///
    /// ```
    /// use leasehold::observe::Metrics;
    /// // orders/42 -> orders
    /// let metrics = Metrics::by_class(|key| match key.as_str().split_once('/') {
    ///     Some((class, _)) => class.to_owned(),
    ///     None => "other".to_owned(),
    /// });
    /// # let _ = leasehold::Client::builder().observer(metrics);
    /// ```
    #[must_use]
    pub fn by_class<C: Into<Cow<'static, str>>>(
        class: impl Fn(&Key) -> C + Send + Sync + 'static,
    ) -> Self {
        let class = move |key: &Key| SharedString::from(class(key).into());
        let mut metrics = Self::new();
        metrics.class = Some(Box::new(class));
        metrics
    }

    /// The labels of `metric` with these values, and the class of the key.
    fn labels<const N: usize>(
        &self,
        metric: &Metric,
        key: Option<&Key>,
        values: [SharedString; N],
    ) -> Vec<Label> {
        let class = self.class.as_ref().zip(key);
        let class = class.map(|(class, key)| Label::new(KEY_CLASS, class(key)));
        let labels = metric.labels.iter().zip(values);
        let labels = labels.map(|(label, value)| Label::new(*label, value));
        labels.chain(class).collect()
    }

    /// A lease has ended.
    fn ended(&self, claim: &ObservedClaim, outcome: SharedString, held: Duration) {
        let (key, mode) = (Some(&claim.key), mode(claim.mode));
        let active = self.labels(&HOLD_ACTIVE, key, [mode.clone()]);
        gauge!(HOLD_ACTIVE.name, active).decrement(1);
        let duration = self.labels(&HOLD_DURATION, key, [mode, outcome]);
        histogram!(HOLD_DURATION.name, duration).record(held);
    }
}

fn mode(mode: Mode) -> SharedString {
    SharedString::const_str(match mode.capacity() {
        Capacity::Permits(_) => "permits",
        Capacity::Lock if mode == Mode::EXCLUSIVE => "exclusive",
        Capacity::Lock => "shared",
    })
}

impl Observer for Metrics {
    fn observe(&self, claim: &ObservedClaim, fact: Fact) {
        let (key, mode) = (Some(&claim.key), mode(claim.mode));
        let count = |metric: &Metric, what| {
            let labels = self.labels(metric, key, [mode.clone(), SharedString::const_str(what)]);
            counter!(metric.name, labels).increment(1);
        };
        match fact {
            Fact::Granted { .. } => {
                let labels = self.labels(&HOLD_ACTIVE, key, [mode]);
                gauge!(HOLD_ACTIVE.name, labels).increment(1);
            }
            Fact::Renewed { .. } => count(&HOLD_RENEWALS, "answered"),
            Fact::Unanswered { .. } => count(&HOLD_RENEWALS, "late"),
            Fact::Lost { loss, held } => {
                self.ended(claim, SharedString::const_str("lost"), held);
                count(&HOLD_LOSSES, loss.name());
            }
            Fact::Released { held } => {
                self.ended(claim, SharedString::const_str("released"), held);
            }
            _ => {}
        }
    }

    fn acquisition(&self, acquisition: Acquisition<'_>) {
        let (key, mode) = (Some(acquisition.key), mode(acquisition.mode));
        let active = self.labels(&ACQUIRE_ACTIVE, key, [mode.clone()]);
        let active = gauge!(ACQUIRE_ACTIVE.name, active);
        match acquisition.ended {
            None => active.increment(1),
            Some((outcome, took)) => {
                active.decrement(1);
                let values = [mode, outcome.to_string().into()];
                let duration = self.labels(&ACQUIRE_DURATION, key, values);
                histogram!(ACQUIRE_DURATION.name, duration).record(took);
            }
        }
    }

    fn request(&self, request: StoreRequest<'_>) {
        let failed = request.failed.map(|failed| failed.to_string().into());
        let outcome = failed.unwrap_or(SharedString::const_str("answered"));
        let values = [SharedString::const_str(request.verb), outcome];
        let labels = self.labels(&REQUEST_DURATION, None, values);
        histogram!(REQUEST_DURATION.name, labels).record(request.took);
    }

    fn reconnected(&self) {
        counter!(RECONNECTS.name).increment(1);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

debug!(Metrics);

#[cfg(test)]
mod tests;
