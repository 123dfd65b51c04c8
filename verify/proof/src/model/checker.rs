//! Runs a model: through every state there is, or along random walks.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use foldhash::quality::FixedState;
use serde::{Deserialize, Serialize};

use super::clock::since;
use super::promise::{Broken, Promise};
use super::seen::Seen;
use super::{search, walk};

/// A model: its states, what can happen in each, and what it promises.
pub(super) trait Subject: Send + Sync + 'static {
    type State: Clone + Hash + Send + Sync;
    type Action: Copy + Debug + PartialEq + Send + Sync;

    /// Where it begins.
    fn init(&self) -> Self::State;

    /// All that can happen; nothing, in a state that has broken a promise.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// Changes a state by it.
    fn happen(&self, state: &mut Self::State, action: Self::Action);

    /// What comes of it.
    fn next(&self, state: &Self::State, action: Self::Action) -> Self::State {
        let mut next = state.clone();
        self.happen(&mut next, action);
        next
    }

    /// Judges where a state can lead, for a sample of all states, by their hash.
    fn look_ahead(&self, _state: &mut Self::State, _hash: u64) {}

    /// A step, and all that there is to say about where it leads.
    fn step(&self, state: &Self::State, action: Self::Action) -> Self::State {
        let mut next = self.next(state, action);
        let hash = hash_of(&next);
        self.look_ahead(&mut next, hash);
        next
    }

    /// Which promises a step towards the state has broken.
    fn broken(state: &Self::State) -> Broken;

    /// What has to hold in every state.
    fn promises(&self) -> &'static [Promise];

    /// What has to happen somewhere, or the model shows nothing.
    fn seen(&self) -> &Seen;

    /// A state in a few lines.
    fn show(&self, state: &Self::State) -> String;

    /// How often a walk takes this action, beside others.
    fn weight(&self, _state: &Self::State, _action: Self::Action) -> u64 {
        4
    }
}

/// What hashes states: a seventh of a model's time is its with the hasher of std.
pub(super) fn hasher() -> impl Hasher {
    FixedState::default().build_hasher()
}

pub(super) fn hash_of(state: &impl Hash) -> u64 {
    FixedState::default().hash_one(state)
}

/// How a model is run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    /// Every state that can be reached.
    Exhaustive,
    /// So many walks of at most so many steps.
    Walks(u64, usize),
}

/// How much may be spent.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Walk for so long instead of so often; also the most that one exhaustive run may take.
    pub time: Option<Duration>,
    /// A tenth of the walks.
    pub short: bool,
    /// Where walks come from.
    pub seed: u64,
    /// How many threads.
    pub threads: usize,
}

/// What a run has found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Findings {
    /// Which model.
    pub model: String,
    /// `exhaustive`, or `walks`.
    pub checker: String,
    /// Different states (exhaustive), or steps taken (walks).
    pub states: u64,
    /// How many steps the longest way had.
    pub depth: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether every state was reached; walks reach as many as they were asked to.
    pub complete: bool,
    /// What held.
    pub held: Vec<String>,
    /// What has never happened, though it must somewhere.
    pub never: Vec<String>,
    /// What did not hold, and how it came about.
    pub broken: Option<Counterexample>,
}

/// The way to a broken promise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counterexample {
    /// What did not hold.
    pub property: String,
    /// How to see it again, where it was found by chance.
    pub seed: Option<u64>,
    /// Each step, and the state after it.
    pub trace: Vec<String>,
}

impl Findings {
    /// Whether all that was to be shown was shown.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.broken.is_none() && self.never.is_empty() && self.complete
    }

    /// In one line.
    pub fn line(&self) -> String {
        let states = match &*self.checker {
            "walks" => "steps",
            _ => "states",
        };
        let verdict = match &self.broken {
            Some(broken) => format!("BROKEN: {}", broken.property),
            None if !self.never.is_empty() => format!("NEVER: {}", self.never.join(", ")),
            None if !self.complete => "not all states were reached".to_owned(),
            None => format!("{} properties held", self.held.len()),
        };
        format!(
            "{:<24} {:<10} {:>11} {states:<6} depth {:>3} {:>7.1} s  {verdict}",
            self.model, self.checker, self.states, self.depth, self.seconds,
        )
    }
}

/// What came of a method.
pub(super) struct Ran {
    /// How many states or steps there were, and how deep.
    pub(super) states: u64,
    pub(super) depth: u64,
    /// Whether its time was enough.
    pub(super) complete: bool,
    pub(super) broken: Option<Counterexample>,
}

/// Runs a model by a method.
pub(super) fn run<S: Subject>(name: &str, subject: &S, method: Method, effort: Effort) -> Findings {
    subject.seen().forget();
    let began = SystemTime::now();
    let over = || effort.time.is_some_and(|time| since(began) >= time);
    let (checker, ran) = match method {
        Method::Exhaustive => ("exhaustive", search::run(subject, effort.threads, over)),
        Method::Walks(walks, steps) => {
            let walks = match effort.time {
                Some(_) => u64::MAX,
                None if effort.short => walks / 10,
                None => walks,
            };
            ("walks", walk::run(subject, walks, steps, effort, over))
        }
    };
    // A run that was ended by a find has not seen everything.
    let complete = ran.complete && ran.broken.is_none();
    let never = complete.then(|| subject.seen().missing());
    let held = subject.promises().iter().filter(|_| ran.broken.is_none());
    Findings {
        model: name.to_owned(),
        checker: checker.to_owned(),
        states: ran.states,
        depth: ran.depth,
        seconds: since(began).as_secs_f64(),
        complete,
        held: held.map(|promise| promise.name()).collect(),
        never: never.unwrap_or_default(),
        broken: ran.broken,
    }
}

/// What happens, step by step.
pub(super) fn trace<S: Subject>(subject: &S, actions: &[S::Action]) -> Vec<String> {
    let mut state = subject.init();
    let mut trace = vec![subject.show(&state)];
    for action in actions {
        state = subject.step(&state, *action);
        trace.push(format!("{action:?}\n{}", subject.show(&state)));
    }
    trace
}
