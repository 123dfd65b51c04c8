//! What the tables of the catalogue say, in words. One that cannot be read ends the program.

use leasehold_core::Mode;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The cells of a line.
pub(super) fn cells<const N: usize>(line: &'static str) -> [&'static str; N] {
    let cells: Vec<_> = line.split(" | ").collect();
    let cells = <[_; N]>::try_from(cells);
    cells.unwrap_or_else(|_| unreachable!("{line:?} has not {N} cells"))
}

/// What is said of a value, by the names of its parts: `breaks, late 1` says that one is so, and what
/// number the other has. The rest is as by default; `none` says nothing.
pub(super) fn said<T: DeserializeOwned>(text: &str) -> T {
    let said = text.split(", ").filter(|it| *it != "none").map(|it| {
        let number = it.rsplit_once(' ');
        let number = number.and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
        let (name, value) = match number {
            Some((name, number)) => (name, Value::from(number)),
            None => (it, Value::from(true)),
        };
        (name.replace(' ', "_"), value)
    });
    let read = serde_json::from_value(Value::Object(said.collect()));
    read.unwrap_or_else(|error| unreachable!("{text:?}: {error}"))
}

/// How a claim wants the key: as `writer`, as `reader`, or so many of three permits, as in `takes 2`.
pub(super) fn mode<'a>(words: &mut impl Iterator<Item = &'a str>) -> Mode {
    match words.next() {
        Some("writer") => Mode::EXCLUSIVE,
        Some("reader") => Mode::SHARED,
        Some("takes") => Mode::permits(3, number(words)),
        other => unreachable!("{other:?} wants no key"),
    }
}

pub(super) fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> u32 {
    let number = words.next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| unreachable!("a number is missing"))
}
