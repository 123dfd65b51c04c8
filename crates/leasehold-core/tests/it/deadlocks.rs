//! Deadlock detection among workers that claim several keys one after the other.

use leasehold_core::deadlock::{ClaimState, Deadlocks, KeyClaims};
use proptest::prelude::*;

use crate::common::*;

const NOW: StoreTime = StoreTime(1_000_000);
const KEYS: usize = 4;

/// A lock for the first keys, a semaphore of two permits for the rest.
fn mode(key: usize, choice: usize) -> Mode {
    match (key < 2, choice % 2) {
        (true, 0) => Mode::EXCLUSIVE,
        (true, _) => Mode::SHARED,
        (false, choice) => Mode::permits(2, u32::try_from(choice).unwrap() + 1),
    }
}

/// One that, in each round, claims its keys in order, and releases them when it has them all.
#[derive(Debug, Clone)]
struct Worker {
    /// The key and mode of each claim, and how many claims its round has after it.
    plan: Vec<(usize, Mode, usize)>,
    contexts: Vec<Option<ClaimContext>>,
    claimed: usize,
    released: usize,
}

impl Worker {
    fn new(number: usize, declared: bool, rounds: &[Vec<(usize, usize)>]) -> Self {
        let outermost = ClaimContext::from_random(number as u64);
        let (mut plan, mut contexts) = (Vec::new(), Vec::new());
        for round in rounds {
            let mut context = outermost.clone();
            for (step, (key, choice)) in round.iter().enumerate() {
                // Every other claim is made in a context within the one before.
                if step % 2 == 1 {
                    context = context.child(step as u64).unwrap_or(context);
                }
                plan.push((*key, mode(*key, *choice), round.len() - step - 1));
                contexts.push(declared.then(|| context.clone()));
            }
        }
        Self {
            plan,
            contexts,
            claimed: 0,
            released: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.released == self.plan.len()
    }

    /// Whether the next step is a claim: the round is not complete.
    fn claims(&self) -> bool {
        let round_is_complete = self.claimed > 0 && self.plan[self.claimed - 1].2 == 0;
        self.claimed == self.released || !round_is_complete
    }
}

#[derive(Debug)]
struct World {
    queues: Vec<Queue>,
    workers: Vec<Worker>,
}

impl World {
    fn new(workers: Vec<Worker>) -> Self {
        Self {
            queues: vec![Queue::default(); KEYS],
            workers,
        }
    }

    fn id(worker: usize, step: usize) -> ClaimId {
        // The hints that readers see are the first digits.
        ClaimId::from_random(((worker * 64 + step + 1) as u128) << 104)
    }

    /// One step of a worker; false if it waits, or is done.
    fn step(&mut self, number: usize) -> bool {
        let worker = &self.workers[number];
        if worker.is_done() {
            return false;
        }
        if worker.claims() {
            let (key, mode, _) = worker.plan[worker.claimed];
            let context = worker.contexts[worker.claimed].clone();
            let pid = u32::try_from(number).unwrap();
            let id = Self::id(number, worker.claimed);
            let claim = Claim {
                owner: ClientInfo::new("host", pid, None).within(context),
                ..Claim::new(id, mode, Duration::from_secs(60))
            };
            let asked_before = self.stands(number).is_some();
            self.queues[key].apply(&Command::Claim(claim), NOW);
            let holds = self.stands(number) == Some(true);
            self.workers[number].claimed += usize::from(holds);
            return holds || !asked_before;
        }
        let (step, key) = (worker.released, worker.plan[worker.released].0);
        self.workers[number].released += 1;
        self.queues[key].apply(&settle(Self::id(number, step)), NOW);
        true
    }

    /// Whether the claim that the worker makes now holds, if it was made.
    fn stands(&self, number: usize) -> Option<bool> {
        let worker = &self.workers[number];
        let (key, ..) = worker.plan[worker.claimed];
        let hint = Self::id(number, worker.claimed).to_string();
        let look = self.queues[key].look(NOW);
        let is_it = |claim: &ClaimView| claim.id_hint == hint;
        let holds = look.holders.iter().any(|holder| is_it(&holder.claim));
        let waits = look.waiters.iter().any(|waiter| is_it(&waiter.claim));
        (holds || waits).then_some(holds)
    }

    /// Goes on until nobody can.
    fn settle(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for worker in 0..self.workers.len() {
                moved |= self.step(worker);
            }
        }
    }

    fn read(&self, key: usize) -> KeyClaims {
        let look = self.queues[key].look(NOW);
        let state = |index: usize, claim: &ClaimView, token| ClaimState {
            id: claim.id_hint.clone(),
            index,
            context: claim.owner.context.clone(),
            weight: claim.mode.weight(),
            token,
            leaves: claim.kept,
        };
        let holders = look.holders.iter().enumerate();
        let holders = holders.map(|(at, it)| state(at, &it.claim, it.token));
        let waiters = look.waiters.iter().enumerate();
        let waiters = waiters.map(|(at, it)| state(at, &it.claim, Token::NONE));
        KeyClaims {
            units: mode(key, 0).capacity().units(),
            holders: holders.collect(),
            waiters: waiters.collect(),
        }
    }

    /// The workers in these deadlocks.
    fn blocked(&self, keys: &[KeyClaims], found: &Deadlocks) -> Vec<usize> {
        let claims = found.circles.iter().flatten().map(|claim| {
            let waiters = &keys[claim.key].waiters;
            let waiter = waiters.iter().find(|waiter| waiter.index == claim.waiter);
            waiter.unwrap().id.clone()
        });
        let worker = |hint: String| {
            let is_it = |id: ClaimId| id.to_string() == hint;
            let mine = |number: &usize| (0..64).any(|step| is_it(Self::id(*number, step)));
            (0..self.workers.len()).find(mine).unwrap()
        };
        claims.map(worker).collect()
    }
}

/// Reads the keys one after the other, twice, while the workers go on; answers what was seen
/// both times.
fn read_twice(world: &mut World, schedule: &[usize]) -> Vec<KeyClaims> {
    let mut readings: Vec<Vec<KeyClaims>> = vec![Vec::new(), Vec::new()];
    let mut turns = schedule.iter();
    for reading in &mut readings {
        for key in 0..KEYS {
            for worker in turns.by_ref().take(1 + schedule.len() / 10) {
                world.step(worker % world.workers.len());
            }
            reading.push(world.read(key));
        }
    }
    let [before, mut now] = <[_; 2]>::try_from(readings).unwrap();
    for (now, before) in now.iter_mut().zip(&before) {
        now.keep_seen_in(before);
    }
    now
}

/// Keys without repetition, in any order: nobody waits for itself.
fn plan() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let keys = proptest::sample::subsequence((0..KEYS).collect::<Vec<_>>(), 1..=KEYS);
    let choices = proptest::collection::vec(0..2_usize, KEYS);
    (keys.prop_shuffle(), choices)
        .prop_map(|(keys, choices)| keys.into_iter().zip(choices).collect())
}

/// What each of some workers does, round by round.
fn plans() -> impl Strategy<Value = Vec<Vec<Vec<(usize, usize)>>>> {
    proptest::collection::vec(proptest::collection::vec(plan(), 1..8), 2..6)
}

fn schedule() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..6_usize, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Who takes keys in one order is never in a deadlock, and never said to be.
    #[test]
    fn no_deadlock_is_found_where_there_is_none(plans in plans(), schedule in schedule()) {
        let ordered = plans.iter().enumerate().map(|(number, rounds)| {
            let mut rounds = rounds.clone();
            rounds.iter_mut().for_each(|plan| plan.sort_unstable());
            Worker::new(number, true, &rounds)
        });
        let mut world = World::new(ordered.collect());
        let keys = read_twice(&mut world, &schedule);
        prop_assert_eq!(Deadlocks::among(&keys), Deadlocks::default());
        world.settle();
        prop_assert!(world.workers.iter().all(Worker::is_done));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Who is said to be in a deadlock never ends, however the keys were read.
    #[test]
    fn what_is_found_is_one(
        plans in plans(),
        declared in proptest::collection::vec(proptest::bool::weighted(0.8), 6),
        schedule in schedule(),
    ) {
        let workers = plans.iter().zip(declared).enumerate();
        let workers = workers.map(|(number, (plan, declared))| Worker::new(number, declared, plan));
        let mut world = World::new(workers.collect());
        let keys = read_twice(&mut world, &schedule);
        let blocked = world.blocked(&keys, &Deadlocks::among(&keys));
        world.settle();
        for worker in blocked {
            prop_assert!(!world.workers[worker].is_done(), "worker {worker} went on: {keys:#?}");
        }
    }

    /// When nobody can go on, a deadlock is found, and each claim of it has somebody to wait for
    /// in it.
    #[test]
    fn what_is_one_is_found(plans in plans(), schedule in schedule()) {
        let workers = plans.iter().enumerate();
        let workers = workers.map(|(number, plan)| Worker::new(number, true, plan));
        let mut world = World::new(workers.collect());
        for worker in schedule {
            world.step(worker % world.workers.len());
        }
        world.settle();
        let keys: Vec<_> = (0..KEYS).map(|key| world.read(key)).collect();
        let found = Deadlocks::among(&keys);
        let stuck = world.workers.iter().any(|worker| !worker.is_done());
        prop_assert_eq!(!found.circles.is_empty(), stuck, "{:#?}", world);
        prop_assert_eq!(!found.stuck.is_empty(), stuck);
        for circle in &found.circles {
            let held: Vec<_> = circle.iter().flat_map(|claim| &claim.holds).collect();
            prop_assert!(!held.is_empty());
            for claim in circle {
                let ahead = circle.iter().any(|other| other.key == claim.key && other.waiter < claim.waiter);
                let holder = held.iter().any(|(key, _)| *key == claim.key);
                prop_assert!(ahead || holder, "{:#?}", circle);
            }
        }
    }
}

fn claim(context: &ClaimContext, id: &str) -> ClaimState {
    but(undeclared(id), |it| it.context = Some(context.clone()))
}

/// One that does not say for whom it is made.
fn undeclared(id: &str) -> ClaimState {
    ClaimState {
        id: id.to_owned(),
        index: 0,
        context: None,
        weight: 1,
        token: Token::NONE,
        leaves: false,
    }
}

fn mutex(holder: ClaimState, waiters: &[ClaimState]) -> KeyClaims {
    let with_index = |(at, claim): (usize, &ClaimState)| but(claim.clone(), |it| it.index = at);
    KeyClaims {
        units: 1,
        holders: vec![holder],
        waiters: waiters.iter().enumerate().map(with_index).collect(),
    }
}

/// What one child of a context waits for does not block what another holds.
#[test]
fn children_of_one_context_do_not_block_each_other() {
    let [outer, other] = [1, 2].map(ClaimContext::from_random);
    let [one, two] = [3, 4].map(|bits| outer.child(bits).unwrap());
    let keys = |holding: &ClaimContext, waiting: &ClaimContext| {
        [
            mutex(claim(holding, "a"), &[claim(&other, "b")]),
            mutex(claim(&other, "c"), &[claim(waiting, "d")]),
        ]
    };
    let circles = |keys: [KeyClaims; 2]| Deadlocks::among(&keys).circles.len();
    assert_eq!(Deadlocks::among(&keys(&one, &two)), Deadlocks::default());
    assert_eq!(circles(keys(&one, &one)), 1);
    // A holder waits for all that is within its context.
    assert_eq!(circles(keys(&outer, &two)), 1);
}

#[test]
fn who_waits_for_itself_is_found() {
    let outer = ClaimContext::from_random(1);
    let inner = outer.child(2).unwrap();
    let found = Deadlocks::among(&[mutex(claim(&outer, "a"), &[claim(&inner, "b")])]);
    assert_eq!(found.circles.len(), 1);
    assert_eq!(found.circles[0][0].holds, [(0, 0)]);
    // Also in one context, and who has no token.
    let same = [mutex(claim(&outer, "a"), &[claim(&outer, "b")])];
    assert_eq!(Deadlocks::among(&same).circles.len(), 1);
}

/// Who is to be granted before a circle holds nothing yet.
#[test]
fn what_is_held_is_held_by_holders() {
    let [a, b, c] = [1, 2, 3].map(ClaimContext::from_random);
    let line = [undeclared("x"), claim(&a, "a"), claim(&c, "c")];
    let keys = [
        mutex(claim(&b, "b"), &line),
        mutex(claim(&c, "d"), &[claim(&a, "e")]),
    ];
    let found = Deadlocks::among(&keys);
    assert_eq!(found.circles.len(), 1);
    for blocked in &found.circles[0] {
        let mut held = blocked.holds.iter();
        assert!(held.all(|held| *held == (1, 0)), "{blocked:?}");
    }
}

/// Those behind a deadlock are not of it, and are counted among the stuck.
#[test]
fn who_waits_behind_a_deadlock_is_not_part_of_it() {
    let [a, b] = [1, 2].map(ClaimContext::from_random);
    let waiters = [undeclared("x"), claim(&b, "b"), undeclared("y")];
    let keys = [
        mutex(claim(&a, "a"), &waiters),
        mutex(claim(&b, "c"), &[claim(&a, "d")]),
        mutex(undeclared("e"), &[claim(&a, "f")]),
    ];
    let found = Deadlocks::among(&keys);
    assert_eq!(found.stuck, [0, 1]);
    let circle = found.circles[0].iter().map(|it| (it.key, it.waiter));
    let mut circle: Vec<_> = circle.collect();
    circle.sort_unstable();
    assert_eq!((found.circles.len(), circle), (1, vec![(0, 1), (1, 0)]));
}

/// Who is only kept by a minimum hold, or does not say what it waits for, can go on.
#[test]
fn who_leaves_by_itself_blocks_nobody() {
    let [a, b] = [1, 2].map(ClaimContext::from_random);
    let found = |first: ClaimState| {
        Deadlocks::among(&[
            mutex(first, &[claim(&b, "b")]),
            mutex(claim(&b, "c"), &[claim(&a, "d")]),
        ])
    };
    assert_eq!(found(claim(&a, "a")).circles.len(), 1);
    let kept = but(claim(&a, "a"), |it| it.leaves = true);
    for first in [kept, undeclared("a")] {
        assert_eq!(found(first), Deadlocks::default());
    }
}
