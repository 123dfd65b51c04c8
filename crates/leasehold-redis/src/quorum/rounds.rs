//! Sends one request to all servers: drives the state machines of the core.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::{
    Acquire, AcquireConfig, AcquireVerdict, Body, Extend, Part, Proposal, QuorumAcquire,
    QuorumRelease, QuorumRenewal, ReleaseVerdict, RenewalVerdict, Vote,
};
use leasehold_core::{Claim, ClaimId, Key, Moment, StoreTime, Token, Validity};
use leasehold_store::random::random_u64;
use leasehold_store::{ErrorKind, StoreError, clock};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Inner;
use super::claims::{Entry, PendingRelease};
use super::report::Report;
use super::script::Ask;
use crate::claims::Known;

/// A server, what was proposed to it, and what came of it.
type Asked = BoxFuture<'static, (usize, Token, Result<Vote, StoreError>)>;

impl Inner {
    fn ask(
        self: &Arc<Self>,
        server: usize,
        token: Token,
        key: &Key,
        ask: Ask,
        limit: Duration,
        first: bool,
    ) -> Asked {
        let (inner, key) = (Arc::clone(self), key.clone());
        Box::pin(async move {
            let member = &inner.members[server];
            let asked = member.ask(key.as_str(), &ask, &inner.terms, limit, first);
            let result = asked.await;
            (server, token, result)
        })
    }

    fn vote(
        &self,
        id: &ClaimId,
        token: Token,
        ttl: Duration,
        entry: &Entry,
        wait: bool,
    ) -> Acquire {
        Acquire {
            id: id.clone(),
            token,
            ttl,
            body: Body {
                inbox: self.inbox.clone(),
                owner: entry.owner.clone(),
                note: entry.note.clone(),
            },
            wait,
            ahead: self.options.max_ttl,
        }
    }

    /// A bid, and what is noted of its claim; what is `known` of it is kept.
    fn begin(
        &self,
        key: &Key,
        claim: &Claim,
        known: Option<&Entry>,
        sent: Moment,
        at: StoreTime,
    ) -> (QuorumAcquire, Entry) {
        let config = AcquireConfig {
            size: self.size,
            ttl: claim.lease_ttl,
            patience: self.patience(claim.lease_ttl),
        };
        let seen = self.highest.of(key);
        let bid = match known {
            Some(entry) => {
                let before = Proposal {
                    token: entry.token,
                    at: entry.proposed,
                    held: entry.held,
                };
                QuorumAcquire::again(config, before, seen, at.0, sent)
            }
            None => QuorumAcquire::new(config, seen, at.0, sent),
        };
        let mut entry = known.cloned().unwrap_or_else(|| Entry {
            token: bid.token(),
            proposed: sent,
            held: false,
            validity: Validity::default(),
            deadline: StoreTime(0),
            owner: claim.owner.clone(),
            note: claim.note.clone(),
        });
        if entry.token != bid.token() {
            (entry.token, entry.proposed) = (bid.token(), sent);
        }
        (bid, entry)
    }

    /// Bids for a key.
    pub(super) async fn bid(
        self: &Arc<Self>,
        key: &Key,
        claim: &Claim,
        known: Option<&Entry>,
        sent: Moment,
        at: StoreTime,
    ) -> (AcquireVerdict, Report) {
        let (limit, first) = (self.patience(claim.lease_ttl), known.is_none());
        let (mut bid, mut entry) = self.begin(key, claim, known, sent, at);
        // Noted before anything is sent: whoever releases it has to know.
        let (noted, lapses) = (entry.clone(), sent + claim.lease_ttl + limit);
        self.claims.put(key, &claim.id, noted, lapses, sent);

        let mut report = Report::new(self.size);
        let mut asked = FuturesUnordered::new();
        let verdict = loop {
            if bid.token() > entry.token {
                entry.token = bid.token();
                let token = entry.token;
                self.claims
                    .change(key, &claim.id, |known| known.token = token);
            }
            while let Some((server, token)) = bid.poll_transmit() {
                let vote = self.vote(&claim.id, token, claim.lease_ttl, &entry, claim.wait);
                asked.push(self.ask(server, token, key, Ask::Acquire(vote), limit, first));
            }
            if let Some(verdict) = bid.verdict() {
                break verdict;
            }
            let now = clock::now();
            let next = bid
                .poll_timeout()
                .map_or(Duration::ZERO, |next| next.since(now));
            tokio::select! {
                Some((server, token, result)) = asked.next() => {
                    if token == bid.token() {
                        report.note(server, result.as_ref().copied());
                    }
                    match result {
                        Ok(vote) => bid.handle_vote(clock::now(), server, token, vote),
                        Err(_) => bid.handle_silence(clock::now(), server, token),
                    }
                }
                () = sleep(next) => bid.handle_timeout(clock::now()),
            }
        };
        self.highest.raise(key, bid.seen().max(bid.token()));
        see_off(asked);
        if matches!(self.claims.look(key, &claim.id), Known::Left(_)) {
            // It was released while it was asked for.
            self.farewell(key, &claim.id, bid.token(), sent, claim.lease_ttl);
            return (AcquireVerdict::Gone, report);
        }
        (verdict, report)
    }

    /// Asks all servers to vote on for a claim.
    pub(super) async fn extend(
        self: &Arc<Self>,
        key: &Key,
        id: &ClaimId,
        entry: &Entry,
        ttl: Duration,
        sent: Moment,
    ) -> (RenewalVerdict, Report) {
        let limit = self.patience(ttl);
        self.claims.keep(key, id, sent + ttl + limit);
        let mut report = Report::new(self.size);
        let mut extension = QuorumRenewal::new(self.size, sent + limit);
        let mut asked: FuturesUnordered<_> = (0..self.members.len())
            .map(|server| {
                let extend = Extend {
                    vote: self.vote(id, entry.token, ttl, entry, false),
                    repair: self.options.repair,
                };
                self.ask(server, entry.token, key, Ask::Extend(extend), limit, false)
            })
            .collect();
        let verdict = loop {
            if let Some(verdict) = extension.verdict() {
                break verdict;
            }
            let now = clock::now();
            let next = extension
                .poll_timeout()
                .map_or(Duration::ZERO, |next| next.since(now));
            tokio::select! {
                Some((server, _, result)) = asked.next() => {
                    report.note(server, result.as_ref().copied());
                    match result {
                        Ok(vote) => extension.handle_vote(server, vote),
                        Err(_) => extension.handle_silence(server),
                    }
                }
                () = sleep(next) => extension.handle_timeout(clock::now()),
            }
        };
        see_off(asked);
        (verdict, report)
    }

    /// Asks all servers, and gives the answers of a quorum or more.
    pub(super) async fn ask_quorum(
        self: &Arc<Self>,
        key: &Key,
        ask: &Ask,
        limit: Duration,
    ) -> Result<Vec<Vote>, StoreError> {
        let mut report = Report::new(self.size);
        let mut asked: FuturesUnordered<_> = (0..self.members.len())
            .map(|server| self.ask(server, Token(0), key, ask.clone(), limit, false))
            .collect();
        let mut votes = Vec::new();
        while let Some((server, _, result)) = asked.next().await {
            report.note(server, result.as_ref().copied());
            votes.extend(result.ok());
        }
        if votes.len() < self.size.quorum() {
            return Err(report.error(self, ErrorKind::Unavailable, limit));
        }
        Ok(votes)
    }

    // ---- leaving ----

    /// Releases the votes of a failed acquisition at all servers.
    pub(super) fn give_up(self: &Arc<Self>, key: &Key, claim: &Claim, sent: Moment) {
        let token = match self.claims.look(key, &claim.id) {
            Known::Here(entry) => entry.token,
            _ => self.highest.of(key),
        };
        self.claims.forget(key, &claim.id);
        self.farewell(key, &claim.id, token, sent, claim.lease_ttl);
    }

    fn farewell(
        self: &Arc<Self>,
        key: &Key,
        id: &ClaimId,
        token: Token,
        sent: Moment,
        ttl: Duration,
    ) {
        let part = Part {
            id: id.clone(),
            token,
            wake: false,
        };
        let until = sent + ttl + self.patience(ttl);
        let farewell = QuorumRelease::new(self.size, clock::now(), until, false, random_u64());
        let (told, _) = watch::channel(None);
        tokio::spawn(Arc::clone(self).leave(key.clone(), part, farewell, told));
    }

    /// Releases a claim: repeats it at every server until it is confirmed, or the votes have
    /// expired.
    pub(super) fn part(self: &Arc<Self>, key: &Key, id: &ClaimId) -> PendingRelease {
        let now = clock::now();
        let (told, parting) = PendingRelease::new();
        let entry = self.claims.leave(key, id, parting.clone(), now);
        let (token, wake, valid, until) = match entry {
            Some((entry, lapses)) => {
                let valid = !entry.validity.remaining(now).is_zero();
                (entry.token, entry.held, valid, lapses)
            }
            // Another process's: no request of ours can be under way.
            None => (Token(0), true, true, now + self.options.node_timeout),
        };
        let part = Part {
            id: id.clone(),
            token,
            wake,
        };
        let farewell = QuorumRelease::new(self.size, now, until, valid, random_u64());
        tokio::spawn(Arc::clone(self).leave(key.clone(), part, farewell, told));
        parting
    }

    async fn leave(
        self: Arc<Self>,
        key: Key,
        part: Part,
        mut farewell: QuorumRelease,
        told: watch::Sender<Option<ReleaseVerdict>>,
    ) {
        let limit = self.options.node_timeout;
        let mut asked = FuturesUnordered::new();
        loop {
            let now = clock::now();
            while let Some(server) = farewell.poll_transmit(now) {
                let ask = Ask::Release(part.clone());
                asked.push(self.ask(server, part.token, &key, ask, limit, false));
            }
            let verdict = farewell.verdict();
            told.send_if_modified(|before| {
                let news = before.is_none() && verdict.is_some();
                if news {
                    *before = verdict;
                }
                news
            });
            if farewell.is_over(now) {
                break;
            }
            let next = farewell.poll_timeout(now);
            let pause = next.map_or(Duration::MAX, |next| next.since(now));
            tokio::select! {
                Some((server, _, result)) = asked.next() => match result {
                    Ok(Vote::Released { held }) => farewell.handle_released(server, held),
                    _ => farewell.handle_silence(clock::now(), server),
                },
                () = sleep(pause), if next.is_some() => {}
                else => break,
            }
        }
        for server in farewell.unconfirmed() {
            let server = &self.members[server].name;
            tracing::debug!(%key, %server, "a server did not confirm a release; its vote has \
             expired");
        }
    }
}

/// Lets the remaining requests finish in the background.
fn see_off(mut asked: FuturesUnordered<Asked>) {
    if !asked.is_empty() {
        tokio::spawn(async move { while asked.next().await.is_some() {} });
    }
}
