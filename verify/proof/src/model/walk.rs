//! Random walks: deeper than every state can be reached, and each from a seed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::checker::{Counterexample, Effort, Ran, Subject, trace};
use super::promise::Promise;
use crate::split_mix::split_mix;

/// What all threads share.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    steps: AtomicU64,
    longest: AtomicU64,
    done: AtomicBool,
    /// By the number of the walk, so that the same seed reports the same find.
    found: Mutex<BTreeMap<u64, Counterexample>>,
}

pub(super) fn run<S: Subject>(
    subject: &S,
    walks: u64,
    length: usize,
    effort: Effort,
    over: impl Fn() -> bool + Sync,
) -> Ran {
    let tally = Tally::default();
    // Walk after walk, until there are enough or one has found something.
    let stroll = || {
        while !tally.done.load(Ordering::Relaxed) && !over() {
            let number = tally.next.fetch_add(1, Ordering::Relaxed);
            if number >= walks {
                return;
            }
            let seed = effort.seed.wrapping_add(number);
            let (way, broken) = one(subject, seed, length);
            tally.steps.fetch_add(way.len() as u64, Ordering::Relaxed);
            tally.longest.fetch_max(way.len() as u64, Ordering::Relaxed);
            if let Some(property) = broken {
                tally.done.store(true, Ordering::Relaxed);
                let found = Counterexample {
                    seed: Some(seed),
                    trace: trace(subject, &shorten(subject, way, property)),
                    property: property.name(),
                };
                if let Ok(mut all) = tally.found.lock() {
                    all.insert(number, found);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..effort.threads {
            scope.spawn(stroll);
        }
    });
    let found = tally.found.into_inner().unwrap_or_default();
    Ran {
        states: tally.steps.into_inner(),
        depth: tally.longest.into_inner(),
        // Walks reach as many as they were asked to.
        complete: true,
        broken: found.into_values().next(),
    }
}

/// One walk: its steps, and what it broke.
fn one<S: Subject>(subject: &S, seed: u64, length: usize) -> (Vec<S::Action>, Option<Promise>) {
    // Neighbouring seeds are no neighbours.
    let mut dice = seed.wrapping_mul(0xA076_1D64_78BD_642F);
    let mut way = Vec::new();
    let mut state = subject.init();
    let mut actions = Vec::new();
    while way.len() < length {
        actions.clear();
        subject.actions(&state, &mut actions);
        let Some((action, next)) = step(subject, &state, &actions, &mut dice) else {
            break;
        };
        way.push(action);
        state = next;
        if !S::broken(&state).is_empty() {
            return (way, S::broken(&state).first(subject.promises()));
        }
    }
    (way, None)
}

/// An action drawn by weight, and where it leads.
fn step<S: Subject>(
    subject: &S,
    state: &S::State,
    actions: &[S::Action],
    dice: &mut u64,
) -> Option<(S::Action, S::State)> {
    let total: u64 = actions.iter().map(|a| subject.weight(state, *a)).sum();
    let mut at = split_mix(dice) % total.max(1);
    let drawn = *actions.iter().find(|action| {
        let weight = subject.weight(state, **action);
        let here = at < weight;
        at = at.saturating_sub(weight);
        here
    })?;
    Some((drawn, subject.step(state, drawn)))
}

/// The same find with as few steps as leaving out one at a time gives.
fn shorten<S: Subject>(subject: &S, mut way: Vec<S::Action>, property: Promise) -> Vec<S::Action> {
    let mut at = way.len();
    while at > 0 {
        at -= 1;
        let mut shorter = way.clone();
        shorter.remove(at);
        if let Some(length) = breaks(subject, &shorter, property) {
            shorter.truncate(length);
            way = shorter;
            at = at.min(way.len());
        }
    }
    way
}

/// After how many of these steps the promise is broken, if they can be taken.
fn breaks<S: Subject>(subject: &S, way: &[S::Action], property: Promise) -> Option<usize> {
    let mut state = subject.init();
    let mut actions = Vec::new();
    for (taken, action) in way.iter().enumerate() {
        actions.clear();
        subject.actions(&state, &mut actions);
        if !actions.contains(action) {
            return None;
        }
        state = subject.step(&state, *action);
        if !S::broken(&state).is_empty() {
            return (S::broken(&state).first(subject.promises()) == Some(property))
                .then_some(taken + 1);
        }
    }
    None
}
