//! A client that acquires: connected through outages of the store, asked for the lock, and left.

use std::time::Duration;

use futures_util::future::TryFutureExt;
use leasehold::store::warning;
use leasehold::{Client, Invalid, Settings};
use tokio::time::timeout;

use crate::config::CommandSettings;
use crate::connect::builder;
use crate::exit::Status;
use crate::failure::Failure;
use crate::output::Printer;
use crate::retries::{Patience, Retries};
use crate::signals::Signals;

/// How long giving back may take at the end.
const RELEASE_ALL_TIMEOUT: Duration = Duration::from_secs(2);

/// A client, and what waits with it.
pub(crate) struct Session<'a> {
    pub(crate) client: Client,
    pub(crate) retries: Retries<'a>,
    pub(crate) signals: Signals,
    pub(crate) printer: &'a Printer,
}

impl<'a> Session<'a> {
    /// Connects, through outages of the store as long as there is time and until a signal; does the
    /// work, and leaves the store.
    pub(crate) async fn with(
        store: &CommandSettings,
        settings: &Settings,
        (keys, patience): (&[String], Patience),
        mut signals: Signals,
        printer: &'a Printer,
        work: impl AsyncFnOnce(&mut Self) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        // What the store is that may not be expected of its URL.
        if let Some(Invalid { message, hint, .. }) = warning(&store.named().value) {
            printer.warn_with_hint(message, hint.unwrap_or_default());
        }
        let mut retries = Retries::new(keys, patience, printer);
        let open = async |retries: &mut Retries<'_>| {
            let observer = retries.not_now.clone();
            let opening = builder(store).settings(settings.clone()).observer(observer);
            // The first try may take as long as all that follow it.
            let first = patience.retry_for.filter(|_| !retries.interrupted);
            let (limit, silent) = retries.time_limit(first.unwrap_or_default());
            let opened = retries.answer(opening.connect().map_err(Failure::from));
            timeout(limit, opened).await.unwrap_or(Err(silent))
        };
        let client = retries.retry(&mut signals, open).await?;
        retries.usable();
        let mut session = Self {
            client,
            retries,
            signals,
            printer,
        };
        let status = work(&mut session).await;
        leave(&session.client).await;
        status
    }
}

/// Leaves the store: what is still held or waited for is given back, also where the time to wait is
/// over: the store may have taken a claim that it has not answered. What it does not confirm ends
/// with its TTL.
pub(crate) async fn leave(client: &Client) {
    let _ = client.shutdown(RELEASE_ALL_TIMEOUT).await;
}
