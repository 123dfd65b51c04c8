//! Durations, as URLs and the command read them, and as both show them.

use std::time::Duration;

use leasehold::store::{format_duration, parse_duration};

use self::command::{LONGEST, at_least, millis, spoken};
use super::check_sentence;

// The command is no library: its file is compiled here once more.
#[path = "../../../../crates/leasehold-cli/src/duration.rs"]
#[allow(unreachable_pub, unused_imports, reason = "as it is there")]
mod command;

pub(crate) fn run(text: &str) {
    match parse_duration(text) {
        Ok(duration) => {
            let shown = humantime::format_duration(duration).to_string();
            assert_eq!(parse_duration(&shown), Ok(duration), "{shown}");
            let shown = format_duration(duration);
            assert_eq!(parse_duration(&shown), Ok(duration), "{shown}");
            for (least, limit) in [("1s", 1_000), ("100ms", 100), ("50ms", 50)] {
                let is_enough = duration >= Duration::from_millis(limit);
                assert_eq!(
                    at_least(least)(text).ok(),
                    is_enough.then_some(duration.min(LONGEST))
                );
            }
            check_spoken(duration);
            assert!(u128::from(millis(duration)) <= duration.as_millis());
        }
        Err(why) => check_sentence(&why, text.len()),
    }
}

/// One or two whole or tenth units, which tell the duration to a tenth.
fn check_spoken(duration: Duration) {
    let spoken = spoken(duration);
    let words: Vec<_> = spoken.split(' ').collect();
    assert!(words.len() == 2 || words.len() == 4, "{spoken}");
    let seconds: f64 = words
        .chunks_exact(2)
        .map(|pair| {
            let number: f64 = pair[0].parse().expect(&spoken);
            let unit = match pair[1] {
                "ms" => 0.001,
                "s" => 1.0,
                "min" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                other => panic!("{other} in {spoken}"),
            };
            number * unit
        })
        .sum();
    let exact = duration.as_secs_f64();
    let near = (seconds - exact).abs() <= 0.001 + exact * 0.1;
    assert!(near, "{exact} s is said as {spoken}");
}
