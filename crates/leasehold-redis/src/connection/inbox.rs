//! The inbox of a client: its name, and the receiver of its pushes.

use std::sync::{Arc, Mutex, OnceLock};

use leasehold_core::Inbox;
use leasehold_store::random::random_u64;
use leasehold_store::{ErrorKind, Push, PushSink, StoreError};

use crate::codec::push;
use crate::std_ext::lock;

/// The inbox of a client. It has another name if the client is not subscribed.
pub(crate) struct OwnInbox {
    subscribed: Inbox,
    unsubscribed: Inbox,
    /// The channel of pushes, if the client is subscribed.
    pub(crate) channel: String,
    /// Decided when a connection stands for the first time: a claim is known by the name
    /// that it came with.
    hears: OnceLock<bool>,
    sink: Mutex<Option<Arc<dyn PushSink>>>,
}

impl OwnInbox {
    pub(crate) fn random(prefix: &str) -> Self {
        let inbox = Inbox::from_random(random_u64());
        Self {
            channel: format!("{prefix}inbox:{}", inbox.as_str()),
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
