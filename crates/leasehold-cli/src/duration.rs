//! Durations as people write and read them.

use std::time::Duration;

const EXAMPLES: &str = "write it like 500ms, 30s, 5m or 1h30m";

/// Reads `500ms`, `30s`, `5m`, `1h30m`, `1h 30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
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

/// Reads a period: as [`parse`], of a second at least.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        period if period < Duration::from_secs(1) => Err("use 1s or more".to_owned()),
        period => Ok(period),
    }
}

/// Reads how long something may be held: as [`parse`], no shorter than a TTL.
pub(crate) fn parse_hold(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        hold if hold < Duration::from_millis(50) => Err("use 50ms or more".to_owned()),
        hold => Ok(hold),
    }
}

/// Reads how often to look: as [`parse`], of a tenth of a second at least.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        interval if interval < Duration::from_millis(100) => Err("use 100ms or more".to_owned()),
        interval => Ok(interval),
    }
}

/// For people: two units at most, e.g. `350 ms`, `3.2 s`, `12 s`, `5 min 3 s`.
pub(crate) fn spoken(duration: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let millis = duration.as_millis();
    if millis < 1_000 {
        return format!("{millis} ms");
    }
    if millis < 9_950 {
        return format!("{:.1} s", duration.as_secs_f64());
    }
    let seconds = (millis + 500) / 1_000;
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    let two = |large, unit, small, smaller| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {smaller}"),
    };
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => two(seconds / MINUTE, "min", seconds % MINUTE, "s"),
        HOUR..DAY => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "min"),
        _ => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
    }
}

/// For machines: whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            (" 2s ", 2_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let months = "M is for months; m is minutes, e.g. 5m".to_owned();
        assert_eq!(parse("5M"), Err(months));
        assert_eq!(
            parse("30"),
            Err("add a unit: 30s for seconds, 30m for minutes".to_owned())
        );
        for text in ["", "soon", "-1s", "5 parsecs", "9999999999999999y"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn speaks_in_two_units_at_most() {
        for (millis, text) in [
            (0, "0 ms"),
            (350, "350 ms"),
            (3_210, "3.2 s"),
            (9_960, "10 s"),
            (12_400, "12 s"),
            (59_700, "1 min"),
            (303_000, "5 min 3 s"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(spoken(Duration::from_millis(millis)), text);
        }
    }
}
