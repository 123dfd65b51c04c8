//! Several keys in one atomic step, where the store can.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, Claim, Key, Reply, Standing, Validity};

use super::acquire::{Asking, Attempt, hand_over, keep, too_late};
use super::signal::Signal;
use super::subject::Subject;
use super::wish::{Grant, Wish, mismatch};
use super::{Departure, Driver, random_u64, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::AllAnswer;
use crate::sync::{sleep, timeout};

/// How it came out.
pub(crate) enum Together {
    /// In the order of the wishes.
    Granted(Vec<Grant>),
    /// Not all were free at once; nothing was changed.
    Busy,
    /// The store cannot do that: claim them one by one.
    Apart,
}

/// Asks once for all keys, without waiting for any. An error comes with the
/// wish that it is about.
///
/// Dropping the future at any point leaves nothing behind.
pub(crate) async fn acquire_all(
    driver: &Arc<Driver>,
    wishes: &[Wish],
) -> Result<Together, (usize, StoreError)> {
    let acquired = driver.while_open(acquire_all_open(driver, wishes)).await;
    acquired.map_err(|closed| (0, closed))?
}

async fn acquire_all_open(
    driver: &Arc<Driver>,
    wishes: &[Wish],
) -> Result<Together, (usize, StoreError)> {
    for wish in wishes {
        driver.own_departures(&wish.key).await;
    }
    let mut parts: Vec<(Key, Claim)> = Vec::with_capacity(wishes.len());
    let mut subjects = Vec::with_capacity(wishes.len());
    for (at, wish) in wishes.iter().enumerate() {
        let own = driver.claim_id(&wish.key).await;
        let own = own.map_err(|error| (at, error))?;
        let claim = wish.claim(driver, own.id.clone(), false);
        parts.push((wish.key.clone(), claim));
        subjects.push(Subject::new(wish.key.clone(), own, 0, wish.terms, false));
    }
    let asking = Asking::start(driver);
    let departures: Vec<_> = subjects
        .iter()
        .map(|subject| Departure::new(driver, subject.clone()))
        .collect();
    let limit = driver.settings.operation_timeout;
    let mut pause = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
    let mut last = unanswered(limit);
    let mut sends = 0;
    let ask = async {
        loop {
            sends += 1;
            let sent = clock::now();
            match driver.store.claim_all(&parts).await {
                Ok(answer) => return Ok((sent, answer)),
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
            sleep(pause.pause()).await;
        }
    };
    let asked = timeout(limit, ask).await;
    let confirmed = |departures: Vec<Departure>| {
        departures.into_iter().for_each(Departure::confirmed);
    };
    let (sent, answers) = match asked {
        Err(_) => return Err((0, last)),
        Ok(Err(refused)) => {
            if sends == 1 {
                confirmed(departures);
            }
            return Err((0, refused));
        }
        Ok(Ok((_, None))) => {
            confirmed(departures);
            return Ok(Together::Apart);
        }
        Ok(Ok((_, Some(AllAnswer::NotAll { part, answer })))) => {
            if sends == 1 {
                confirmed(departures);
            }
            return match answer.reply {
                Reply::Mismatch { in_use } => Err((part, mismatch(wishes[part].mode, in_use))),
                // One by one they stand in line, or are told so.
                Reply::Quarantined { .. } => Ok(Together::Apart),
                _ => Ok(Together::Busy),
            };
        }
        Ok(Ok((sent, Some(AllAnswer::All(answers))))) => (sent, answers),
    };
    // One `departure` each: what was granted and does not count is given back.
    if let Some((at, short)) = answers
        .iter()
        .enumerate()
        .find_map(|(at, answer)| Some((at, answer.shortfall()?)))
    {
        return Err((at, short));
    }
    let mut grants = Vec::with_capacity(wishes.len());
    for ((wish, mut subject), answer) in wishes.iter().zip(subjects).zip(&answers) {
        let Reply::Standing(Standing {
            arrival,
            token: Some(token),
            ..
        }) = answer.reply
        else {
            continue;
        };
        subject.settled = sends == 1;
        let signal = Arc::new(Signal::new(false));
        signal.set_token(token);
        if let Some(acknowledged) = answer.achieved() {
            signal.set_acknowledged(acknowledged);
        }
        let mut validity = Validity::default();
        validity.confirm(sent, wish.terms.ttl);
        let entry = keep(driver, &subject, &signal, (arrival, token), validity);
        grants.push((wish, entry, subject, signal));
    }
    drop(asking);
    confirmed(departures);
    let mut handed = Vec::with_capacity(grants.len());
    let mut late = None;
    for (at, (wish, entry, subject, signal)) in grants.into_iter().enumerate() {
        let grant = Grant {
            entry,
            subject,
            signal,
            rejoined: 0,
        };
        match hand_over(driver, wish, grant).await {
            Attempt::Granted(grant) => handed.push(grant),
            Attempt::Unacknowledged(error) => late = late.or(Some((at, error))),
            _ => late = late.or(Some((at, too_late(wish.terms.ttl)))),
        }
    }
    match late {
        None if handed.len() == wishes.len() => Ok(Together::Granted(handed)),
        late => {
            for grant in handed {
                driver.leave(Some(grant.entry), grant.subject);
            }
            let odd = || StoreError::new(ErrorKind::Corrupt, "not every key was answered");
            Err(late.unwrap_or_else(|| (0, odd())))
        }
    }
}
