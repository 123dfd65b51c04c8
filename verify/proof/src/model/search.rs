//! Every state that can be reached, by breadth: the first way to a state is a shortest.
//!
//! The counts and the counterexample are the same at every run. States are told apart
//! by 64 bits of hash: of ten million states, two would be taken for one with a chance
//! of 1 in 370,000.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::SystemTime;

use super::checker::{Counterexample, Effort, Findings, Subject, hash_of, trace};
use super::clock::since;

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

struct Reached<State> {
    hash: u64,
    from: u64,
    by: u32,
    state: State,
}

pub(super) fn run<S: Subject>(name: &str, subject: &S, effort: Effort) -> Findings {
    let began = SystemTime::now();
    let mut known = Known::default();
    let mut frontier = vec![(hash_of(&subject.init()), subject.init())];
    known.insert(frontier[0].0, (0, 0));
    let mut depth = 0;
    let mut broken = None;
    let mut complete = true;
    while !frontier.is_empty() && broken.is_none() && complete {
        depth += 1;
        let mut next = Vec::new();
        for part in frontier.chunks(CHUNK * effort.threads) {
            if effort.time.is_some_and(|time| since(began) >= time) {
                complete = false;
                break;
            }
            for reached in expand(subject, part, &known, effort.threads) {
                if let Entry::Vacant(place) = known.entry(reached.hash) {
                    place.insert((reached.from, reached.by));
                    if !S::broken(&reached.state).is_empty() {
                        broken.get_or_insert(reached.hash);
                    }
                    next.push((reached.hash, reached.state));
                }
            }
        }
        frontier = next;
    }
    let broken = broken.and_then(|hash| counterexample(subject, &known, hash));
    let size = (known.len() as u64, depth - 1);
    let seconds = since(began).as_secs_f64();
    let mut findings = Findings::of(subject, (name, "exhaustive"), size, seconds, broken);
    findings.complete &= complete;
    findings
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
                    let from = *from;
                    reached.push(Reached {
                        hash,
                        from,
                        by,
                        state,
                    });
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
        property: property.name().to_owned(),
        seed: None,
        trace: trace(subject, &way),
    })
}
