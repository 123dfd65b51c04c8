//! What a test waits for.

use tokio::sync::watch;

use super::faults::Gate;
use crate::process::PATIENCE;

/// Something that happens in a proxy, once.
#[derive(Clone, Debug)]
pub struct Event {
    pub(super) what: &'static str,
    pub(super) happened: watch::Receiver<bool>,
}

impl Event {
    /// Waits until it has happened.
    ///
    /// # Panics
    ///
    /// When it has not within [`PATIENCE`], or cannot any more: the proxy was healed or dropped.
    pub async fn wait(&self) {
        let mut happened = self.happened.clone();
        match tokio::time::timeout(PATIENCE, happened.wait_for(|happened| *happened)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => panic!("waited for: {}. The proxy was healed or dropped", self.what),
            Err(_) => panic!("waited {PATIENCE:?} for: {}", self.what),
        }
    }

    /// Whether it has happened.
    pub fn has_happened(&self) -> bool {
        *self.happened.borrow()
    }
}

/// A command that is held on its way to the server; see [`Proxy::hold_request`](super::Proxy::hold_request).
#[derive(Clone, Debug)]
pub struct Held {
    pub(super) event: Event,
    pub(super) gate: Gate,
}

impl Held {
    /// Waits until the command is there, and held.
    ///
    /// # Panics
    ///
    /// As [`Event::wait`].
    pub async fn wait(&self) {
        self.event.wait().await;
    }

    /// Delivers it, and what follows it; or, if it has not come yet, lets it pass.
    pub fn release(&self) {
        self.gate.open();
    }
}
