//! Durations, for people and for machines.

use std::time::Duration;

/// For people: two units at most, e.g. `350 ms`, `3.2 s`, `12 s`, `5 min 3 s`.
pub fn spoken(duration: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    // Rounded like the larger units: what is left of 1 s at once is not 999 ms.
    let millis = (duration.as_micros() + 500) / 1_000;
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
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(spoken(Duration::from_micros(999_900)), "1.0 s");
    }
}
