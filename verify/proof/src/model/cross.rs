//! Our checker against another, and against models whose answer is known.

use std::fmt::Debug;
use std::sync::Arc;

use stateright::{Checker, Model, Property};

use super::catalogue;
use super::checker::{Effort, Method, Subject, run};
use super::promise::{Broken, Promise};
use super::seen::Seen;

const ONE: Effort = Effort {
    time: None,
    short: false,
    seed: 1,
    threads: 1,
};

/// A model as stateright takes it.
struct Other<S>(Arc<S>);

impl<S: Subject<State: Debug + PartialEq>> Model for Other<S> {
    type State = S::State;
    type Action = S::Action;

    fn init_states(&self) -> Vec<S::State> {
        vec![self.0.init()]
    }

    fn actions(&self, state: &S::State, actions: &mut Vec<S::Action>) {
        self.0.actions(state, actions);
    }

    fn next_state(&self, state: &S::State, action: S::Action) -> Option<S::State> {
        Some(self.0.next(state, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let whole = |_: &Self, state: &S::State| S::broken(state).is_empty();
        vec![Property::always("nothing is broken", whole)]
    }
}

fn both_count_the_same<S: Subject<State: Debug + PartialEq>>(subject: S) {
    let ours = run("ours", &subject, Method::Exhaustive, ONE);
    let theirs = Other(Arc::new(subject)).checker().spawn_bfs().join();
    theirs.assert_properties();
    assert!(ours.broken.is_none() && ours.complete, "{ours:?}");
    assert_eq!(ours.states, theirs.unique_state_count() as u64);
}

#[test]
fn stateright_finds_as_many_states() {
    both_count_the_same(catalogue::smallest_queue());
    both_count_the_same(Walk(40, None));
}

/// Up by one or doubled, to a bound; one number may be bad.
struct Walk(u64, Option<u64>);

#[derive(Debug, Clone, PartialEq, Hash)]
struct At(u64, Broken);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    Up,
    Double,
}

impl Subject for Walk {
    type State = At;
    type Action = Turn;

    fn init(&self) -> At {
        At(1, Broken::default())
    }

    fn actions(&self, at: &At, actions: &mut Vec<Turn>) {
        if at.0 < self.0 {
            actions.extend([Turn::Up, Turn::Double]);
        }
    }

    fn happen(&self, at: &mut At, turn: Turn) {
        match turn {
            Turn::Up => at.0 += 1,
            Turn::Double => at.0 *= 2,
        }
        at.1.require(Promise::Truth, self.1 != Some(at.0));
    }

    fn broken(at: &At) -> Broken {
        at.1
    }

    fn promises(&self) -> &'static [Promise] {
        &[Promise::Truth]
    }

    fn seen(&self) -> &Seen {
        static SEEN: std::sync::LazyLock<Seen> = std::sync::LazyLock::new(|| Seen::wanting(""));
        &SEEN
    }

    fn show(&self, at: &At) -> String {
        at.0.to_string()
    }
}

#[test]
fn a_search_finds_the_shortest_way_whatever_the_threads() {
    for threads in [1, 2, 5] {
        let effort = Effort { threads, ..ONE };
        let subject = Walk(100, Some(20));
        let found = run("walk", &subject, Method::Exhaustive, effort);
        let broken = found.broken.unwrap();
        assert_eq!(broken.property, Promise::Truth.name());
        // 1, 2, 4, 5, 10, 20.
        assert_eq!(broken.trace.len(), 6, "{:?}", broken.trace);
        assert!(!found.complete);
    }
}

#[test]
fn a_search_reaches_every_state() {
    let found = run("walk", &Walk(64, None), Method::Exhaustive, ONE);
    // 1 to 64, and the doubles of 33 to 63.
    assert_eq!((found.states, found.complete), (64 + 31, true));
}

#[test]
fn a_walk_finds_the_same_by_the_same_seed_and_tells_it_short() {
    let subject = Walk(100, Some(96));
    let walks = Method::Walks(500, 200);
    let find = || run("walk", &subject, walks, ONE).broken.unwrap();
    let (first, second) = (find(), find());
    assert_eq!((first.seed, &first.trace), (second.seed, &second.trace));
    assert_eq!(first.trace.last().unwrap(), "Double\n96");
    let seed = first.seed.unwrap();
    let again = Effort { seed, ..ONE };
    let alone = Method::Walks(1, 200);
    assert!(run("walk", &subject, alone, again).broken.is_some());
}

#[test]
fn what_never_happens_is_said() {
    let seen = Seen::wanting("one, two");
    seen.note("two");
    seen.note("three");
    assert_eq!(seen.missing(), ["one"]);
    seen.forget();
    assert_eq!(seen.missing(), ["one", "two"]);
}
