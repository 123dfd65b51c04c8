//! Taking over a claim that another process has made.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Adopt, Backoff, ClaimId, Renew, Reply, Rotate, Standing, Validity};

use super::acquire::{Asking, Attempt, hand_over, keep, too_late};
use super::own_id::{COLLISIONS, OwnId, not_unique};
use super::signal::Signal;
use super::subject::Subject;
use super::wish::{Grant, Wish};
use super::{Departure, Driver, random_u64, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::sync::{sleep, timeout};

/// How an adoption came out.
pub(crate) enum Adopted {
    Lease(Grant),
    /// It was released, or it lapsed.
    Gone,
    /// Somebody else has replaced its id.
    Superseded,
}

/// Takes over the claim `id`. The claim's new id is the same in every request,
/// so one whose answer was lost is asked again.
pub(crate) async fn adopt(
    driver: &Arc<Driver>,
    wish: &Wish,
    id: &ClaimId,
    version: u64,
) -> Result<Adopted, StoreError> {
    let adopt = async {
        for _ in 0..COLLISIONS {
            let to = driver.claim_id(&wish.key).await?;
            if let Some(adopted) = adopt_as(driver, wish, id, version, to).await? {
                return Ok(adopted);
            }
        }
        Err(not_unique())
    };
    driver.while_open(adopt).await?
}

/// `None`: the new id is another claim's.
async fn adopt_as(
    driver: &Arc<Driver>,
    wish: &Wish,
    id: &ClaimId,
    version: u64,
    to: OwnId,
) -> Result<Option<Adopted>, StoreError> {
    let renew = Renew {
        rotate: Some(Rotate {
            to: to.id.clone(),
            version,
            adopt: Some(Adopt {
                inbox: Some(driver.store.inbox().clone()),
                owner: wish.owner.clone(),
            }),
        }),
        ..Renew::new(id.clone(), wish.terms.ttl)
    };
    let subject = Subject::new(wish.key.clone(), to, version + 1, wish.terms, true);
    // Whoever had it before has used it.
    subject.hand_out();
    let asking = Asking::start(driver);
    let departure = Departure::new(driver, subject.clone());
    let limit = driver.settings.operation_timeout;
    let mut pause = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
    let mut last = unanswered(limit);
    let ask = async {
        loop {
            let sent = clock::now();
            match driver.renew_granted(&wish.key, renew.clone()).await {
                Ok(answer) => return Ok((sent, answer)),
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
            sleep(pause.pause()).await;
        }
    };
    let Ok(answered) = timeout(limit, ask).await else {
        return Err(last);
    };
    let (sent, answer) = answered?;
    if let Some(short) = answer.shortfall() {
        // It is ours at the store, and does not count: given back.
        return Err(short);
    }
    let reply = answer.reply;
    let Reply::Standing(Standing {
        arrival,
        token: Some(token),
        ..
    }) = reply
    else {
        if !matches!(reply, Reply::Standing(_)) {
            departure.confirmed();
        }
        // One that still waited is not what was asked for: it is released.
        return Ok(match reply {
            Reply::Taken => None,
            Reply::Superseded => Some(Adopted::Superseded),
            _ => Some(Adopted::Gone),
        });
    };
    let mut validity = Validity::default();
    validity.confirm(sent, wish.terms.ttl);
    let signal = Arc::new(Signal::new(false));
    signal.set_token(token);
    if let Some(acknowledged) = answer.achieved() {
        signal.set_acknowledged(acknowledged);
    }
    let entry = keep(driver, &subject, &signal, (arrival, token), validity);
    drop(asking);
    departure.confirmed();
    let grant = Grant {
        entry,
        subject,
        signal,
        rejoined: 0,
    };
    match hand_over(driver, wish, grant).await {
        Attempt::Granted(grant) => Ok(Some(Adopted::Lease(grant))),
        Attempt::Unacknowledged(error) => Err(error),
        _ => Err(too_late(wish.terms.ttl)),
    }
}
