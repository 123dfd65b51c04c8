//! Metrics in the text format of Prometheus.

use std::fmt::Write as _;

/// A metric: name, type, meaning.
pub type Metric = (&'static str, &'static str, &'static str);

/// Adds a metric with the values of its series, each named as by [`series`].
pub fn add(
    text: &mut String,
    (name, kind, meaning): Metric,
    values: impl IntoIterator<Item = (String, f64)>,
) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
    for (series, value) in values {
        let _ = writeln!(text, "{series} {value}");
    }
}

/// The name of a series with one label: `name{label="value"}`.
pub fn series(name: &str, label: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}{{{label}=\"{value}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_quoted() {
        assert_eq!(series("n", "key", "a\\b\"c\n"), r#"n{key="a\\b\"c\n"}"#);
    }
}
