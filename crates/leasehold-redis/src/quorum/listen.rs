//! Opens the inbox at every server that can be reached.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_store::sync::timeout;
use leasehold_store::{Listening, Push, PushSink, StoreError, opened};

use super::Inner;
use crate::std_ext::BackgroundTask;

/// Opens the inbox everywhere, and gives the answer when a quorum listens, or after as long as an
/// answer may take. From then on each connection subscribes whenever it is opened.
pub(super) async fn listen(
    inner: &Inner,
    sink: Arc<dyn PushSink>,
) -> Result<Box<dyn Listening>, StoreError> {
    let members = || inner.members.iter();
    let inboxes = members().map(|member| member.shared.open_inbox(&sink));
    let inboxes = inboxes.collect::<Result<Vec<_>, _>>()?;
    let links = members().map(|member| Arc::clone(&member.shared));
    let mut subscribed: FuturesUnordered<_> = links
        .map(|link| async move { link.subscribed().await })
        .collect();
    let quorum = subscribed.by_ref().take(inner.size.quorum()).count();
    let _ = timeout(inner.options.node_timeout, quorum).await;
    let late = BackgroundTask::default();
    late.start(async move {
        while subscribed.next().await.is_some() {
            // Something may have been pushed before.
            sink.push(Push::Reset);
        }
    });
    Ok(opened(move || drop((inboxes, late))))
}
