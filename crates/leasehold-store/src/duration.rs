//! Durations as people write them: in URLs, options, variables and files.

use std::time::Duration;

const EXAMPLES: &str = "write it like 500ms, 30s, 5m or 1h30m";

/// Reads a duration: `500ms`, `30s`, `5m`, `10min`, `1h30m`, `1h 30m`, `7d`.
///
/// ```
/// use std::time::Duration;
/// use leasehold_store::parse_duration;
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert_eq!(parse_duration("30"), Err("add a unit: 30s for seconds, 30m for minutes".into()));
/// ```
///
/// # Errors
/// What to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("the duration is empty; {EXAMPLES}"));
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!(
            "add a unit: {text}s for seconds, {text}m for minutes"
        ));
    }
    if text.contains('M') {
        return Err("M is for months; m is minutes, e.g. 5m".to_owned());
    }
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    humantime::parse_duration(text).map_err(|_| format!("not a duration; {EXAMPLES}"))
}

/// Writes a duration as a whole number of the largest unit that it is a multiple of, so that it
/// reads back the same: `36h`, `250ms`. One of other units, or of too large a number, has several.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
    ];
    let nanos = duration.as_nanos();
    let fits = |(_, unit): &(&str, u128)| {
        nanos != 0 && nanos.is_multiple_of(*unit) && nanos / unit < 1_000_000_000_000
    };
    match UNITS.into_iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None => humantime::format_duration(duration).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("10min", 600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            (" 2s ", 2_000),
            ("0", 0),
            ("0s", 0),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        for odd in [
            Duration::from_nanos(1_500_001),
            Duration::from_nanos(1),
            Duration::new(90_071_992_547_409_931, 500_000_000),
        ] {
            assert_eq!(parse_duration(&format_duration(odd)), Ok(odd));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let months = "M is for months; m is minutes, e.g. 5m".to_owned();
        assert_eq!(parse_duration("5M"), Err(months));
        let unit = "add a unit: 30s for seconds, 30m for minutes".to_owned();
        assert_eq!(parse_duration("30"), Err(unit));
        for text in ["", "soon", "-1s", "5 parsecs", "9999999999999999y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
