//! Reads the locks of a store for `top` and `serve`, once in an interval, within a limit on the load
//! of the store.
//!
//! All locks are read in passes, page by page, with a pause after each page. A pass over many locks
//! takes longer than the interval: then those that are shown are looked at in between.

pub(crate) mod history;

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::{Client, Inspection};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use self::history::History;
use crate::commands::deadlocks::DeadlockView;
use crate::failure::Failure;
use crate::load_limit::LoadLimit;
use crate::view::KeyView;

/// The pause after an error, at least.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How many answers the channel holds.
const BUFFER: usize = 16;

/// What the store answered, or did not.
#[derive(Debug)]
pub(crate) enum Update {
    /// A request was sent.
    Asked,
    /// A pass over all locks has begun.
    Began,
    /// A part of a pass: the locks that were found, and how many names cannot be read.
    Page(Vec<KeyView>, usize),
    /// The pass is complete.
    Ended,
    /// Locks that are shown, looked at between parts of a pass.
    Shown(Vec<KeyView>),
    /// The deadlocks among the locks of a pass.
    Deadlocks(Vec<DeadlockView>),
    /// A request failed; it is made again.
    Failed(Failure),
}

/// What is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Goes up with each new pattern, and comes back with each answer.
    pub(crate) round: u64,
    pub(crate) pattern: String,
    /// The keys that are shown.
    pub(crate) shown: Vec<String>,
}

/// Begins to ask; ends when the receiver is dropped.
pub(crate) fn begin(
    client: Client,
    interval: Duration,
    wants: watch::Receiver<Wanted>,
) -> mpsc::Receiver<(u64, Update)> {
    let (updates, receiver) = mpsc::channel(BUFFER);
    let feed = Feed {
        client,
        interval,
        wants,
        updates,
        load: LoadLimit::default(),
        refreshed: Instant::now(),
    };
    tokio::spawn(feed.run());
    receiver
}

struct Feed {
    client: Client,
    interval: Duration,
    wants: watch::Receiver<Wanted>,
    updates: mpsc::Sender<(u64, Update)>,
    load: LoadLimit,
    /// When those that are shown were looked at last.
    refreshed: Instant,
}

/// The receiver of the answers was dropped.
struct Closed;

impl Feed {
    async fn run(mut self) {
        loop {
            let mut wants = self.wants.clone();
            let Wanted { round, pattern, .. } = wants.borrow_and_update().clone();
            tokio::select! {
                ended = self.read(round, &pattern) => {
                    let Err(Closed) = ended;
                    return;
                }
                changed = wants.wait_for(|wants| wants.round != round) => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Reads the locks that match, pass after pass.
    async fn read(
        &mut self,
        round: u64,
        pattern: &str,
    ) -> Result<std::convert::Infallible, Closed> {
        let mut first = true;
        loop {
            let began = Instant::now();
            self.pass(round, pattern, first).await?;
            first = false;
            let next = Instant::now() + self.load.take_pause();
            let next = next.max(began + self.interval);
            self.rest(round, next).await?;
        }
    }

    /// Rests until then, but for looks at those that are shown.
    async fn rest(&mut self, round: u64, until: Instant) -> Result<(), Closed> {
        loop {
            let due = self.refreshed + self.interval;
            if due >= until {
                break;
            }
            sleep_until(due).await;
            self.refresh(round).await?;
        }
        sleep_until(until).await;
        Ok(())
    }

    /// Reads all locks once. The first pass has no pauses, because the user waits for it.
    async fn pass(&mut self, round: u64, pattern: &str, first: bool) -> Result<(), Closed> {
        self.tell(round, Update::Began).await?;
        self.tell(round, Update::Asked).await?;
        self.load.measure_round_trip(&self.client).await;
        let client = self.client.clone();
        let mut listing = client.listing(pattern);
        let mut waited_for = Vec::new();
        loop {
            self.tell(round, Update::Asked).await?;
            let asked = Instant::now();
            let page = match listing.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    self.tell(round, Update::Failed(error.into())).await?;
                    sleep(self.interval.max(AFTER_ERROR)).await;
                    continue;
                }
            };
            // A name is looked for, and then looked at.
            let trips = if page.keys.is_empty() { 1 } else { 2 };
            self.load.record(asked.elapsed(), trips);
            let views = page.keys.iter().map(KeyView::from).collect();
            self.tell(round, Update::Page(views, page.skipped.len()))
                .await?;
            let waited = page.keys.into_iter().filter(|key| !key.waiters.is_empty());
            waited_for.extend(waited);
            if !first {
                let until = Instant::now() + self.load.take_pause();
                self.rest(round, until).await?;
            }
        }
        self.find_deadlocks(round, &waited_for).await?;
        self.refreshed = Instant::now();
        self.tell(round, Update::Ended).await
    }

    /// Finds the deadlocks among what the pass has read.
    async fn find_deadlocks(
        &mut self,
        round: u64,
        waited_for: &[Inspection],
    ) -> Result<(), Closed> {
        let asked = Instant::now();
        let Ok(found) = self.client.deadlocks_among(waited_for).await else {
            // The next look says why.
            return Ok(());
        };
        self.load.record(asked.elapsed(), 1);
        let found = found.iter().map(DeadlockView::from).collect();
        self.tell(round, Update::Deadlocks(found)).await
    }

    /// Looks at those that are shown.
    async fn refresh(&mut self, round: u64) -> Result<(), Closed> {
        let shown = self.wants.borrow().shown.clone();
        if shown.is_empty() {
            self.refreshed = Instant::now();
            return Ok(());
        }
        self.tell(round, Update::Asked).await?;
        let asked = Instant::now();
        let looks = shown.iter().map(|key| self.client.inspect(key));
        match try_join_all(looks).await {
            Ok(seen) => {
                self.load.record(asked.elapsed(), 1);
                let seen = seen.iter().map(KeyView::from).collect();
                self.tell(round, Update::Shown(seen)).await?;
            }
            // The time without an answer is no load.
            Err(error) => {
                self.tell(round, Update::Failed(error.into())).await?;
                sleep(self.interval.max(AFTER_ERROR)).await;
            }
        }
        self.refreshed = Instant::now();
        let pause = self.load.take_pause_up_to(self.interval);
        sleep(pause).await;
        Ok(())
    }

    async fn tell(&self, round: u64, update: Update) -> Result<(), Closed> {
        self.updates.send((round, update)).await.map_err(|_| Closed)
    }
}
