//! The verbs of a store on several servers: combines the votes into one answer.

use std::time::Duration;

use leasehold_core::quorum::{AcquireVerdict, RenewalVerdict, Vote};
use leasehold_core::{
    Arrival, Capacity, Claim, ClaimId, ClientInfo, Key, Mode, Release, Renew, Reply, Standing,
    StoreTime, Token, written,
};
use leasehold_store::{Answer, ErrorKind, StoreError, clock};

use super::script::Ask;
use super::{Inner, RedlockStore};
use crate::claims::Known;
use crate::classic::{self, wall};

/// Refuses what a majority of single votes cannot do.
fn check_claim(claim: &Claim) -> Result<(), StoreError> {
    let why = if claim.mode.capacity() != Capacity::Lock {
        "each server would count the permits in use differently"
    } else if claim.mode != Mode::EXCLUSIVE {
        "each reader could have a different majority"
    } else if claim.secret.is_some() {
        "claims of one owner could have their votes at different servers"
    } else if !claim.min_hold.is_zero() {
        "a minimum hold would end with a server's quarantine"
    } else {
        return Ok(());
    };
    Err(unsupported(why))
}

pub(super) fn unsupported(why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unsupported,
        format!("independent servers cannot do this: {why}"),
    )
    .with_hint(
        "a redlock:// store has mutexes and elections only; use a single server for other \
     kinds",
    )
}

fn answer(reply: Reply, at: StoreTime) -> Answer {
    Answer::new(reply, at, 0)
}

impl RedlockStore {
    pub(super) async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        claim.mode.check()?;
        if self.inner.options.is_classic() {
            classic::check_claim(claim)?;
        } else {
            check_claim(claim)?;
        }
        self.check_ttl(claim.lease_ttl)?;
        let inner = &self.inner;
        let (sent, at) = (clock::now(), wall());
        let known = match inner.claims.look(key, &claim.id) {
            Known::Left(_) => return Ok(answer(Reply::Gone, at)),
            Known::Here(entry) => Some(entry),
            Known::Nothing => None,
        };
        let (verdict, report) = inner.bid(key, claim, known.as_ref(), sent, at).await;
        let reply = match verdict {
            AcquireVerdict::Held { token } => {
                let mut deadline = at + claim.lease_ttl;
                inner.claims.change(key, &claim.id, |entry| {
                    entry.held = true;
                    entry.validity.confirm(sent, claim.lease_ttl);
                    entry.deadline = entry.deadline.max(deadline);
                    deadline = entry.deadline;
                });
                inner.standing(&claim.id, token, deadline)
            }
            AcquireVerdict::Busy { left } => {
                inner.give_up(key, claim, sent);
                Reply::Busy {
                    blocked_until: at + left,
                }
            }
            AcquireVerdict::Taken => {
                inner.claims.forget(key, &claim.id);
                Reply::Taken
            }
            AcquireVerdict::Gone => {
                inner.part(key, &claim.id);
                Reply::Gone
            }
            AcquireVerdict::Refused { left } => {
                inner.give_up(key, claim, sent);
                let error =
                    report.error(inner, ErrorKind::Refused, inner.patience(claim.lease_ttl));
                return Err(match left {
                    Some(left) => error.with_retry_after(left),
                    None => error,
                });
            }
            AcquireVerdict::Unanswered => {
                let limit = inner.patience(claim.lease_ttl);
                let error = report.error(inner, ErrorKind::Unavailable, limit);
                // Then its client does not ask again.
                let over = error.retry_after().is_some() && !claim.wait;
                over.then(|| inner.give_up(key, claim, sent));
                return Err(error);
            }
        };
        Ok(answer(reply, at))
    }

    pub(super) async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        if self.inner.options.is_classic() {
            classic::check_renew(renew)?;
        }
        if renew.rotate.is_some() {
            return Err(unsupported(
                "a claim id that is replaced at only some servers would leave the claim with two \
                 ids",
            ));
        }
        if renew.downgrade {
            return Err(unsupported("there are no readers"));
        }
        self.check_ttl(renew.ttl)?;
        let inner = &self.inner;
        let (sent, at) = (clock::now(), wall());
        let Known::Here(mut entry) = inner.claims.look(key, &renew.id) else {
            return Ok(answer(Reply::Gone, at));
        };
        if entry.validity.remaining(sent).is_zero() {
            // Another may hold by now: a renewal must not bring it back.
            inner.part(key, &renew.id);
            return Ok(answer(Reply::Gone, at));
        }
        if let Some(note) = &renew.note {
            entry.note = Some(note.clone()).filter(|note| !note.as_str().is_empty());
        }
        let (verdict, report) = inner.extend(key, &renew.id, &entry, renew.ttl, sent).await;
        Ok(match verdict {
            RenewalVerdict::Held => {
                let mut deadline = at + renew.ttl;
                inner.claims.change(key, &renew.id, |known| {
                    known.validity.confirm(sent, renew.ttl);
                    known.deadline = known.deadline.max(deadline);
                    known.note.clone_from(&entry.note);
                    deadline = known.deadline;
                });
                answer(inner.standing(&renew.id, entry.token, deadline), at)
            }
            RenewalVerdict::Gone => {
                inner.part(key, &renew.id);
                answer(Reply::Gone, at)
            }
            RenewalVerdict::Unanswered => {
                let limit = inner.patience(renew.ttl);
                return Err(report.error(inner, ErrorKind::Unavailable, limit));
            }
        })
    }

    pub(super) async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        let inner = &self.inner;
        let pending = match inner.claims.look(key, &release.id) {
            Known::Left(pending) => pending,
            Known::Here(_) | Known::Nothing => inner.part(key, &release.id),
        };
        let limit = inner.options.node_timeout;
        match pending.held(limit).await {
            Some(true) => Ok(answer(Reply::Released { held: true }, wall())),
            Some(false) => Ok(answer(Reply::Absent, wall())),
            None => {
                let (all, needed) = (inner.size.servers(), inner.size.quorum());
                let message = format!(
                    "fewer than {needed} of {all} servers confirmed the release within {}",
                    written(limit)
                );
                Err(StoreError::new(ErrorKind::Unavailable, message)
                    .with_hint("it is repeated in the background until the claim expires"))
            }
        }
    }

    pub(super) async fn watch(&self, key: &Key, ttl: Duration) -> Result<Answer, StoreError> {
        let limit = self.inner.options.node_timeout;
        self.inner.ask_quorum(key, &Ask::Watch(ttl), limit).await?;
        Ok(answer(Reply::Done, wall()))
    }

    pub(super) async fn break_key(
        &self,
        key: &Key,
        by: &ClientInfo,
        only: Option<Token>,
    ) -> Result<Answer, StoreError> {
        let inner = &self.inner;
        let token = if inner.options.is_classic() {
            if only.is_some() {
                return Err(classic::no_tokens());
            }
            Token::NONE
        } else {
            let (_, seen) = inner.look(key).await?;
            match only {
                // Nobody can have it, and it would use up the tokens below it.
                Some(only) if only > seen => {
                    let (holders, token) = (0, seen);
                    return Ok(answer(Reply::Broken { holders, token }, wall()));
                }
                Some(only) => only,
                None => Token(wall().0.max(seen.0 + 1)),
            }
        };
        let limit = inner.options.node_timeout;
        let ask = Ask::Break(token, by.clone());
        let votes = inner.ask_quorum(key, &ask, limit).await?;
        let held = |vote: &Vote| matches!(vote, Vote::Broken { token } if !token.is_none());
        let reply = Reply::Broken {
            holders: votes.iter().any(held).into(),
            token,
        };
        Ok(answer(reply, wall()))
    }
}

impl Inner {
    fn standing(&self, id: &ClaimId, token: Token, deadline: StoreTime) -> Reply {
        if self.options.is_classic() {
            return classic::standing(id.expose(), deadline);
        }
        Reply::Standing(Standing {
            behind: None,
            arrival: Arrival(token.0),
            token: Some(token),
            position: 0,
            deadline,
            blocked_until: None,
        })
    }
}
