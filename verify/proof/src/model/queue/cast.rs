use std::time::Duration;

use leasehold_core::{Mode, OwnerSecret};

use super::TICK;

/// One claim that takes part: how it wants the key.
#[derive(Debug, Clone)]
pub(in crate::model) struct Part {
    pub(super) mode: Mode,
    pub(super) lease: Duration,
    pub(super) waiter: Duration,
    pub(super) wait: bool,
    pub(super) ahead: bool,
    pub(super) secret: Option<OwnerSecret>,
    pub(super) min_hold: Duration,
    /// The client whose claims may be granted one behind the other, of which it is one.
    pub(super) runs: Option<usize>,
}

impl Part {
    /// Reads how a claim wants the key: as `writer`, as `reader`, or so many of three permits, as in
    /// `takes 2`; and what else is said of it.
    pub(in crate::model) fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let mode = match words.next() {
            Some("writer") => Mode::EXCLUSIVE,
            Some("reader") => Mode::SHARED,
            Some("takes") => Mode::permits(3, number(&mut words)),
            _ => unreachable!("{text:?} wants no key"),
        };
        let mut part = Self {
            mode,
            lease: 2 * TICK,
            waiter: 2 * TICK,
            wait: true,
            ahead: false,
            secret: None,
            min_hold: Duration::ZERO,
            runs: None,
        };
        while let Some(word) = words.next() {
            match word {
                // Leaves rather than wait.
                "tries" => part.wait = false,
                // May be granted past those who wait.
                "ahead" => part.ahead = true,
                // Keeps the key for so many ticks at least.
                "keeps" => part.min_hold = TICK * number(&mut words),
                // A re-entrant claim of that owner.
                "of" => part.secret = Some(OwnerSecret::from_random(number(&mut words).into())),
                // One of the claims of a client, the first of which is the part of this number.
                "runs" => part.runs = Some(number(&mut words) as usize),
                _ => unreachable!("{word:?} says nothing of a claim"),
            }
        }
        part
    }
}

fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> u32 {
    let number = words.next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| unreachable!("a number is missing"))
}
