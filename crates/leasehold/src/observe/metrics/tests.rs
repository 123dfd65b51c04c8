//! The documentation lists what is recorded.

use super::*;

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
