//! Opens the inbox at every server that can be reached.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Backoff;
use leasehold_store::random::random_u64;
use leasehold_store::{ErrorKind, Listening, Push, PushSink, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Inner;
use crate::connection::manager::ConnectionManager;

/// Open inboxes; closed on drop.
pub(super) struct Subscriptions {
    _tasks: JoinSet<()>,
}

impl Listening for Subscriptions {}

/// Opens the inbox everywhere, and gives the answer when a quorum listens, or
/// all have been asked for as long as an answer may take.
pub(super) async fn listen(
    inner: &Arc<Inner>,
    sink: Arc<dyn PushSink>,
) -> Result<Subscriptions, StoreError> {
    let mut tasks = JoinSet::new();
    let (opened, mut open) = mpsc::unbounded_channel();
    for member in &inner.members {
        let shared = Arc::clone(&member.shared);
        tasks.spawn(hear(shared, Arc::clone(&sink), opened.clone()));
    }
    drop(opened);
    let quorum = async {
        for _ in 0..inner.size.quorum() {
            open.recv().await;
        }
    };
    // Whoever comes later is told of by a reset.
    if tokio::time::timeout(inner.options.node_timeout, quorum)
        .await
        .is_err()
        && open.is_closed()
    {
        return Err(StoreError::new(
            ErrorKind::Unavailable,
            "cannot subscribe at any server",
        ));
    }
    Ok(Subscriptions { _tasks: tasks })
}

/// Keeps the inbox at one server open.
async fn hear(
    shared: Arc<ConnectionManager>,
    sink: Arc<dyn PushSink>,
    opened: mpsc::UnboundedSender<()>,
) {
    let mut pauses = Backoff::new(
        Duration::from_millis(50),
        Duration::from_secs(2),
        random_u64(),
    );
    let mut late = false;
    loop {
        match shared.listen(Arc::clone(&sink)).await {
            Ok(_ear) => {
                if opened.send(()).is_err() || late {
                    // Something may have been pushed before.
                    sink.push(Push::Reset);
                }
                // The link opens it anew after each reconnect.
                return std::future::pending().await;
            }
            Err(error) => {
                tracing::debug!(url = %shared.endpoint.redacted, %error, "cannot subscribe at this \
                 server");
                late = true;
                tokio::time::sleep(pauses.pause()).await;
            }
        }
    }
}
