//! The subscription of a client to its inbox: on the shared connection, and after each reconnect.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_store::{Listening, PushSink, StoreError, opened};
use redis::{PushInfo, PushKind, Value};

use super::manager::ConnectionManager;
use super::multiplexed::Connection;
use super::rights;
use super::socket::Signals;
use crate::codec::push;

impl ConnectionManager {
    /// Takes the pushes of a connection; called on the connection's own task.
    pub(super) fn pushed(self: &Arc<Self>, info: &PushInfo, signals: &Arc<Signals>) {
        match (&info.kind, info.data.as_slice()) {
            (PushKind::Disconnection, _) => self.lost(signals),
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                let epoch = signals.epoch.load(Ordering::Acquire);
                let is_ours = epoch != 0 && channel == self.inbox.channel.as_bytes();
                if let Some(sink) = self.inbox.sink().filter(|_| is_ours) {
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
    ) -> Result<Box<dyn Listening>, StoreError> {
        self.inbox.open(Arc::clone(sink))?;
        let shared = Arc::clone(self);
        Ok(opened(move || shared.close_inbox()))
    }

    /// Opens the inbox on the connection that there is.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        sink: &Arc<dyn PushSink>,
    ) -> Result<Box<dyn Listening>, StoreError> {
        let listening = self.open_inbox(sink)?;
        let wire = self.connection().await?;
        self.subscribe(&wire).await?;
        Ok(listening)
    }

    /// Waits until the open inbox is subscribed, however long that takes.
    pub(crate) async fn subscribed(self: &Arc<Self>) {
        while let Ok(wire) = self.settled(Duration::MAX, |_| false).await {
            if self.subscribe(&wire).await.is_ok() {
                return;
            }
            // The next connection may do.
            wire.leave();
        }
    }

    /// Opens the inbox on a connection. Where that is forbidden nothing is heard, and
    /// those who wait ask.
    pub(super) async fn subscribe(&self, wire: &Arc<Connection>) -> Result<(), StoreError> {
        let mut epoch = self.subscribing.lock().await;
        if wire.epoch() != 0 || !self.inbox.hears() || !wire.server.rights.push() {
            return Ok(());
        }
        let subscribe = redis::cmd("SUBSCRIBE").arg(&self.inbox.channel).to_owned();
        let subscribed = wire.socket.ask(&subscribe).await;
        if let Err(error) = rights::forbidden_or_lost(subscribed)? {
            tracing::warn!(url = %self.endpoint.redacted, %error, "cannot subscribe to the inbox; \
             polling instead");
            return Ok(());
        }
        *epoch += 1;
        wire.socket.signals.epoch.store(*epoch, Ordering::Release);
        Ok(())
    }

    fn close_inbox(self: &Arc<Self>) {
        self.inbox.close();
        let Some(wire) = self.current() else { return };
        wire.socket.signals.epoch.store(0, Ordering::Release);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let shared = Arc::clone(self);
            runtime.spawn(async move {
                let _one_at_a_time = shared.subscribing.lock().await;
                // Unless it was opened again meanwhile.
                if wire.epoch() == 0 && shared.inbox.sink().is_none() {
                    // A connection that is lost has no subscription.
                    let channel = &shared.inbox.channel;
                    let unsubscribe = redis::cmd("UNSUBSCRIBE").arg(channel).to_owned();
                    let _ = wire.socket.ask(&unsubscribe).await;
                }
            });
        }
    }
}
