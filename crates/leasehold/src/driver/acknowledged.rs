//! Grants and renewals that count only once others have acknowledged them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, Command, Key, Renew, Standpoint};

use super::wish::{Grant, Wish};
use super::{Driver, random_u64};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::{Acknowledges, Answer};
use crate::sync::sleep;

impl Driver {
    /// Renews a claim that holds: acknowledged, where the store's policy says so.
    pub(super) async fn renew_held(&self, key: &Key, renew: Renew) -> Result<Answer, StoreError> {
        let policy = self.store.capabilities().acknowledges;
        let confirms = policy == Acknowledges::GrantsAndRenewals;
        let renew = Renew { confirms, ..renew };
        self.store.step(key, &Command::Renew(renew)).await
    }

    /// Renews a claim that has just been granted.
    pub(super) async fn renew_granted(
        &self,
        key: &Key,
        renew: Renew,
    ) -> Result<Answer, StoreError> {
        let confirms = self.store.capabilities().acknowledges != Acknowledges::Nothing;
        let renew = Renew { confirms, ..renew };
        self.store.step(key, &Command::Renew(renew)).await
    }
}

/// Sees that a grant which was pushed, or found by asking, is acknowledged
/// before it is used: the release that made it was another client's, who did not
/// wait for anybody. An error: it does not count, and is to be given back.
pub(super) async fn confirm(
    driver: &Arc<Driver>,
    wish: &Wish,
    grant: &Grant,
) -> Result<(), StoreError> {
    if driver.store.capabilities().acknowledges == Acknowledges::Nothing {
        return Ok(());
    }
    let known = grant.signal.acknowledged();
    if known.is_some_and(|known| known.is_enough()) {
        return Ok(());
    }
    let limit = driver.settings.operation_timeout;
    let end = clock::now() + limit;
    let mut pauses = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
    loop {
        let ttl = driver.allowed(grant.entry, Some(wish.terms.ttl));
        let renewal = grant.subject.renewal(ttl);
        let unanswered = match driver.confirm(grant.entry, &grant.subject, renewal).await {
            Ok(answer) => return answer.shortfall().map_or(Ok(()), Err),
            Err(error) if error.kind() == ErrorKind::Unavailable => error,
            Err(error) => return Err(error),
        };
        if matches!(grant.signal.standpoint(), Standpoint::Lost(_)) {
            return Ok(());
        }
        let pause = pauses.pause();
        if clock::now() + pause >= end {
            return Err(unanswered);
        }
        sleep(pause).await;
    }
}
