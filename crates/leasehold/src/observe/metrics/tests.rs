//! The documentation lists what is recorded, and gauges return to zero.

use leasehold_core::{Loss, Token};
use metrics_exporter_prometheus::PrometheusBuilder;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::observe::AcquireOutcome;

/// Each line of the table in `docs/metrics.md`, as the list has it: the only one of five columns.
#[test]
fn the_documentation_lists_all_metrics() {
    let page = include_str!("../../../../../docs/metrics.md");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `leasehold."));
    let rows = rows.filter(|line| line.split('|').count() == 7);
    let listed = ALL.map(|metric| {
        let (kind, unit) = match metric.kind {
            Kind::Counter => ("counter", "1"),
            Kind::Gauge => ("gauge", "1"),
            Kind::Histogram => ("histogram", "s"),
        };
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let Metric { name, meaning, .. } = metric;
        format!("| `{name}` | {kind} | {unit} | {labels} | {meaning} |")
    });
    assert_eq!(rows.collect::<Vec<_>>(), listed);
}

/// What may happen to a claim, in an order in which it can happen.
#[derive(Debug, Clone)]
struct Story {
    key: Key,
    mode: Mode,
    acquisitions: usize,
    facts: Vec<Fact>,
}

fn stories() -> impl Strategy<Value = Vec<Story>> {
    let time = (0_u64..5000).prop_map(Duration::from_millis);
    let loss = prop::sample::select(vec![Loss::Gone, Loss::Unanswered, Loss::HandedOver]);
    let mode = prop::sample::select(vec![Mode::EXCLUSIVE, Mode::SHARED, Mode::permits(3, 2)]);
    let remaining = Duration::from_secs(1);
    let kept = vec![Fact::Renewed { remaining }, Fact::Unanswered { remaining }];
    let kept = prop::collection::vec(prop::sample::select(kept), 0..4);
    let story = (
        prop::sample::select(vec!["a/1", "a/2", "b"]),
        mode,
        0_usize..3,
        0_usize..3,
        prop::option::of((kept, prop::option::of(loss))),
        time,
    );
    let story = story.prop_map(|(key, mode, acquisitions, queued, held, waited)| {
        let mut facts = vec![Fact::Requested];
        facts.extend(vec![Fact::Queued { position: 1 }; queued]);
        match held {
            None => facts.push(Fact::Ended { end: None, waited }),
            Some((kept, loss)) => {
                let (token, held) = (Token::from(1), waited);
                facts.push(Fact::Granted { token, waited });
                facts.extend(kept);
                facts.push(match loss {
                    Some(loss) => Fact::Lost { loss, held },
                    None => Fact::Released { held },
                });
            }
        }
        let key = Key::new(key).unwrap();
        Story {
            key,
            mode,
            acquisitions,
            facts,
        }
    });
    prop::collection::vec(story, 1..12)
}

/// The sum of what a gauge is at, over all of its labels.
fn sum(text: &str, gauge: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(gauge));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

proptest! {
    /// However claims are told of among each other; and each gauge is what is under way before.
    #[test]
    fn gauges_return_to_zero(stories in stories(), order in any::<u64>()) {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let class = |key: &Key| key.as_str().split('/').next().map(str::to_owned).unwrap();
            let metrics = Metrics::by_class(class);
            let mut left: Vec<_> = stories.into_iter().map(|story| {
                let begins = Acquisition { key: &story.key, mode: story.mode, ended: None };
                (0..story.acquisitions).for_each(|_| metrics.acquisition(begins));
                let facts = story.facts.clone().into_iter();
                (story, facts)
            }).collect();
            let (mut held, mut asking) = (0.0, left.iter().map(|(it, _)| it.acquisitions).sum::<usize>() as f64);
            let mut order = order;
            while !left.is_empty() {
                order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(order >> 33).unwrap() % left.len();
                let (story, facts) = &mut left[at];
                let claim = ObservedClaim { key: story.key.clone(), mode: story.mode, number: 1 };
                match facts.next() {
                    Some(fact) => {
                        held += f64::from(i8::from(matches!(fact, Fact::Granted { .. })));
                        held -= f64::from(i8::from(matches!(fact, Fact::Lost { .. } | Fact::Released { .. })));
                        metrics.observe(&claim, fact);
                    }
                    None => {
                        let outcome = AcquireOutcome::Failed(ErrorKind::Timeout);
                        let ended = Some((outcome, Duration::ZERO));
                        let ends = Acquisition { key: &story.key, mode: story.mode, ended };
                        (0..story.acquisitions).for_each(|_| metrics.acquisition(ends));
                        asking -= story.acquisitions as f64;
                        left.swap_remove(at);
                    }
                }
                let text = handle.render();
                prop_assert_eq!(sum(&text, "leasehold_hold_active{"), held);
                prop_assert_eq!(sum(&text, "leasehold_acquire_active{"), asking);
            }
            prop_assert_eq!((held, asking), (0.0, 0.0));
            let text = handle.render();
            for gauge in text.lines().filter(|line| line.contains("_active{")) {
                prop_assert!(gauge.ends_with(" 0"), "{}", gauge);
            }
            Ok(())
        })?;
    }
}
