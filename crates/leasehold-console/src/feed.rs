//! Reads the locks of a store for a [`LockTable`](crate::lock_table::LockTable), once in an interval,
//! within a limit on the load of the store.
//!
//! All locks are read in passes, page by page, with a pause after each page. A pass over many locks
//! takes longer than the interval: then those that are shown are looked at in between.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::{Client, Error};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::deadlocks::DeadlockView;
use crate::load_limit::LoadLimit;
use crate::lock_table::Update;
use crate::view::KeyView;

/// The pause after an error, at least.
pub(crate) const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How many answers the channel holds.
const BUFFER: usize = 16;

/// The load of those who read a store, one at a time: what one owes the next one pays.
#[derive(Debug, Clone, Default)]
pub struct Load(Arc<Mutex<LoadLimit>>);

impl Load {
    /// Waits for a turn, and pauses for a part of what the one before owes. The next one pays the rest.
    #[cfg(feature = "serve")]
    pub(crate) async fn turn(&self, longest: Duration) -> tokio::sync::MutexGuard<'_, LoadLimit> {
        let mut load = self.0.lock().await;
        load.give_back();
        load.pause_up_to(longest).await;
        load
    }
}

/// Begins to read the locks whose keys match; ends when the receiver is dropped. For a screen also the
/// deadlocks among them, and in between those that it has `shown`, and that can be read.
pub fn begin(
    client: Client,
    interval: Duration,
    load: Load,
    pattern: &str,
    shown: Option<watch::Receiver<Vec<String>>>,
) -> mpsc::Receiver<Update> {
    let (updates, receiver) = mpsc::channel(BUFFER);
    let pattern = pattern.to_owned();
    tokio::spawn(async move {
        let mut feed = Feed {
            client,
            interval,
            pattern,
            shown,
            updates,
            load: load.0.lock_owned().await,
            refreshed: Instant::now(),
        };
        feed.load.give_back();
        let updates = feed.updates.clone();
        tokio::select! {
            never = feed.read() => match never {},
            () = updates.closed() => {}
        }
    });
    receiver
}

struct Feed {
    client: Client,
    interval: Duration,
    pattern: String,
    shown: Option<watch::Receiver<Vec<String>>>,
    updates: mpsc::Sender<Update>,
    load: OwnedMutexGuard<LoadLimit>,
    /// When those that are shown were looked at last.
    refreshed: Instant,
}

impl Feed {
    /// Reads the locks that match, pass after pass.
    async fn read(&mut self) -> Infallible {
        let mut is_first = true;
        loop {
            let began = Instant::now();
            self.pass(is_first).await;
            is_first = false;
            let next = Instant::now() + self.load.take_pause();
            self.rest(next.max(began + self.interval)).await;
        }
    }

    /// Rests until then, but for looks at those that are shown.
    async fn rest(&mut self, until: Instant) {
        while self.refreshed + self.interval < until {
            sleep_until(self.refreshed + self.interval).await;
            self.refresh().await;
        }
        sleep_until(until).await;
    }

    /// Reads all locks once. The first pass has no pauses, because the user waits for it.
    async fn pass(&mut self, is_first: bool) {
        self.tell(Update::Began).await;
        self.tell(Update::Asked).await;
        self.load.measure_round_trip(&self.client).await;
        let client = self.client.clone();
        let mut listing = client.listing(&self.pattern);
        let mut waited_for = Vec::new();
        loop {
            self.tell(Update::Asked).await;
            let asked = Instant::now();
            let page = match listing.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    self.failed(error).await;
                    continue;
                }
            };
            // A name is looked for, and then looked at.
            let trips = if page.keys.is_empty() { 1 } else { 2 };
            self.load.record(asked.elapsed(), trips);
            let views = page.keys.iter().map(KeyView::from).collect();
            let skipped = page.skipped.into_iter();
            let skipped = skipped.map(|it| (it.name, it.error.to_string()));
            self.tell(Update::Page(views, skipped.collect())).await;
            waited_for.extend(page.keys.into_iter().filter(|key| !key.waiters.is_empty()));
            if !is_first {
                let until = Instant::now() + self.load.take_pause();
                self.rest(until).await;
            }
        }
        let mut deadlocks = Vec::new();
        if self.shown.is_some() {
            let asked = Instant::now();
            match self.client.deadlocks_among(&waited_for).await {
                Ok(found) => deadlocks.extend(found.iter().map(DeadlockView::from)),
                // Those of the last pass may be over: they are none of this one.
                Err(error) => return self.failed(error).await,
            }
            self.load.record(asked.elapsed(), 1);
        }
        self.refreshed = Instant::now();
        self.tell(Update::Ended(deadlocks)).await;
    }

    /// Looks at those that are shown.
    async fn refresh(&mut self) {
        let shown = self.shown.as_ref().map(|shown| shown.borrow().clone());
        let shown = shown.unwrap_or_default();
        if shown.is_empty() {
            self.refreshed = Instant::now();
            return;
        }
        self.tell(Update::Asked).await;
        let asked = Instant::now();
        let looks = shown.iter().map(|key| self.client.inspect(key));
        match try_join_all(looks).await {
            Ok(seen) => {
                self.load.record(asked.elapsed(), 1);
                let seen = seen.iter().map(KeyView::from).collect();
                self.tell(Update::Shown(seen)).await;
            }
            // The time without an answer is no load.
            Err(error) => self.failed(error).await,
        }
        self.refreshed = Instant::now();
        self.load.pause_up_to(self.interval).await;
    }

    async fn failed(&mut self, error: Error) {
        self.load.failed = true;
        self.tell(Update::Failed(error)).await;
        sleep(self.interval.max(AFTER_ERROR)).await;
    }

    async fn tell(&self, update: Update) {
        // Where nobody listens any more, the task ends.
        let _ = self.updates.send(update).await;
    }
}

/// Sends what is not known there yet.
pub fn send_if_other<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|last| {
        let is_other = *last != value;
        *last = value;
        is_other
    });
}

#[cfg(test)]
mod tests {
    use leasehold::testing::TestStore;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pass_whose_look_for_deadlocks_has_failed_says_so_and_does_not_end() {
        let store = TestStore::new();
        let client = store.connect().await.unwrap();
        let contexts = [client.context(), client.context()];
        let lock = |key, context| client.mutex(key).unwrap().with_context(context);
        let mut held = Vec::new();
        for (key, context) in ["a", "b"].into_iter().zip(&contexts) {
            held.push(lock(key, context).lock().await.unwrap());
        }
        for (key, context) in ["b", "a"].into_iter().zip(&contexts) {
            let lock = lock(key, context);
            tokio::spawn(async move { lock.lock().await.map(drop) });
            while client.inspect(key).await.unwrap().waiters.is_empty() {
                yield_now().await;
            }
        }
        store.make_slow(Duration::from_secs(1));
        let (_shows, shown) = watch::channel(Vec::new());
        let (load, interval) = (Load::default(), Duration::from_secs(1));
        let mut updates = begin(client.clone(), interval, load, "*", Some(shown));
        let told = loop {
            match updates.recv().await.unwrap() {
                // The end of the listing is under way by now, and the look comes behind it.
                Update::Page(..) => store.make_unavailable(),
                Update::Began | Update::Asked => {}
                told => break told,
            }
        };
        assert!(matches!(told, Update::Failed(_)), "{told:?}");
        drop(held);
    }

    /// Else a screen shows nothing new for up to 95 s after an outage.
    #[tokio::test(start_paused = true)]
    async fn the_first_answer_after_an_error_is_no_load() {
        let store = TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_unavailable();
        let (load, second) = (Load::default(), Duration::from_secs(1));
        let mut updates = begin(client, second, load, "*", None);
        let mut ended = None;
        let paused = loop {
            match (updates.recv().await.unwrap(), ended) {
                (Update::Failed(_), _) => store.make_slow(second * 3),
                (Update::Ended(_), _) => ended = Some(Instant::now()),
                (Update::Began, Some(ended)) => break Instant::now() - ended,
                _ => {}
            }
        };
        assert!(paused < second, "{paused:?}");
    }

    /// Else each change of a filter would be load for which nothing pauses.
    #[tokio::test(start_paused = true)]
    async fn what_one_feed_owes_the_next_one_pays() {
        let store = TestStore::new();
        let client = store.connect().await.unwrap();
        let (load, second) = (Load::default(), Duration::from_secs(1));
        load.0.lock().await.record(second, 0);
        let mut updates = begin(client, second, load, "*", None);
        let mut ended = None;
        let paused = loop {
            match (updates.recv().await.unwrap(), ended) {
                (Update::Ended(_), _) => ended = Some(Instant::now()),
                (Update::Began, Some(ended)) => break Instant::now() - ended,
                _ => {}
            }
        };
        assert!(paused >= second * 19, "{paused:?}");
    }

    /// Else who comes and goes lets a store be read without a pause.
    #[cfg(feature = "serve")]
    #[tokio::test(start_paused = true)]
    async fn what_a_feed_has_not_paused_is_paused_before_the_next_one() {
        let client = TestStore::new().connect().await.unwrap();
        let (load, second) = (Load::default(), Duration::from_secs(1));
        load.0.lock().await.record(second / 5, 0);
        let mut updates = begin(client, second, load.clone(), "*", None);
        while !matches!(updates.recv().await.unwrap(), Update::Ended(_)) {}
        // It rests by now, or will.
        yield_now().await;
        drop(updates);
        let begun = Instant::now();
        drop(load.turn(second * 4).await);
        assert!(begun.elapsed() >= second * 19 / 5);
    }
}
