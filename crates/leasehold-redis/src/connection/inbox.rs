//! The inbox of a client: its name, the receiver of its pushes, and its subscription, on the shared
//! connection and after each reconnect.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use leasehold_core::Inbox;
use leasehold_store::random::random_u64;
use leasehold_store::{ErrorKind, Push, PushSink, StoreError};
use redis::{PushInfo, PushKind, Value};

use super::manager::ConnectionManager;
use super::multiplexed::{Connection, Signals};
use super::rights;
use crate::codec::push;
use crate::std_ext::lock;

/// The inbox of a client. It has another name if the client is not subscribed.
pub(crate) struct OwnInbox {
    subscribed: Inbox,
    unsubscribed: Inbox,
    /// Decided when a connection stands for the first time: a claim is known by the name
    /// that it came with.
    hears: OnceLock<bool>,
    sink: Mutex<Option<Arc<dyn PushSink>>>,
}

impl OwnInbox {
    pub(crate) fn random() -> Self {
        let inbox = Inbox::from_random(random_u64());
        Self {
            unsubscribed: push::deaf(&inbox),
            subscribed: inbox,
            hears: OnceLock::new(),
            sink: Mutex::default(),
        }
    }

    /// The name by which claims are made.
    pub(crate) fn name(&self) -> &Inbox {
        match self.hears() {
            true => &self.subscribed,
            false => &self.unsubscribed,
        }
    }

    /// The channel of pushes, if the client is subscribed.
    pub(crate) fn channel(&self, prefix: &str) -> String {
        format!("{prefix}inbox:{}", self.subscribed.as_str())
    }

    /// Whether this client receives pushes, as far as is known.
    pub(crate) fn hears(&self) -> bool {
        self.hears.get().copied().unwrap_or(true)
    }

    /// That was found out; only the first time counts.
    pub(crate) fn decide(&self, hears: bool) {
        self.hears.get_or_init(|| hears);
    }

    /// From now on pushes go there.
    pub(crate) fn open(&self, sink: Arc<dyn PushSink>) -> Result<(), StoreError> {
        let mut current = lock(&self.sink);
        if current.is_some() {
            let why = "the inbox of this store is already open";
            return Err(StoreError::new(ErrorKind::Invalid, why));
        }
        *current = Some(sink);
        Ok(())
    }

    pub(crate) fn close(&self) {
        *lock(&self.sink) = None;
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn PushSink>> {
        lock(&self.sink).clone()
    }

    /// To whoever listens.
    pub(crate) fn push(&self, push: Push) {
        if let Some(sink) = self.sink() {
            sink.push(push);
        }
    }
}

impl ConnectionManager {
    /// Takes the pushes of a connection; called on the connection's own task.
    pub(super) fn pushed(self: &Arc<Self>, info: &PushInfo, signals: &Arc<Signals>) {
        match (&info.kind, info.data.as_slice()) {
            (PushKind::Disconnection, _) => self.lost(signals),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                let epoch = signals.epoch.load(Ordering::Acquire);
                if epoch == 0 || channel != self.channel.as_bytes() {
                    return;
                }
                if let Some(sink) = self.inbox.sink() {
                    push::read(message, epoch).for_each(|push| sink.push(push));
                }
            }
            _ => {}
        }
    }

    /// Opens the inbox: from now on each new connection subscribes.
    pub(crate) fn open_inbox(
        self: &Arc<Self>,
        sink: &Arc<dyn PushSink>,
    ) -> Result<Subscription, StoreError> {
        self.inbox.open(Arc::clone(sink))?;
        Ok(Subscription(Arc::clone(self)))
    }

    /// Opens the inbox on the connection that there is.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        sink: &Arc<dyn PushSink>,
    ) -> Result<Subscription, StoreError> {
        let subscription = self.open_inbox(sink)?;
        let wire = self.connection().await?;
        self.subscribe(&wire).await?;
        Ok(subscription)
    }

    /// Waits until the open inbox is subscribed, however long that takes.
    pub(crate) async fn subscribed(&self) {
        loop {
            let connected = self.settled(Duration::MAX, |_| false).await;
            if let Ok(wire) = connected
                && self.subscribe(&wire).await.is_err()
            {
                // The next connection may do.
                wire.leave();
            } else {
                return;
            }
        }
    }

    /// Opens the inbox on a connection. Where that is forbidden nothing is heard, and
    /// those who wait ask.
    pub(super) async fn subscribe(&self, wire: &Arc<Connection>) -> Result<(), StoreError> {
        let _one_at_a_time = self.subscribing.lock().await;
        if wire.epoch() != 0 || !self.inbox.hears() || !wire.server.rights.push() {
            return Ok(());
        }
        let mut connection = wire.connection.clone();
        let subscribed = connection.subscribe(&self.channel).await;
        if let Err(error) = rights::forbidden_or_lost(subscribed)? {
            tracing::warn!(url = %self.endpoint.redacted, %error, "cannot subscribe to the inbox; \
             polling instead");
            return Ok(());
        }
        let epoch = self.epochs.fetch_add(1, Ordering::AcqRel) + 1;
        wire.signals.epoch.store(epoch, Ordering::Release);
        Ok(())
    }
}

/// An open inbox; closed on drop.
pub(crate) struct Subscription(Arc<ConnectionManager>);

impl leasehold_store::Listening for Subscription {}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.inbox.close();
        let Some(wire) = self.0.current() else { return };
        wire.signals.epoch.store(0, Ordering::Release);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(&self.0);
            runtime.spawn(async move {
                let _one_at_a_time = shared.subscribing.lock().await;
                // Unless it was opened again meanwhile.
                if wire.epoch() == 0 && shared.inbox.sink().is_none() {
                    // A connection that is lost has no subscription.
                    let _ = wire.connection.clone().unsubscribe(&shared.channel).await;
                }
            });
        }
    }
}
