//! Acquires several keys in one atomic step, if the store supports it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Command, Deadlines, End, GRACE, Reply, Transmit};

use super::claim_handle::ClaimHandle;
use super::request::{AcquireRequest, mismatch};
use super::{Session, check_answer, of_store};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::observe::Acquiring;
use crate::store::{AllAnswer, Answer};
use crate::sync::{sleep, timeout};

/// An error, and the request that it is about.
type FailedPart = (usize, StoreError);

/// Not all keys were free at once; nothing was changed.
const NOT_ALL: End = End::Busy(Duration::ZERO);

/// The store cannot claim all of them in one step, or not now: claim them one by one.
const ONE_BY_ONE: End = End::Refused;

impl Session {
    /// Asks once for all keys, without waiting for any: all claims, in the order of the requests,
    /// or why there are none ([`End::Busy`]: not all keys were free; else the store cannot do that).
    ///
    /// Dropping the future at any point leaves nothing behind.
    pub(crate) async fn acquire_all(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        deadlines: Deadlines,
    ) -> Result<Result<Vec<ClaimHandle>, End>, FailedPart> {
        let acquiring = requests.iter().map(|it| self.acquiring(it));
        let (acquiring, _under_way): (Vec<_>, Vec<_>) = acquiring.unzip();
        let acquire = async { Ok(self.acquire_all_open(requests, deadlines, &acquiring).await) };
        let acquired = self.while_open(acquire).await;
        let acquired = acquired.unwrap_or_else(|closed| Err((0, closed)));
        for acquiring in acquiring {
            acquiring.end(acquired.as_ref().map_err(|(_, error)| error));
        }
        acquired
    }

    async fn acquire_all_open(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        deadlines: Deadlines,
        acquiring: &[Acquiring<'_>],
    ) -> Result<Result<Vec<ClaimHandle>, End>, FailedPart> {
        let end = clock::now() + GRACE.min(deadlines.left(clock::now()));
        for request in requests {
            self.own_departures(&request.key, end).await;
        }
        // With the one seed of the call all pause for as long as the first.
        let mut claims = Vec::with_capacity(requests.len());
        for (at, (request, acquiring)) in requests.iter().zip(acquiring).enumerate() {
            let span = acquiring.span();
            let claim = span.in_scope(|| self.claim(request, deadlines, false, false));
            claims.push(claim.map_err(|error| (at, error))?);
        }
        let failed = |at: usize, claims: &[ClaimHandle], end| {
            (at, claims[at].failed(&requests[at], end, deadlines))
        };
        let mut asked = false;
        loop {
            let mut sent = Vec::with_capacity(claims.len());
            for (at, claim) in claims.iter().enumerate() {
                let transmit = claim.poll_transmit();
                sent.extend(transmit.map_err(|end| failed(at, &claims, end))?);
            }
            if sent.len() == claims.len() {
                let carried = self.carry_all(&claims, &sent).await;
                if !asked && matches!(carried, Ok(None)) {
                    // A store that cannot do this was not asked: there is nothing to release.
                    for claim in &claims {
                        claim.with(|claim, _| claim.forget());
                    }
                }
                asked = true;
                match answer_all(requests, &claims, &sent, carried)? {
                    Some(Ok(())) => break,
                    Some(Err(end)) => return Ok(Err(end)),
                    None => {}
                }
            }
            let due = |claim: &ClaimHandle| claim.with(|claim, _| claim.poll_timeout());
            let due = claims.iter().filter_map(due).max().unwrap_or_default();
            sleep(due.since(clock::now())).await;
        }
        // Each is checked once more; all or none.
        for (at, claim) in claims.iter().enumerate() {
            let granted = claim.await_grant(deadlines, None).await;
            match granted.map_err(|error| (at, error))? {
                Ok(()) => {}
                // One by one another is asked for.
                Err(End::Late) => return Ok(Err(ONE_BY_ONE)),
                Err(end) => return Err(failed(at, &claims, end)),
            }
        }
        Ok(Ok(claims))
    }

    async fn carry_all(
        &self,
        claims: &[ClaimHandle],
        sent: &[Transmit],
    ) -> Result<Option<AllAnswer>, Option<StoreError>> {
        let part = |(claim, sent): (&ClaimHandle, &Transmit)| match &*sent.command {
            Command::Claim(asked) => Some((claim.key().clone(), asked.clone())),
            _ => None,
        };
        let parts: Vec<_> = claims.iter().zip(sent).filter_map(part).collect();
        let limit = sent.iter().map(|sent| sent.limit).min().unwrap_or_default();
        let began = clock::now();
        let answer = timeout(limit, self.store.claim_all(&parts)).await;
        let answer = answer.map(|answer| answer.map_err(of_store));
        let answer = answer.map_or(Err(None), |answer| answer.map_err(Some));
        // A store that cannot do this was not asked.
        if let (Some((key, _)), false) = (parts.first(), matches!(answer, Ok(None))) {
            self.observers.request(key, "claim_all", began, &answer);
        }
        answer
    }
}

/// Passes each claim its part of the answer. `None`: there was no answer, and the request is
/// repeated.
fn answer_all(
    requests: &[AcquireRequest],
    claims: &[ClaimHandle],
    sent: &[Transmit],
    carried: Result<Option<AllAnswer>, Option<StoreError>>,
) -> Result<Option<Result<(), End>>, FailedPart> {
    let parts = claims.iter().zip(sent);
    match carried {
        Ok(None) => Ok(Some(Err(ONE_BY_ONE))),
        Ok(Some(AllAnswer::All(answers))) => {
            for ((claim, sent), answer) in parts.zip(answers) {
                let checked = check_answer(&sent.command, answer);
                claim.answer(sent, checked.map_err(Some));
            }
            Ok(Some(Ok(())))
        }
        Ok(Some(AllAnswer::NotAll { part, answer })) => {
            for (at, (claim, sent)) in parts.enumerate() {
                let blocked_until = answer.at;
                let busy = Reply::Busy { blocked_until };
                let reply = if at == part { answer.reply } else { busy };
                let checked = check_answer(&sent.command, Answer { reply, ..answer });
                claim.answer(sent, Ok(checked.map_err(|error| (at, error))?));
            }
            match answer.reply {
                Reply::Mismatch { in_use } => Err((part, mismatch(requests[part].mode, in_use))),
                // One by one they stand in line, or are told so.
                Reply::Quarantined { .. } => Ok(Some(Err(ONE_BY_ONE))),
                _ => Ok(Some(Err(NOT_ALL))),
            }
        }
        Err(failed) => {
            for (claim, sent) in parts {
                claim.answer(sent, Err(failed.clone()));
            }
            let Some(error) = failed else { return Ok(None) };
            match error.kind() {
                // One by one they wait, or are told so.
                _ if error.retry_after.is_some() => Ok(Some(Err(ONE_BY_ONE))),
                // One by one it is seen whose record that is.
                ErrorKind::Corrupt | ErrorKind::Unsupported => Ok(Some(Err(ONE_BY_ONE))),
                ErrorKind::Unavailable => Ok(None),
                _ => Err((0, error)),
            }
        }
    }
}
