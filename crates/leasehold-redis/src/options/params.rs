//! Reads and writes the query parameters of a URL.

use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::{Invalid, written};

/// The parameters that were not read yet.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Those of the part of a URL behind its `?`.
    pub(crate) fn of(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Takes a parameter; the last one if it is given twice.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let its = self.0.extract_if(.., |(known, _)| known == name);
        its.last().map(|(_, value)| value)
    }

    /// Takes one that is a duration.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, Invalid> {
        let value = self.take(name);
        value.map(|value| parse_duration(name, &value)).transpose()
    }

    /// Takes one that is yes or no.
    pub(crate) fn yes_or_no(&mut self, name: &str) -> Result<Option<bool>, Invalid> {
        Ok(match self.take(name).as_deref() {
            None => None,
            Some("yes" | "true") => Some(true),
            Some("no" | "false") => Some(false),
            Some(other) => {
                return Err(Invalid::new(
                    format!("{name} = {other:?} is not yes or no"),
                    "write yes or no",
                ));
            }
        })
    }

    /// Refuses unknown parameters; `known` lists the known ones for the hint.
    pub(crate) fn check_none_left(&self, known: &str) -> Result<(), Invalid> {
        match self.0.first() {
            None => Ok(()),
            Some((other, _)) => Err(Invalid::new(
                format!("the URL has an unknown parameter {other:?}"),
                format!("known parameters: {known}"),
            )),
        }
    }

    /// What is left, as it stands in a URL.
    pub(crate) fn query(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.0).finish()
    }
}

/// Parameters to be written: those that say something.
pub(crate) type Shown = (&'static str, Option<String>);

/// Writes parameters behind a URL.
pub(crate) fn add_params(url: &mut String, params: impl IntoIterator<Item = Shown>) {
    for (name, value) in params {
        let Some(value) = value else { continue };
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(name);
        url.push('=');
        encode(&value, url);
    }
}

/// A duration as it is written, unless it is the `usual` one.
pub(crate) fn unusual(duration: Duration, usual: Duration) -> Option<String> {
    (duration != usual).then(|| millis(duration))
}

/// Refuses a setting that is out of bounds.
pub(crate) fn check_bounds(
    name: &str,
    value: Duration,
    bounds: RangeInclusive<Duration>,
    choose: &str,
) -> Result<(), Invalid> {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(Invalid::new(
        format!("{name} of {} is out of bounds", written(value)),
        choose,
    ))
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

pub(crate) fn parse_duration(name: &str, text: &str) -> Result<Duration, Invalid> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    number
        .zip(millis)
        .and_then(|(number, millis)| number.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Invalid::new(
                format!("{name} = {text:?} is not a duration"),
                "write a whole number and a unit: 500ms, 5s, 10m, 24h, 7d",
            )
        })
}

/// Writes a query parameter so that it reads back the same.
pub(crate) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' | b'/' => {
                out.push(byte.into());
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The same for what a slash would end: a user, the name of a primary.
pub(crate) fn encode_name(text: &str, out: &mut String) {
    for (at, part) in text.split('/').enumerate() {
        if at > 0 {
            out.push_str("%2F");
        }
        encode(part, out);
    }
}
