//! Durations as people write and read them: one grammar, which URLs have, too.

use std::time::Duration;

pub(crate) use leasehold::store::parse_duration as parse;
pub(crate) use leasehold_console::duration::{millis, spoken};

/// Reads a duration that is no shorter than that.
pub(crate) fn at_least(least: &'static str) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match parse(text)? {
        short if short < parse(least)? => Err(format!("use {least} or more")),
        duration => Ok(duration),
    }
}
