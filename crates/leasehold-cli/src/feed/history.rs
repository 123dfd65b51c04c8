//! Reads the history of a key whose details are shown, from the audit log, within a limit on the
//! load of the store.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use leasehold::Client;
use leasehold::audit::{AuditLog, AuditRecord};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::history::EntryView;
use crate::load_limit::LoadLimit;

/// The pause after an error, at least.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// From when on.
const SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// How many of the newest entries are kept.
const MOST: usize = 100;

/// A key, and its newest entries, the newest first; or why there are none.
pub(crate) type History = (String, Result<Vec<EntryView>, String>);

/// Begins to read; ends when the receiver is dropped.
pub(crate) fn begin(
    client: Client,
    interval: Duration,
    mut wanted: watch::Receiver<Option<String>>,
) -> mpsc::Receiver<History> {
    let (tell, told) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let key = wanted.borrow_and_update().clone();
            tokio::select! {
                closed = follow(&client, interval, key, &tell) => {
                    let Err(Closed) = closed;
                    return;
                }
                changed = wanted.changed() => if changed.is_err() {
                    return;
                }
            }
        }
    });
    told
}

/// The newest entries of a key now, the newest first.
pub(crate) async fn newest(client: &Client, key: &str) -> Result<Vec<EntryView>, String> {
    let mut log = open(client, key)?;
    let mut newest = VecDeque::new();
    loop {
        let page = log.next().await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            return Ok(newest.into());
        }
        add(&mut newest, &page);
    }
}

fn open<'a>(client: &'a Client, key: &str) -> Result<AuditLog<'a>, String> {
    let since = SystemTime::now().checked_sub(SPAN);
    let log = client.audit_log(Some(key), since.unwrap_or(SystemTime::UNIX_EPOCH));
    log.map_err(|error| error.to_string())
}

fn add(newest: &mut VecDeque<EntryView>, page: &[AuditRecord]) {
    for record in page {
        newest.push_front(EntryView::from(record));
    }
    newest.truncate(MOST);
}

/// The receiver was dropped.
struct Closed;

/// Reads the entries of the key, and those that come.
async fn follow(
    client: &Client,
    interval: Duration,
    key: Option<String>,
    tell: &mpsc::Sender<History>,
) -> Result<Infallible, Closed> {
    let Some(key) = key else {
        tell.closed().await;
        return Err(Closed);
    };
    let tell = async |said| tell.send((key.clone(), said)).await.map_err(|_| Closed);
    let mut log = match open(client, &key) {
        Ok(log) => log,
        Err(why) => {
            tell(Err(why)).await?;
            return std::future::pending().await;
        }
    };
    let mut load = LoadLimit::default();
    load.measure_round_trip(client).await;
    let mut newest = VecDeque::new();
    loop {
        let asked = Instant::now();
        let ended = match log.next().await {
            Ok(page) => {
                load.record(asked.elapsed(), 1);
                add(&mut newest, &page);
                page.is_empty()
            }
            Err(error) => {
                tell(Err(error.to_string())).await?;
                sleep(interval.max(AFTER_ERROR)).await;
                continue;
            }
        };
        if ended {
            tell(Ok(newest.iter().cloned().collect())).await?;
            sleep(interval).await;
        }
        sleep(load.take_pause()).await;
    }
}
