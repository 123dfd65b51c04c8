//! Steps of one client on one key, taken together.
//!
//! While one waits for its turn others come. Whoever gets the lock takes all of
//! them, in the order in which they came, with one reading and one writing of the
//! record: "flat combining" (Hendler, Incze, Shavit, Tzafrir, SPAA 2010). A
//! thousand waiters of one process that ask again cost a few steps, not a
//! thousand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Command, Key, Outcome};
use leasehold_store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Inner;
use super::key_lock::KeyLock;
use super::place::Place;
use super::step::take;
use super::turn::{finished, in_turn};

/// How many are taken in one turn at most: other processes wait meanwhile.
const MOST: usize = 64;

/// A step that somebody waits for.
#[derive(Debug)]
struct Job {
    command: Arc<Command>,
    answer: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The steps that wait for their turn. A key that stands here is served, also
/// while no step is left of it.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<HashMap<Key, Vec<Job>>>);

impl Pending {
    /// Adds a step. Whether the caller is to serve the key.
    fn join(&self, key: &Key, job: Job) -> bool {
        let mut keys = self.lock();
        let serves = !keys.contains_key(key);
        keys.entry(key.clone()).or_default().push(job);
        serves
    }

    /// The first steps, so many at most, in the order in which they came.
    fn take(&self, key: &Key, most: usize) -> Vec<Job> {
        let mut keys = self.lock();
        let Some(jobs) = keys.get_mut(key) else {
            return Vec::new();
        };
        // Nobody waits any more for a step that was given up.
        jobs.retain(|job| !job.answer.is_closed());
        let taken = jobs.len().min(most);
        jobs.drain(..taken).collect()
    }

    /// Stops serving the key. `false`: steps have come meanwhile.
    fn leave(&self, key: &Key) -> bool {
        let mut keys = self.lock();
        let idle = keys.get(key).is_none_or(Vec::is_empty);
        if idle {
            keys.remove(key);
        }
        idle
    }

    /// Stops serving the key, whoever waits. At once: a step that came between would
    /// be served by nobody.
    fn abandon(&self, key: &Key) -> Option<Vec<Job>> {
        self.lock().remove(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one step, waiting for its turn.
pub(super) async fn run(
    store: &Arc<Inner>,
    key: &Key,
    command: Arc<Command>,
) -> Result<Outcome, StoreError> {
    let (answer, answered) = oneshot::channel();
    if store.pending.join(key, Job { command, answer }) {
        let mut serving = Serving {
            store: store.clone(),
            key: key.clone(),
            hands_over: true,
        };
        serving.turn().await;
    }
    finished(answered).await
}

/// Whoever serves a key. It is left when this is dropped: to a task of its own, if
/// steps have come meanwhile.
struct Serving {
    store: Arc<Inner>,
    key: Key,
    hands_over: bool,
}

impl Serving {
    /// One turn for the steps that wait when it comes.
    async fn turn(&mut self) {
        let (place, key) = (Place::of_key(&self.key), self.key.clone());
        let served = in_turn(&self.store, vec![place], move |store, locks| {
            if let [locked] = locks {
                serve(store, locked, &key);
            }
            Ok(())
        });
        if let Err(error) = served.await {
            answer(self.store.pending.take(&self.key, usize::MAX), Err(error));
        }
        self.hands_over = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.store.pending.leave(&self.key) {
            return;
        }
        let runtime = Handle::try_current().ok().filter(|_| self.hands_over);
        let Some(runtime) = runtime else {
            // There is nobody to serve it: told as not finished.
            drop(self.store.pending.abandon(&self.key));
            return;
        };
        let mut next = Self {
            store: self.store.clone(),
            key: self.key.clone(),
            // Not before it had its turn: a runtime that ends drops it at once.
            hands_over: false,
        };
        runtime.spawn(async move { next.turn().await });
    }
}

fn serve(store: &Inner, locked: &mut KeyLock<'_>, key: &Key) {
    let jobs = store.pending.take(key, MOST);
    if jobs.is_empty() {
        return;
    }
    let mut take = |jobs: &[Job]| {
        let commands = jobs.iter().map(|job| Some(&*job.command));
        take(store, locked, key, commands)
    };
    match take(&jobs) {
        // One that does not fit on a full disk must not fail a renewal.
        Err(_) if jobs.len() > 1 => {
            for job in jobs {
                let taken = take(std::slice::from_ref(&job));
                answer(vec![job], taken);
            }
        }
        taken => answer(jobs, taken),
    }
}

/// Answers each with what came of its step; an error is the answer to all. Who has left does
/// not mind.
fn answer(jobs: Vec<Job>, taken: Result<Vec<Outcome>, StoreError>) {
    let answers = match taken {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); jobs.len()],
    };
    for (job, answer) in jobs.into_iter().zip(answers) {
        job.answer.send(answer).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimId, Mode, Reply};
    use leasehold_store::ErrorKind;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn store() -> (tempfile::TempDir, Arc<Inner>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Inner::open(directory.path().join("state"), LONG).unwrap();
        (directory, Arc::new(store))
    }

    fn claim(number: u128) -> Arc<Command> {
        let id = ClaimId::from_random(number);
        Arc::new(Command::Claim(Claim::new(id, Mode::EXCLUSIVE, LONG)))
    }

    /// Waits until so many steps wait for their turn; `None`: nobody serves the key.
    async fn gathered(store: &Inner, key: &Key, steps: Option<usize>) {
        let there = || store.pending.lock().get(key).map(Vec::len) == steps;
        let all = async {
            while !there() {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, all).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_that_came_meanwhile_are_taken_in_their_order_though_the_first_has_left() {
        let (_directory, store) = store();
        let key = Key::new("k").unwrap();
        let place = Place::of_key(&key);
        let locked = place.try_lock(&store).unwrap().unwrap();
        let (shared, name) = (store.clone(), key.clone());
        let mut steps = Vec::new();
        for number in 0..5 {
            let (store, key) = (store.clone(), key.clone());
            let step = async move { run(&store, &key, claim(number)).await };
            steps.push(tokio::spawn(step));
            gathered(&shared, &name, Some(steps.len())).await;
        }
        let first = steps.remove(0);
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        drop(locked);
        let mut tokens = Vec::new();
        for step in steps {
            let outcome = timeout(LONG, step).await.unwrap().unwrap().unwrap();
            let Reply::Standing(standing) = outcome.reply else {
                panic!("{outcome:?}");
            };
            tokens.push((standing.position, standing.token.is_some()));
        }
        let expected = [(0, true), (1, false), (2, false), (3, false)];
        assert_eq!(tokens, expected);
        gathered(&shared, &name, None).await;
    }

    #[test]
    fn a_runtime_that_ends_leaves_nobody_unserved() {
        let (_directory, store) = store();
        let key = Key::new("k").unwrap();
        let place = Place::of_key(&key);
        let locked = place.try_lock(&store).unwrap().unwrap();
        let runtime = || tokio::runtime::Runtime::new().unwrap();
        let (first, second) = (runtime(), runtime());
        let step = |number| {
            let (store, key) = (store.clone(), key.clone());
            async move { run(&store, &key, claim(number)).await }
        };
        first.spawn(step(1));
        second.block_on(gathered(&store, &key, Some(1)));
        let waiting = second.spawn(step(2));
        second.block_on(gathered(&store, &key, Some(2)));
        first.shutdown_background();
        let told = second.block_on(async { timeout(LONG, waiting).await.unwrap().unwrap() });
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Unavailable);
        drop(locked);
        // One that comes as the other leaves may be told the same; it is told.
        let again = async {
            while let Err(error) = step(2).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        };
        second.block_on(async { timeout(LONG, again).await.unwrap() });
    }
}
