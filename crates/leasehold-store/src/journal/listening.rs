//! What backends need to keep an inbox open over connections that are lost.
//!
//! Hidden: only for the crates of this repository.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::{ErrorKind, StoreError};
use crate::port::{Listening, opened};
use crate::sync::{AtomicU64, Ordering, sleep};

/// The pauses between attempts to connect again: from, to.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The numbers of the connections on which a client is rung.
#[derive(Debug, Default)]
pub struct Epochs {
    last: AtomicU64,
    now: AtomicU64,
}

impl Epochs {
    /// The number of the connection that is open; zero for none.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// A connection is open.
    pub fn begin(&self) {
        let epoch = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        self.now.store(epoch, Ordering::Release);
    }

    /// None is open any more. Says whether one was.
    pub fn end(&self) -> bool {
        self.now.swap(0, Ordering::AcqRel) != 0
    }
}

/// An open inbox. The task that keeps it open ends with it, and so does the connection.
pub fn open_inbox<F>(epochs: &Arc<Epochs>, keep: F) -> Box<dyn Listening>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (epochs, task) = (epochs.clone(), JoinSet::from_iter([keep]));
    opened(move || {
        epochs.end();
        drop(task);
    })
}

/// Connects again, however often that has to be tried. The first refusal is logged as a warning.
pub async fn connect_again<T, F>(connect: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let (mut pause, mut has_warned) = (AGAIN.0, false);
    loop {
        match connect().await {
            Ok(connected) => return connected,
            Err(error) if error.kind() != ErrorKind::Unavailable && !has_warned => {
                has_warned = true;
                tracing::warn!(%error, "cannot listen for grants; polling instead");
            }
            Err(error) => tracing::debug!(%error, "cannot listen; again soon"),
        }
        sleep(pause).await;
        pause = (2 * pause).min(AGAIN.1);
    }
}
