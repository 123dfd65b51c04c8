//! Asks the store for `top`, at an interval and never more than it can bear.
//!
//! All locks are read in passes, page by page, with a rest after each page. A pass over many locks
//! takes longer than the interval: then those on the screen are looked at in between.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::model::News;
use crate::pace::Pace;
use crate::view::KeyView;

/// How long to rest after an error, at least.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How many answers may be on their way to the screen.
const BUFFER: usize = 16;

/// What is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wants {
    /// Goes up with each new pattern, and comes back with each answer.
    pub(super) round: u64,
    pub(super) pattern: String,
    /// The keys on the screen.
    pub(super) shown: Vec<String>,
}

/// Begins to ask; ends when the receiver is dropped.
pub(super) fn begin(
    client: Client,
    interval: Duration,
    wants: watch::Receiver<Wants>,
) -> mpsc::Receiver<(u64, News)> {
    let (news, receiver) = mpsc::channel(BUFFER);
    let feed = Feed {
        client,
        interval,
        wants,
        news,
        pace: Pace::default(),
        refreshed: Instant::now(),
    };
    tokio::spawn(feed.run());
    receiver
}

struct Feed {
    client: Client,
    interval: Duration,
    wants: watch::Receiver<Wants>,
    news: mpsc::Sender<(u64, News)>,
    pace: Pace,
    /// When those on the screen were looked at last.
    refreshed: Instant,
}

/// Nobody wants answers any more.
struct Over;

impl Feed {
    async fn run(mut self) {
        loop {
            let mut wants = self.wants.clone();
            let Wants { round, pattern, .. } = wants.borrow_and_update().clone();
            tokio::select! {
                ended = self.read(round, &pattern) => {
                    let Err(Over) = ended;
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
    async fn read(&mut self, round: u64, pattern: &str) -> Result<std::convert::Infallible, Over> {
        let mut first = true;
        loop {
            let began = Instant::now();
            self.pass(round, pattern, first).await?;
            first = false;
            let next = Instant::now() + self.pace.rest();
            let next = next.max(began + self.interval);
            loop {
                let due = self.refreshed + self.interval;
                if due >= next {
                    break;
                }
                sleep_until(due).await;
                self.refresh(round).await?;
            }
            sleep_until(next).await;
        }
    }

    /// Goes through all locks once. The first time without a rest, as somebody waits for it.
    async fn pass(&mut self, round: u64, pattern: &str, first: bool) -> Result<(), Over> {
        self.tell(round, News::Began).await?;
        self.tell(round, News::Asked).await?;
        self.pace.measure(&self.client).await;
        let client = self.client.clone();
        let mut listing = client.listing(pattern);
        loop {
            if !first && self.refreshed.elapsed() >= self.interval {
                self.refresh(round).await?;
            }
            self.tell(round, News::Asked).await?;
            let asked = Instant::now();
            let page = match listing.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    self.tell(round, News::Failed(error.into())).await?;
                    sleep(self.interval.max(AFTER_ERROR)).await;
                    continue;
                }
            };
            // A name is looked for, and then looked at.
            let trips = if page.keys.is_empty() { 1 } else { 2 };
            self.pace.looked(asked.elapsed(), trips);
            let views = page.keys.iter().map(KeyView::from).collect();
            self.tell(round, News::Page(views, page.skipped.len()))
                .await?;
            if !first {
                sleep(self.pace.rest()).await;
            }
        }
        self.refreshed = Instant::now();
        self.tell(round, News::Ended).await
    }

    /// Looks at those on the screen.
    async fn refresh(&mut self, round: u64) -> Result<(), Over> {
        let shown = self.wants.borrow().shown.clone();
        if shown.is_empty() {
            self.refreshed = Instant::now();
            return Ok(());
        }
        self.tell(round, News::Asked).await?;
        let asked = Instant::now();
        let looks = shown.iter().map(|key| self.client.inspect(key));
        let news = match try_join_all(looks).await {
            Ok(seen) => News::Shown(seen.iter().map(KeyView::from).collect()),
            Err(error) => News::Failed(error.into()),
        };
        self.pace.looked(asked.elapsed(), 1);
        self.refreshed = Instant::now();
        self.tell(round, news).await?;
        sleep(self.pace.rest()).await;
        Ok(())
    }

    async fn tell(&self, round: u64, news: News) -> Result<(), Over> {
        self.news.send((round, news)).await.map_err(|_| Over)
    }
}
