//! Acquires several keys in one atomic step, if the store supports it.

use std::sync::Arc;

use leasehold_core::{Command, Reply, Transmit};

use super::Session;
use super::acquire::Grant;
use super::claim_handle::ClaimHandle;
use super::request::{AcquireRequest, Patience, mismatch};
use super::timing::GRACE;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::observe::{AcquireOutcome, Acquiring};
use crate::store::{AllAnswer, Answer};
use crate::sync::{sleep, timeout};

/// How it came out.
pub(crate) enum Together {
    /// In the order of the requests.
    Granted(Vec<Grant>),
    /// Not all were free at once; nothing was changed.
    Busy,
    /// The store cannot do that: claim them one by one.
    Unsupported,
}

impl Session {
    /// Asks once for all keys, without waiting for any. An error comes with the
    /// request that it is about.
    ///
    /// Dropping the future at any point leaves nothing behind.
    pub(crate) async fn acquire_all(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        patience: Patience,
    ) -> Result<Together, (usize, StoreError)> {
        let acquiring: Vec<_> = requests
            .iter()
            .map(|request| self.acquiring(request))
            .collect();
        let acquired = self
            .while_open(self.acquire_all_open(requests, patience, &acquiring))
            .await;
        let acquired = acquired.map_err(|closed| (0, closed)).flatten();
        for acquiring in acquiring {
            match &acquired {
                Ok(Together::Granted(_)) => acquiring.end(AcquireOutcome::Granted),
                Ok(Together::Busy) => acquiring.end(AcquireOutcome::Busy),
                Ok(Together::Unsupported) => acquiring.end(AcquireOutcome::Withdrawn),
                Err((_, error)) => acquiring.fail(error),
            }
        }
        acquired
    }

    async fn acquire_all_open(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        patience: Patience,
        acquiring: &[Acquiring<'_>],
    ) -> Result<Together, (usize, StoreError)> {
        let end = clock::now() + GRACE.min(patience.left_to_stop());
        for request in requests {
            self.own_departures(&request.key, end).await;
        }
        // With one seed all pause for as long as the first.
        let limits = patience.limits(self.settings.operation_timeout);
        let mut claims = Vec::with_capacity(requests.len());
        for (at, (request, acquiring)) in requests.iter().zip(acquiring).enumerate() {
            let span = acquiring.span();
            let claimed = span.in_scope(|| self.claim(request, limits, false, false));
            claims.push(claimed.map_err(|error| (at, error))?);
        }
        loop {
            let mut sent = Vec::with_capacity(claims.len());
            for (at, claimed) in claims.iter().enumerate() {
                let transmit = claimed.poll_transmit();
                let failed = |end| (at, self.failed(&requests[at], claimed, end, patience));
                sent.extend(transmit.map_err(failed)?);
            }
            if sent.len() == claims.len() {
                let carried = self.carry_all(&claims, &sent).await;
                match answer_all(requests, &claims, &sent, carried)? {
                    Some(Asked::Granted) => {
                        return self.deliver_all(requests, patience, claims).await;
                    }
                    Some(Asked::Refused(together)) => return Ok(together),
                    None => {}
                }
            }
            let due = claims
                .iter()
                .filter_map(|claimed| claimed.with(|claim, _| claim.poll_timeout()));
            let due = due.max().unwrap_or_default();
            sleep(due.since(clock::now())).await;
        }
    }

    async fn carry_all(
        &self,
        claims: &[ClaimHandle],
        sent: &[Transmit],
    ) -> Result<Option<AllAnswer>, Option<StoreError>> {
        let parts = claims
            .iter()
            .zip(sent)
            .filter_map(|(claimed, sent)| match &*sent.command {
                Command::Claim(claim) => Some((claimed.key().clone(), claim.clone())),
                _ => None,
            });
        let parts: Vec<_> = parts.collect();
        let limit = sent.iter().map(|sent| sent.limit).min().unwrap_or_default();
        let began = clock::now();
        let answer = match timeout(limit, self.store.claim_all(&parts)).await {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        };
        // A store that cannot do this was not asked.
        if let (Some((key, _)), false) = (parts.first(), matches!(answer, Ok(None))) {
            let observers = self.events.observers();
            observers.request(key, "claim_all", began, &answer);
        }
        answer
    }

    /// Each is checked once more; all or none.
    async fn deliver_all(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        patience: Patience,
        claims: Vec<ClaimHandle>,
    ) -> Result<Together, (usize, StoreError)> {
        for (at, (request, claimed)) in requests.iter().zip(&claims).enumerate() {
            let end = self.await_grant(claimed, patience, |_| ()).await;
            if let Some(end) = end.map_err(|error| (at, error))? {
                return Err((at, self.failed(request, claimed, end, patience)));
            }
        }
        let rejoined = 0;
        let grants = claims
            .into_iter()
            .map(|claimed| Grant { claimed, rejoined });
        Ok(Together::Granted(grants.collect()))
    }
}

/// What the store has said to all claims in one step.
enum Asked {
    Granted,
    Refused(Together),
}

/// Passes each claim its part of the answer. `None`: there was no answer, and the request is
/// repeated.
fn answer_all(
    requests: &[AcquireRequest],
    claims: &[ClaimHandle],
    sent: &[Transmit],
    carried: Result<Option<AllAnswer>, Option<StoreError>>,
) -> Result<Option<Asked>, (usize, StoreError)> {
    let parts = claims.iter().zip(sent);
    match carried {
        Ok(None) => Ok(Some(Asked::Refused(Together::Unsupported))),
        Ok(Some(AllAnswer::All(answers))) => {
            for ((claimed, sent), answer) in parts.zip(answers) {
                claimed.answer(sent, Ok(answer));
            }
            Ok(Some(Asked::Granted))
        }
        Ok(Some(AllAnswer::NotAll { part, answer })) => {
            for (at, (claimed, sent)) in parts.enumerate() {
                let blocked_until = answer.at;
                let busy = Reply::Busy { blocked_until };
                let reply = if at == part { answer.reply } else { busy };
                claimed.answer(sent, Ok(Answer { reply, ..answer }));
            }
            match answer.reply {
                Reply::Mismatch { in_use } => Err((part, mismatch(requests[part].mode, in_use))),
                // One by one they stand in line, or are told so.
                Reply::Quarantined { .. } => Ok(Some(Asked::Refused(Together::Unsupported))),
                _ => Ok(Some(Asked::Refused(Together::Busy))),
            }
        }
        Err(failed) => {
            for (claimed, sent) in parts {
                claimed.answer(sent, Err(failed.clone()));
            }
            match failed {
                // One by one they wait, or are told so.
                Some(error) if error.retry_after.is_some() => {
                    Ok(Some(Asked::Refused(Together::Unsupported)))
                }
                Some(error) if error.kind() != ErrorKind::Unavailable => Err((0, error)),
                _ => Ok(None),
            }
        }
    }
}
