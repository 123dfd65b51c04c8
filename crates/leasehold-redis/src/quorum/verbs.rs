//! The verbs of a store on several servers: what each sends to the members, and the answer.

use std::sync::Arc;

use leasehold_core::quorum::{Proposed, QuorumRound, ReleaseVerdict, RoundConfig, RoundVerdict};
use leasehold_core::{
    Arrival, Capacity, Claim, ClaimId, ClientInfo, Command, Key, Mode, Moment, Proposal, Release,
    Renew, Reply, StoreTime, Token, Void, Voided, written,
};
use leasehold_store::sync::timeout;
use leasehold_store::{Answer, ErrorKind, StoreError, clock};

use super::look::void_up_to;
use super::report::Report;
use super::rounds::Bid;
use super::{Inner, RedlockStore};
use crate::claim_table::Known;
use crate::classic::{self, wall};
use crate::errors;

/// What came of a verb.
type Outcome = Result<Reply, StoreError>;

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
    errors::unsupported(
        format!("independent servers cannot do this: {why}"),
        "a redlock:// store has mutexes and elections only; use a single server for other \
     kinds",
    )
}

impl RedlockStore {
    pub(super) async fn claim(&self, key: &Key, claim: &Claim, at: StoreTime) -> Outcome {
        claim.mode.check()?;
        match self.inner.options.is_classic() {
            true => classic::check_claim(claim)?,
            false => check_claim(claim)?,
        }
        self.check_ttl(claim.lease_ttl)?;
        let inner = &self.inner;
        let before = match inner.claims.get(key, &claim.id) {
            Some((Known::Left, _)) => return Ok(Reply::Gone),
            Some((Known::Here(bid), _)) => Some(bid.proposed),
            None => None,
        };
        let propose = |token| Command::Claim(inner.proposing(claim, token));
        inner.vote(key, claim, before, at, propose).await
    }

    pub(super) async fn renew(&self, key: &Key, renew: &Renew, at: StoreTime) -> Outcome {
        let inner = &self.inner;
        let classic = inner.options.is_classic();
        if classic {
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
        let bid = match inner.claims.get(key, &renew.id) {
            Some((Known::Here(bid), _)) => bid,
            Some((Known::Left, _)) => return Ok(Reply::Gone),
            None => return inner.renew_of_others(key, renew, at).await,
        };
        let claim = Claim {
            lease_ttl: renew.ttl,
            wait: false,
            note: renew.note.clone().or(bid.claim.note),
            ..bid.claim
        };
        // A proposal also finds the claim again at members that lack it.
        let propose = |token| match inner.options.repair && !classic {
            true => Command::Claim(inner.proposing(&claim, token)),
            false => Command::Renew(renew.clone()),
        };
        let mut before = bid.proposed;
        // The round finds that hold or none: it is never busy, nor refused.
        before.held = true;
        Ok(
            match inner.vote(key, &claim, Some(before), at, propose).await? {
                Reply::Taken => Reply::Gone,
                reply => reply,
            },
        )
    }

    pub(super) async fn release(&self, key: &Key, release: &Release) -> Outcome {
        let inner = &self.inner;
        let limit = inner.options.node_timeout;
        match timeout(limit, inner.begin_release(key, &release.id)).await {
            Ok(Ok(ReleaseVerdict::Held)) => Ok(Reply::Released { held: true }),
            Ok(Ok(ReleaseVerdict::NotHeld)) => Ok(Reply::Absent),
            Ok(Err(_)) | Err(_) => {
                let (all, needed) = (inner.size.servers(), inner.size.quorum());
                let message = format!(
                    "fewer than {needed} of {all} servers confirmed the release within {}",
                    written(limit)
                );
                Err(errors::unavailable(message)
                    .with_hint("it is repeated in the background until the claim expires"))
            }
        }
    }

    pub(super) async fn break_key(
        &self,
        key: &Key,
        by: &ClientInfo,
        only: Option<Token>,
    ) -> Outcome {
        let inner = &self.inner;
        let classic = inner.options.is_classic();
        if classic && only.is_some() {
            return Err(classic::no_tokens());
        }
        let up_to = if classic {
            Token::NONE
        } else {
            let seen = inner.look(key).await?;
            let token = seen.last_token;
            // Nobody can have it, and it would use up the tokens below it.
            if only.is_some_and(|only| only > token) {
                return Ok(Reply::Broken { holders: 0, token });
            }
            only.unwrap_or_else(|| void_up_to(&seen, wall(), inner.options.max_ttl))
        };
        let whose = Voided::Key { by: by.clone() };
        let command = Command::Void(Void { up_to, whose });
        let answers = inner.ask_quorum(key, &command).await?;
        let held = |answer: &Answer| matches!(answer.reply, Reply::Broken { holders: 1.., .. });
        let (holders, token) = (answers.iter().any(held).into(), up_to);
        Ok(Reply::Broken { holders, token })
    }
}

impl Inner {
    fn proposing(&self, claim: &Claim, token: Token) -> Claim {
        let ahead = self.options.max_ttl;
        Claim {
            runs: false,
            proposal: Some(Proposal { token, ahead }),
            ..claim.clone()
        }
    }

    /// Asks for votes, to get the key or to keep it.
    async fn vote(
        self: &Arc<Self>,
        key: &Key,
        claim: &Claim,
        before: Option<Proposed>,
        at: StoreTime,
        propose: impl Fn(Token) -> Command,
    ) -> Outcome {
        let id = &claim.id;
        let (verdict, report) = self.seek(key, claim, before, at, propose).await;
        let refused = |kind| report.error(self, kind, self.patience(claim.lease_ttl));
        Ok(match verdict {
            RoundVerdict::Held { token } => {
                let proposed = Proposed {
                    token,
                    at: clock::now(),
                    held: true,
                };
                let deadline = at + claim.lease_ttl;
                let deadline = self.note_here(key, claim, proposed.at, proposed, deadline);
                self.standing(id, token, deadline)
            }
            RoundVerdict::Busy { left } => {
                self.abandon(key, id).await;
                let blocked_until = at + left;
                Reply::Busy { blocked_until }
            }
            // A release would end what the other client has.
            RoundVerdict::Taken => {
                self.claims.remove(key, id);
                Reply::Taken
            }
            RoundVerdict::Gone => {
                self.release_ended(key, id);
                Reply::Gone
            }
            RoundVerdict::Refused { left } => {
                self.abandon(key, id).await;
                let error = refused(ErrorKind::Refused);
                return Err(match left {
                    Some(left) => error.with_retry_after(left),
                    None => error,
                });
            }
            RoundVerdict::Unanswered => {
                let error = refused(ErrorKind::Unavailable);
                // Then its client does not ask again, unless an earlier request came to nothing: a
                // withdrawal could reach a member late and end a vote that the claim holds by.
                if error.retry_after().is_some() && !claim.wait && before.is_none() {
                    self.abandon(key, id).await;
                }
                return Err(error);
            }
        })
    }

    /// Asks for votes until there is a verdict. Whatever is proposed is noted first: whoever
    /// releases the claim has to know.
    async fn seek(
        self: &Arc<Self>,
        key: &Key,
        claim: &Claim,
        before: Option<Proposed>,
        at: StoreTime,
        propose: impl Fn(Token) -> Command,
    ) -> (RoundVerdict, Report) {
        let (sent, limit) = (clock::now(), self.patience(claim.lease_ttl));
        let config = RoundConfig {
            size: self.size,
            ttl: claim.lease_ttl,
            patience: limit,
        };
        let mut round = match before {
            Some(before) => QuorumRound::again(config, before, at.0, sent),
            None => QuorumRound::new(config, Token::NONE, at.0, sent),
        };
        let lapses = sent + claim.lease_ttl + limit;
        let mut noted = None;
        let propose = |token: Token| {
            if noted.replace(token) != Some(token) {
                let proposed = Proposed {
                    token,
                    at: sent,
                    held: false,
                };
                self.note_here(key, claim, lapses, proposed, StoreTime(0));
            }
            propose(token)
        };
        let report = self.drive(key, &mut round, limit, propose).await;
        let verdict = round.verdict().unwrap_or(RoundVerdict::Unanswered);
        if let Some((Known::Left, _)) = self.claims.get(key, &claim.id) {
            // It was released while it was asked for. That release covers the votes of a claim that
            // had held; one that had not may have got votes for a higher token since.
            if before.is_none_or(|before| !before.held) {
                self.release_all(key, &claim.id, round.token(), (true, false), lapses);
            }
            return (RoundVerdict::Gone, report);
        }
        (verdict, report)
    }

    /// Notes what a claim has proposed, and its deadline, unless it was released. Returns the
    /// deadline, which is never before one that was told.
    fn note_here(
        &self,
        key: &Key,
        claim: &Claim,
        lapses: Moment,
        mut proposed: Proposed,
        mut deadline: StoreTime,
    ) -> StoreTime {
        let times = (lapses, proposed.at);
        self.claims.note((key, &claim.id), times, |known| {
            match known {
                Some(Known::Left) => return Known::Left,
                Some(Known::Here(bid)) => {
                    deadline = bid.deadline.max(deadline);
                    if bid.proposed.token == proposed.token {
                        proposed.at = bid.proposed.at;
                        proposed.held |= bid.proposed.held;
                    }
                }
                None => {}
            }
            Known::Here(Box::new(Bid {
                proposed,
                claim: claim.clone(),
                deadline,
            }))
        });
        deadline
    }

    /// Renews a claim of another process, of which nothing is known here but its id.
    async fn renew_of_others(&self, key: &Key, renew: &Renew, at: StoreTime) -> Outcome {
        let (command, limit) = (Command::Renew(renew.clone()), self.patience(renew.ttl));
        let asked = self.each(limit, |member| member.take(key, &command, limit));
        let (mut report, mut tokens, mut silent) = (Report::new(self.size), Vec::new(), 0);
        for (member, result) in asked.await.iter().enumerate() {
            report.note_reply(member, Token::NONE, result);
            match result.as_ref().map(|answer| answer.reply) {
                Ok(Reply::Standing(standing)) => tokens.extend(standing.token),
                Ok(_) => {}
                Err(_) => silent += 1,
            }
        }
        let votes = |token: &Token| tokens.iter().filter(|other| *other == token).count();
        let most = tokens.iter().copied().max_by_key(votes);
        let (voted, quorum) = (most.as_ref().map_or(0, votes), self.size.quorum());
        match most {
            Some(token) if voted >= quorum => Ok(self.standing(&renew.id, token, at + renew.ttl)),
            _ if voted + silent >= quorum => Err(report.error(self, ErrorKind::Unavailable, limit)),
            _ => Ok(Reply::Gone),
        }
    }

    fn standing(&self, id: &ClaimId, token: Token, deadline: StoreTime) -> Reply {
        let mut standing = classic::standing(id.expose(), deadline);
        if !self.options.is_classic() {
            standing.arrival = Arrival(token.get());
            standing.token = Some(token);
        }
        Reply::Standing(standing)
    }
}
