//! Sends commands to all members: drives the state machines of the core.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::{Proposed, QuorumRelease, QuorumRound, ReleaseVerdict};
use leasehold_core::{Claim, ClaimId, Command, Key, Moment, Reply, StoreTime, Token, Void, Voided};
use leasehold_store::random::random_u64;
use leasehold_store::sync::timeout;
use leasehold_store::{Answer, ErrorKind, StoreError, clock};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Inner;
use super::report::{Answered, Report};
use crate::claim_table::Known;

/// A member, what was proposed to it, and what came of it.
type Asked = BoxFuture<'static, (usize, Token, Answered)>;

/// What is noted of a claim of this client. That one has left is noted as well: in the classic
/// layout no member knows.
#[derive(Debug, Clone)]
pub(super) struct Bid {
    pub(super) proposed: Proposed,
    pub(super) claim: Claim,
    /// The deadline as it was told.
    pub(super) deadline: StoreTime,
}

impl Inner {
    fn ask(
        self: &Arc<Self>,
        member: usize,
        token: Token,
        key: &Key,
        command: Command,
        limit: Duration,
    ) -> Asked {
        let (inner, key) = (Arc::clone(self), key.clone());
        Box::pin(async move {
            let asked = inner.members[member].take(&key, &command, limit);
            (member, token, asked.await)
        })
    }

    /// Asks all members what `propose` makes of a token, until their replies are a verdict.
    pub(super) async fn drive(
        self: &Arc<Self>,
        key: &Key,
        round: &mut QuorumRound,
        limit: Duration,
        mut propose: impl FnMut(Token) -> Command,
    ) -> Report {
        let mut report = Report::new(self.size);
        let mut asked = FuturesUnordered::new();
        while round.verdict().is_none() {
            while let Some((member, token)) = round.poll_transmit() {
                asked.push(self.ask(member, token, key, propose(token), limit));
            }
            let next = round.poll_timeout();
            let pause = next.map_or(Duration::ZERO, |next| next.since(clock::now()));
            tokio::select! {
                Some((member, token, result)) = asked.next() => {
                    if token == round.token() {
                        report.note_reply(member, token, &result);
                    }
                    match result {
                        Ok(Answer { reply, at, .. }) => {
                            round.handle_reply(clock::now(), member, token, reply, at);
                        }
                        Err(_) => round.handle_silence(clock::now(), member, token),
                    }
                }
                () = sleep(pause) => round.handle_timeout(clock::now()),
            }
        }
        // What was asked besides may still arrive.
        if !asked.is_empty() {
            tokio::spawn(async move { while asked.next().await.is_some() {} });
        }
        report
    }

    /// Asks all members, and gives the answers of a quorum or more.
    pub(super) async fn ask_quorum(
        &self,
        key: &Key,
        command: &Command,
    ) -> Result<Vec<Answer>, StoreError> {
        let limit = self.options.node_timeout;
        let asked = self.each(limit, |member| member.take(key, command, limit));
        let (answers, report) = self.gather(asked.await);
        match answers.len() < self.size.quorum() {
            true => Err(report.error(self, ErrorKind::Unavailable, limit)),
            false => Ok(answers),
        }
    }

    /// Takes back what a claim has proposed in vain. Waits for that: its program may end then.
    pub(super) async fn abandon(self: &Arc<Self>, key: &Key, id: &ClaimId) {
        if let Some((Known::Here(bid), lapses)) = self.claims.remove(key, id) {
            let token = bid.proposed.token;
            let released = self.release_all(key, id, token, (false, false), lapses);
            let _ = timeout(self.options.node_timeout, released).await;
        }
    }

    /// Releases a claim. The verdict comes when a quorum can vote for another.
    pub(super) fn begin_release(
        self: &Arc<Self>,
        key: &Key,
        id: &ClaimId,
    ) -> oneshot::Receiver<ReleaseVerdict> {
        let now = clock::now();
        let (token, held, until) = match self.claims.get(key, id) {
            Some((Known::Here(bid), lapses)) => (bid.proposed.token, bid.proposed.held, lapses),
            // Another process's: no request of ours can be under way.
            _ => (Token::NONE, true, now + self.options.node_timeout),
        };
        self.claims.note((key, id), (until, now), |_| Known::Left);
        // In the classic layout what was not answered must arrive first.
        let released = held || !self.options.is_classic();
        self.release_all(key, id, token, (released, held), until)
    }

    /// Releases what is left of a claim that has ended by itself. If its client has released it, that
    /// release does so: another one could reach members first, and the client's would find nothing.
    pub(super) fn release_ended(self: &Arc<Self>, key: &Key, id: &ClaimId) {
        if !matches!(self.claims.get(key, id), Some((Known::Left, _))) {
            self.begin_release(key, id);
        }
    }

    /// Repeats a release at every member until it is confirmed, or the votes have expired.
    pub(super) fn release_all(
        self: &Arc<Self>,
        key: &Key,
        id: &ClaimId,
        up_to: Token,
        (released, held): (bool, bool),
        until: Moment,
    ) -> oneshot::Receiver<ReleaseVerdict> {
        let id = id.clone();
        let whose = Voided::Claim { id, released };
        let command = Command::Void(Void { up_to, whose });
        let release = QuorumRelease::new(self.size, clock::now(), until, held, random_u64());
        let (told, verdict) = oneshot::channel();
        tokio::spawn(Arc::clone(self).leave(key.clone(), command, release, told));
        verdict
    }

    async fn leave(
        self: Arc<Self>,
        key: Key,
        command: Command,
        mut release: QuorumRelease,
        told: oneshot::Sender<ReleaseVerdict>,
    ) {
        let limit = self.options.node_timeout;
        let mut told = Some(told);
        let mut asked = FuturesUnordered::new();
        loop {
            let now = clock::now();
            while let Some(member) = release.poll_transmit(now) {
                asked.push(self.ask(member, Token::NONE, &key, command.clone(), limit));
            }
            if let Some(verdict) = release.verdict()
                && let Some(told) = told.take()
            {
                // Its caller may have left.
                let _ = told.send(verdict);
            }
            if release.is_over(now) {
                break;
            }
            let next = release.poll_timeout(now);
            let pause = next.map_or(Duration::MAX, |next| next.since(now));
            tokio::select! {
                Some((member, _, result)) = asked.next() => match result.map(|it| it.reply) {
                    Ok(Reply::Released { held }) => release.handle_released(member, held),
                    Ok(Reply::Absent) => release.handle_released(member, false),
                    _ => release.handle_silence(clock::now(), member),
                },
                () = sleep(pause), if next.is_some() => {}
                else => break,
            }
        }
        for member in release.unconfirmed() {
            let server = &self.members[member].name;
            tracing::debug!(%key, %server, "a server did not confirm a release; its vote has \
             expired");
        }
    }
}
