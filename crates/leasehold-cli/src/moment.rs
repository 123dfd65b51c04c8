//! Moments as people write them.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::duration;

/// Reads how long ago it was, as `1h30m`, or when: `2026-01-31T12:00:00Z`, with any offset, or
/// `2026-01-31 12:00` and `2026-01-31`, which are UTC as all that is printed.
pub(crate) fn parse(text: &str) -> Result<SystemTime, String> {
    let text = text.trim();
    let ago = match (duration::parse(text), time(text)) {
        (Ok(ago), _) => ago,
        (_, Some(time)) => return Ok(SystemTime::from(time).max(SystemTime::UNIX_EPOCH)),
        (Err(why), _) if text.parse::<u64>().is_ok() => return Err(why),
        _ => Err("not a duration or a time; write it like 1h30m or 2026-01-31T12:00:00Z")?,
    };
    let then = SystemTime::now().checked_sub(ago);
    // No store has been there before.
    let first = SystemTime::UNIX_EPOCH;
    Ok(then.map_or(first, |then| then.max(first)))
}

fn time(text: &str) -> Option<Timestamp> {
    let of_date = || {
        let time = text.parse::<DateTime>().ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?;
        Some(time.timestamp())
    };
    text.parse().ok().or_else(of_date)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T14:00:00.000+02:00",
            "2026-01-31 12:00",
            " 2026-01-31T12:00:00 ",
        ] {
            assert_eq!(parse(text), Ok(noon), "{text}");
        }
        let midnight = noon - Duration::from_secs(12 * 60 * 60);
        assert_eq!(parse("2026-01-31"), Ok(midnight));
        let before = SystemTime::now();
        let hour = Duration::from_secs(60 * 60);
        assert!(parse("1h").unwrap() >= before - hour);
        assert!(parse("1h").unwrap() <= SystemTime::now() - hour);
        for early in ["10000y", "0001-01-01"] {
            assert_eq!(parse(early), Ok(SystemTime::UNIX_EPOCH));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for text in ["", "yesterday", "12:00", "2026-13-01", "31.01.2026", "-1h"] {
            let why = parse(text).unwrap_err();
            assert!(why.contains("2026-01-31T12:00:00Z"), "{text}: {why}");
        }
        assert!(parse("30").unwrap_err().contains("add a unit"));
    }
}
