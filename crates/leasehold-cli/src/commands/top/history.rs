//! Reads the history of the key whose details `top` shows, from the audit log, within a limit on
//! the load of the store.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use leasehold::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::history::EntryView;
use crate::load_limit::LoadLimit;

/// From when on.
const SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// How many of the newest entries are kept.
const MOST: usize = 100;

/// A key, and its newest entries, the newest first; or why there are none.
pub(super) type History = (String, Result<Vec<EntryView>, String>);

/// Begins to read; ends when the receiver is dropped.
pub(super) fn begin(
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
    let since = SystemTime::now().checked_sub(SPAN);
    let log = client.audit_log(Some(&key), since.unwrap_or(SystemTime::UNIX_EPOCH));
    let mut log = match log {
        Ok(log) => log,
        Err(error) => {
            tell(Err(error.to_string())).await?;
            return std::future::pending().await;
        }
    };
    let mut load = LoadLimit::default();
    load.measure_round_trip(client).await;
    let mut newest = VecDeque::new();
    loop {
        let asked = Instant::now();
        let page = log.next().await;
        load.record(asked.elapsed(), 1);
        let ended = match page {
            Ok(page) => {
                for record in &page {
                    newest.push_front(EntryView::from(record));
                }
                newest.truncate(MOST);
                page.is_empty()
            }
            Err(error) => {
                tell(Err(error.to_string())).await?;
                sleep(interval).await;
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
