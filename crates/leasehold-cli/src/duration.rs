//! Durations as people write and read them: one grammar, which URLs have, too.

use std::time::Duration;

pub(crate) use leasehold::store::parse_duration as parse;
pub(crate) use leasehold_console::duration::{millis, spoken};

/// No time that is waited for is further away: none can overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// Reads a duration that is no shorter than that.
pub(crate) fn at_least(least: &'static str) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match parse(text)? {
        short if short < parse(least)? => Err(format!("use {least} or more")),
        duration => Ok(duration.min(LONGEST)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_too_short_says_how_long_it_may_be() {
        for (least, millis) in [("50ms", 50), ("100ms", 100), ("1s", 1_000)] {
            let read = at_least(least);
            let shorter = millis - 1;
            for short in [
                "0",
                "0s",
                "1ns",
                &format!("{shorter}ms"),
                &format!("{shorter}999us"),
            ] {
                assert_eq!(read(short), Err(format!("use {least} or more")), "{short}");
            }
            for enough in [millis, millis + 1, 7_200_000] {
                let duration = Duration::from_millis(enough);
                assert_eq!(read(&format!("{enough}ms")), Ok(duration));
            }
            let immense = read(&format!("{}s", u64::MAX)).unwrap();
            assert!(SystemTime::UNIX_EPOCH.checked_add(2 * immense).is_some());
            for wrong in ["", "30", "5M", "-1s", "soon"] {
                assert_eq!(read(wrong), parse(wrong), "{wrong}");
                assert!(read(wrong).is_err(), "{wrong}");
            }
        }
    }
}
