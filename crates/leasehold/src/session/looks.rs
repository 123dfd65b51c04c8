//! Reads a key repeatedly, whenever it may have changed: after a push, and when a lease may have
//! expired.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, HintLimit, Key, Moment, Snapshot};
use tokio::sync::Notify;

use super::timing::{LOOK_AFTER_LAPSE, WATCH_LOOK};
use super::watches::Watch;
use super::{Session, random_u64};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::sync::sleep;

/// A watch of one key, until this is dropped.
pub(crate) struct Looks {
    watch: Watch,
    session: Arc<Session>,
    key: Key,
    /// Limits how often pushes cause a read, since anybody may send them.
    hints: HintLimit,
    /// Pauses while the store cannot be asked.
    failing: Option<Backoff>,
}

impl Looks {
    pub(crate) fn start(session: &Arc<Session>, key: &Key) -> Self {
        Self {
            watch: Watch::start(session, key),
            session: session.clone(),
            key: key.clone(),
            hints: HintLimit::default(),
            failing: None,
        }
    }

    /// Looks until `found` breaks with what was looked for; else `found` says in what time a lease
    /// that it has seen expires, if there is one.
    ///
    /// # Errors
    /// Why the store could not be asked, once for an outage, and each time for what stays. The
    /// next call goes on.
    pub(crate) async fn until<T>(
        &mut self,
        mut found: impl FnMut(Snapshot) -> ControlFlow<T, Option<Duration>>,
    ) -> Result<T, StoreError> {
        let changed: Arc<Notify> = self.watch.changed();
        loop {
            if let Some(pauses) = &mut self.failing {
                sleep(pauses.pause()).await;
            }
            let change = changed.notified();
            tokio::pin!(change);
            // Enlist before asking, so that no change falls between.
            change.as_mut().enable();
            let (seen, ask_again) = match self.ask().await {
                Ok(asked) => asked,
                Err(error) => {
                    let (base, cap) = (Duration::from_millis(50), Duration::from_secs(2));
                    let pauses = || Backoff::new(base, cap, random_u64());
                    let stays = error.kind() != ErrorKind::Unavailable;
                    if stays || self.failing.is_none() {
                        self.failing.get_or_insert_with(pauses);
                        return Err(error);
                    }
                    continue;
                }
            };
            self.failing = None;
            let expires_in = match found(seen) {
                ControlFlow::Break(found) => return Ok(found),
                ControlFlow::Continue(expires_in) => expires_in,
            };
            let lapse = expires_in.map(|left| clock::now() + left + LOOK_AFTER_LAPSE);
            let wake_at = lapse.map_or(ask_again, |lapse| lapse.min(ask_again));
            tokio::select! {
                () = change => {
                    let now = clock::now();
                    sleep(self.hints.ask_at(now).since(now)).await;
                }
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// What is seen, and when to ask again at the latest.
    async fn ask(&self) -> Result<(Snapshot, Moment), StoreError> {
        let pause = match self.session.ask(self.watch.ask()).await {
            // A server that takes no writes now can be read, and told of the watch later.
            Err(error) if error.retry_after.is_some() => WATCH_LOOK,
            asked => asked?,
        };
        let seen = look(&self.session, &self.key).await?;
        Ok((seen, clock::now() + pause))
    }
}

/// Looks once.
pub(crate) async fn look(session: &Session, key: &Key) -> Result<Snapshot, StoreError> {
    session.ask(session.store.inspect(key)).await
}
