//! Listings, and the removal of idle keys.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Key, Moment};

use super::copy::Copy;
use super::{Journal, News, PageOf};
use crate::clock;
use crate::error::StoreError;
use crate::glob;
use crate::listing::{ListPage, Listing};
use crate::random::random_u64;
use crate::sync::{Mutex, lock};

/// How often a client looks for idle keys, and after how long at most it begins anew.
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

/// One in so many clients looks at its first step: a client may be gone soon after.
const FIRST: u64 = 8;

/// The key and the queue of a record that was read.
fn read(
    name: &str,
    news: Result<News, StoreError>,
    journal: &impl Journal,
) -> Result<(Key, Copy), StoreError> {
    let (key, mut copy) = (Key::new(name)?, Copy::default());
    copy.follow(&key, &news?, journal.inbox())?;
    Ok((key, copy))
}

/// A listing in progress.
pub(super) struct Pages<'a, J> {
    pub(super) journal: &'a J,
    pub(super) pattern: String,
    /// Behind which key the next page begins; `None` at the end.
    pub(super) after: Option<Option<String>>,
}

#[async_trait]
impl<J: Journal> Listing for Pages<'_, J> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        let Some(after) = &self.after else {
            return Ok(None);
        };
        let of = PageOf {
            prefix: glob::literal_prefix(&self.pattern),
            after: after.as_deref(),
            idle_for: None,
        };
        let page = self.journal.page(&of).await?;
        let last = page.records.last();
        self.after = last.map(|(name, ..)| Some(name.clone()));
        let mut listed = ListPage::default();
        let mut records = page.records;
        records.retain(|(name, ..)| glob::matches(&self.pattern, name));
        for (name, _, news) in records {
            match read(&name, news, self.journal) {
                Ok((key, copy)) => {
                    let seen = copy.queue.look(page.at);
                    if !seen.holders.is_empty() || !seen.waiters.is_empty() {
                        listed.found.push((key, seen));
                    }
                }
                Err(error) => listed.skipped.push((name, error)),
            }
        }
        Ok(Some(listed))
    }
}

/// When idle keys are looked for next, and behind which key.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) retention: Duration,
    next: Mutex<(Moment, Option<String>)>,
}

impl Sweep {
    pub(super) fn new(retention: Duration) -> Self {
        let at_once = random_u64().is_multiple_of(FIRST);
        let pause = if at_once { Duration::ZERO } else { PAUSE };
        Self {
            retention,
            next: Mutex::new((clock::now() + pause, None)),
        }
    }

    /// Behind which key to look, if it is time to.
    pub(super) fn is_due(&self) -> Option<Option<String>> {
        let (now, mut next) = (clock::now(), lock(&self.next));
        (next.0 <= now).then(|| {
            next.0 = now + PAUSE;
            next.1.take()
        })
    }

    /// Where to go on, soon. From the first key after a while: a backend reads all keys for that.
    pub(super) fn go_on(&self, after: Option<String>) {
        let a_while = (self.retention / 100).clamp(PAUSE, LONGEST);
        let pause = if after.is_some() { PAUSE } else { a_while };
        *lock(&self.next) = (clock::now() + pause, after);
    }
}

/// Removes the records behind a key that nobody has used for so long: a page of them. Returns behind
/// which key to go on.
pub(super) async fn sweep(
    journal: &impl Journal,
    retention: Duration,
    after: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let of = PageOf {
        prefix: "",
        after,
        idle_for: Some(retention),
    };
    let page = journal.page(&of).await?;
    let last = page.records.last().map(|(name, ..)| name.clone());
    for (name, touched, news) in page.records {
        if let Ok((key, copy)) = read(&name, news, journal)
            && let Some(end) = copy.known
            && touched + copy.queue.keep_for(touched, retention) < page.at
        {
            journal.forget(&key, end).await?;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With many keys in use, to look at all of them is most of what a server does for a client.
    #[test]
    fn who_has_seen_all_keys_does_not_begin_anew_at_once() {
        let minute = Duration::from_secs(60);
        for (retention, least) in [(24 * 60 * minute, 10 * minute), (minute, minute)] {
            let sweep = Sweep::new(retention);
            let [more, end] = [Some("k".to_owned()), None].map(|after| {
                let now = clock::now();
                sweep.go_on(after);
                lock(&sweep.next).0.since(now)
            });
            assert!(more < 2 * minute, "{more:?}");
            assert!(end >= least && end < retention + minute, "{end:?}");
        }
    }
}
