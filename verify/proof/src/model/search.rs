//! Every state that can be reached, by breadth: the first way to a state is a shortest.
//!
//! The counts and the counterexample are the same at every run. States are told apart
//! by 64 bits of hash: of ten million states, two would be taken for one with a chance
//! of 1 in 370,000.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::checker::{Counterexample, Ran, Subject, hash_of, trace};

/// How many states a thread takes at once.
const CHUNK: usize = 4096;

/// A hash is its own hash.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// From which state, and by which of its actions, each was first reached.
type Known = HashMap<u64, (u64, u32), BuildHasherDefault<Same>>;

/// A state by its hash, how it was reached, and what it is.
type Reached<State> = (u64, (u64, u32), State);

pub(super) fn run<S: Subject>(subject: &S, threads: usize, over: impl Fn() -> bool) -> Ran {
    let mut known = Known::default();
    let mut frontier = vec![(hash_of(&subject.init()), subject.init())];
    known.insert(frontier[0].0, (0, 0));
    let mut depth = 0;
    let mut broken = None;
    let mut complete = true;
    while !frontier.is_empty() && broken.is_none() && complete {
        depth += 1;
        let mut next = Vec::new();
        for part in frontier.chunks(CHUNK * threads) {
            if over() {
                complete = false;
                break;
            }
            for (hash, way, state) in expand(subject, part, &known, threads) {
                if let Entry::Vacant(place) = known.entry(hash) {
                    place.insert(way);
                    if !S::broken(&state).is_empty() {
                        broken = broken.or(Some(hash));
                    }
                    next.push((hash, state));
                }
            }
        }
        frontier = next;
    }
    Ran {
        states: known.len() as u64,
        depth: depth - 1,
        complete,
        broken: broken.and_then(|hash| counterexample(subject, &known, hash)),
    }
}

/// All that is new, as far as is known, and can be reached from these states in one step.
fn expand<S: Subject>(
    subject: &S,
    states: &[(u64, S::State)],
    known: &Known,
    threads: usize,
) -> Vec<Reached<S::State>> {
    let expand = |states: &[(u64, S::State)]| {
        let mut reached = Vec::new();
        let mut actions = Vec::new();
        for (from, state) in states {
            actions.clear();
            subject.actions(state, &mut actions);
            for (by, action) in (0..).zip(&actions) {
                let mut state = subject.next(state, *action);
                let hash = hash_of(&state);
                if !known.contains_key(&hash) {
                    subject.look_ahead(&mut state, hash);
                    reached.push((hash, (*from, by), state));
                }
            }
        }
        reached
    };
    let shares = states.chunks(states.len().div_ceil(threads).max(1));
    std::thread::scope(|scope| {
        let workers = shares.map(|share| scope.spawn(move || expand(share)));
        let joined = workers.collect::<Vec<_>>().into_iter().map(|worker| {
            let done = worker.join();
            // What the code under test panics with is for whoever looks on.
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.flatten().collect()
    })
}

fn counterexample<S: Subject>(subject: &S, known: &Known, end: u64) -> Option<Counterexample> {
    let mut turns = Vec::new();
    let mut at = end;
    while let Some((from, by)) = known.get(&at).filter(|(from, _)| *from != 0) {
        turns.push(*by as usize);
        at = *from;
    }
    let mut state = subject.init();
    let mut way = Vec::new();
    let mut actions = Vec::new();
    for turn in turns.into_iter().rev() {
        actions.clear();
        subject.actions(&state, &mut actions);
        let action = *actions.get(turn)?;
        state = subject.step(&state, action);
        way.push(action);
    }
    let property = S::broken(&state).first(subject.promises())?;
    Some(Counterexample {
        property: property.name(),
        seed: None,
        trace: trace(subject, &way),
    })
}
