//! What the store has answered to a lock that is waited for: that it cannot do it now.
//!
//! The library asks again by itself then, so nothing else tells the user why it takes so long.

use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::observe::{Fact, ObservedClaim, Observer, StoreRequest};
use leasehold_console::feed::send_if_other;
use tokio::sync::watch;

use crate::failure::Failure;

/// The last answer: a failure that passes by itself, or `None` for any other.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotNow(Arc<watch::Sender<Option<Failure>>>);

impl NotNow {
    /// What is answered from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<Option<Failure>> {
        self.0.send_replace(None);
        self.0.subscribe()
    }

    /// Whether that was the last answer.
    pub(crate) fn is_said(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl Observer for NotNow {
    fn observe(&self, _: &ObservedClaim, _: Fact) {}

    fn request(&self, request: StoreRequest<'_>) {
        let said = match request.error {
            None if request.failed.is_none() => None,
            Some(error)
                if error.kind() == ErrorKind::Unavailable && error.retry_after().is_some() =>
            {
                let (failure, key) = (Failure::from(error.clone()), request.key);
                Some(Failure {
                    message: format!("cannot acquire {key:?}: {error}"),
                    ..failure
                })
            }
            _ => return,
        };
        if request.verb != "release" {
            send_if_other(&self.0, said);
        }
    }
}
