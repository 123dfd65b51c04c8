//! The inbox name of a client: subscribed or not subscribed.

use std::sync::OnceLock;

use leasehold_core::Inbox;
use leasehold_store::random::random_u64;

use crate::codec::push;

/// The inbox of a client. It has another name if the client is not subscribed.
pub(crate) struct OwnInbox {
    subscribed: Inbox,
    deaf: Inbox,
    /// Decided when a connection stands for the first time: a claim is known by the name
    /// that it came with.
    hears: OnceLock<bool>,
}

impl OwnInbox {
    pub(crate) fn random() -> Self {
        let inbox = Inbox::from_random(random_u64());
        Self {
            deaf: push::deaf(&inbox),
            subscribed: inbox,
            hears: OnceLock::new(),
        }
    }

    /// The name by which claims are made.
    pub(crate) fn name(&self) -> &Inbox {
        if self.hears() {
            &self.subscribed
        } else {
            &self.deaf
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
}
