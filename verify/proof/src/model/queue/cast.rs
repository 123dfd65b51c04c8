use std::time::Duration;

use leasehold_core::{Mode, OwnerSecret};

use super::TICK;
use crate::model::words::{mode, number};

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
    /// Reads how a claim wants the key, and what else is said of it.
    pub(in crate::model) fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut part = Self {
            mode: mode(&mut words),
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
