//! `redlock://`: three or more independent Redis or Valkey servers, of which a
//! majority decides.
//!
//! Each server keeps a vote per key (`lua/node.lua`), by the rules of the core's
//! [`leasehold_core::quorum`]; this store counts them. Requests go to all servers
//! at once; the answer is there with the last vote of a quorum, and slower
//! servers are not waited for. See `docs/stores/redlock.md` for what is promised,
//! and `docs/proof/quorum.md` for why.

mod book;
mod classic;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod init;
mod list;
mod listen;
mod look;
mod member;
mod options;
mod report;
mod rounds;
mod script;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::{BidVerdict, ExtensionVerdict, FarewellVerdict, QuorumSize, Vote};
use leasehold_core::{
    Arrival, Claim, ClaimId, Command, Inbox, Key, Mode, Moment, Release, Renew, Reply, SetTerms,
    Snapshot, Standing, StoreTime, Token, Validity,
};
use leasehold_store::random::random_u64;
use leasehold_store::{
    Answer, Capabilities, ErrorKind, Listening, Listing, LockStore, PushSink, StoreError, clock,
};
use tokio::time::timeout_at;

use self::book::{Book, Entry, Known};
use self::member::Member;
pub use self::options::RedlockOptions;
use self::report::Report;
use self::script::Ask;
use crate::codec::script::Script;
use crate::codec::stores_own;
use crate::connection::step::{Way, run};

/// What the store and its tasks share.
struct Inner {
    options: RedlockOptions,
    size: QuorumSize,
    terms: SetTerms,
    members: Vec<Arc<Member>>,
    book: Book,
    inbox: Inbox,
}

/// A store on several independent servers. Cheap to share behind an `Arc`; its
/// connections close when it is dropped, and what it has to release is released.
pub struct RedlockStore {
    inner: Arc<Inner>,
}

impl RedlockStore {
    /// Opens a store: connects to all servers. Those that cannot be reached are
    /// tried again in the background, while a quorum is there.
    ///
    /// # Errors
    /// `Unavailable` if no quorum can be reached, naming each server and why;
    /// `Invalid` for options that cannot work.
    pub async fn connect(options: RedlockOptions) -> Result<Self, StoreError> {
        options.check()?;
        Self::open(options).await
    }

    /// The same for options that were checked.
    pub(super) async fn open(options: RedlockOptions) -> Result<Self, StoreError> {
        let store = Self::start(options)?;
        let inner = &store.inner;
        let mut report = Report::new(inner.size);
        let mut tries: FuturesUnordered<_> = (inner.members.iter().enumerate())
            .map(|(server, member)| async move { (server, member.first_try().await) })
            .collect();
        let mut reached = 0;
        // Less than an attempt may take, so that the reasons can be told.
        let limit = inner.options.servers[0].connect_timeout * 4 / 5;
        let grace = inner.options.node_timeout;
        let mut end = tokio::time::Instant::now() + limit;
        while let Ok(Some((server, result))) = timeout_at(end, tries.next()).await {
            reached += usize::from(result.is_ok());
            report.note(server, &result.map(|()| Vote::Done));
            if reached == inner.size.quorum() {
                // The others need not be waited for.
                end = end.min(tokio::time::Instant::now() + grace);
            }
        }
        drop(tries);
        if reached < inner.size.quorum() {
            return Err(report.error(inner, ErrorKind::Unavailable, limit));
        }
        if inner.terms.quarantine.is_zero() && !inner.options.is_classic() {
            tracing::warn!(
                "quarantine is off: a server that restarts without its data may let two clients \
                 hold a lock at once"
            );
        }
        Ok(store)
    }

    fn start(options: RedlockOptions) -> Result<Self, StoreError> {
        let members = options.servers.iter().cloned();
        let members = members
            .map(|server| Member::start(server, random_u64()))
            .collect();
        Ok(Self {
            inner: Arc::new(Inner {
                size: options.size()?,
                terms: options.terms(),
                members,
                book: Book::default(),
                inbox: Inbox::from_random(random_u64()),
                options,
            }),
        })
    }

    /// The URL of the servers, without the passwords.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.inner.options.redacted_url()
    }

    /// Runs a script that knows nothing of votes at each server that can be reached.
    pub(super) async fn run_on_each(&self, script: &Script, key: &Key) {
        let limit = self.inner.options.node_timeout;
        let each = self.inner.members.iter().map(|member| {
            member.within(limit, async {
                let (_, wire) = member.wire().await?;
                let key = member.lock_key(key.as_str());
                run(&wire, Way::Plain, script, &[&key], |_| {}).await
            })
        });
        join_all(each).await;
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        let max = self.inner.options.max_ttl;
        // The classic layout knows no quarantine that a longer claim would outlive.
        if ttl > max && !self.inner.options.is_classic() {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                format!("a TTL of {ttl:?} is longer than these servers allow: {max:?}"),
            )
            .with_hint("choose a shorter one, or set max_ttl for all clients of the set"));
        }
        Ok(())
    }
}

/// Refuses what a majority of single votes cannot do.
fn check_claim(claim: &Claim) -> Result<(), StoreError> {
    let why = match claim.mode {
        Mode::SHARED => "readers of independent servers could each have another majority",
        Mode::Permits { .. } => "permits of independent servers would be counted differently",
        Mode::EXCLUSIVE if claim.secret.is_some() => {
            "claims of one owner would find it at different servers"
        }
        Mode::EXCLUSIVE if !claim.min_hold.is_zero() => {
            "a minimum hold would end with a server's quarantine"
        }
        Mode::EXCLUSIVE => return Ok(()),
    };
    Err(unsupported(why))
}

fn unsupported(why: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unsupported,
        format!("independent servers cannot do this: {why}"),
    )
    .with_hint("a redlock:// store has mutexes and elections; use one server for the rest")
}

/// The time of day: what this store takes for the time of a step.
fn wall() -> StoreTime {
    StoreTime(u64::try_from(clock::wall().as_micros()).unwrap_or(u64::MAX))
}

fn answer(reply: Reply, at: StoreTime) -> Answer {
    Answer::new(reply, at, 0)
}

impl RedlockStore {
    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        claim.mode.check()?;
        if self.inner.options.is_classic() {
            super::classic::check_claim(claim)?;
        } else {
            check_claim(claim)?;
        }
        self.check_ttl(claim.lease_ttl)?;
        let inner = &self.inner;
        let (sent, at) = (clock::now(), wall());
        let known = match inner.book.look(key, &claim.id) {
            Known::Left(_) => return Ok(answer(Reply::Gone, at)),
            Known::Here(entry) => Some(entry),
            Known::Nothing => None,
        };
        let (verdict, report) = inner.bid(key, claim, known.as_ref(), sent, at).await;
        let reply = match verdict {
            BidVerdict::Held { token } => {
                let mut deadline = at + claim.lease_ttl;
                inner.book.change(key, &claim.id, |entry| {
                    entry.held = true;
                    entry.validity.confirm(sent, claim.lease_ttl);
                    entry.deadline = entry.deadline.max(deadline);
                    deadline = entry.deadline;
                });
                inner.standing(&claim.id, token, deadline)
            }
            BidVerdict::Busy { left } => {
                inner.give_up(key, claim, sent);
                Reply::Busy {
                    blocked_until: at + left,
                }
            }
            BidVerdict::Taken => {
                inner.book.forget(key, &claim.id);
                Reply::Taken
            }
            BidVerdict::Gone => {
                inner.part(key, &claim.id);
                Reply::Gone
            }
            BidVerdict::Refused { left } => {
                inner.give_up(key, claim, sent);
                let error =
                    report.error(inner, ErrorKind::Refused, inner.patience(claim.lease_ttl));
                return Err(match left {
                    Some(left) => error.with_retry_after(left),
                    None => error,
                });
            }
            BidVerdict::Unanswered => {
                let limit = inner.patience(claim.lease_ttl);
                return Err(report.error(inner, ErrorKind::Unavailable, limit));
            }
        };
        Ok(answer(reply, at))
    }

    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        if self.inner.options.is_classic() {
            super::classic::check_renew(renew)?;
        }
        if renew.rotate.is_some() {
            return Err(unsupported(
                "a claim whose id is replaced at some servers only would have two",
            ));
        }
        if renew.downgrade {
            return Err(unsupported("there are no readers"));
        }
        self.check_ttl(renew.ttl)?;
        let inner = &self.inner;
        let (sent, at) = (clock::now(), wall());
        let Known::Here(mut entry) = inner.book.look(key, &renew.id) else {
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
            ExtensionVerdict::Held => {
                let mut deadline = at + renew.ttl;
                inner.book.change(key, &renew.id, |known| {
                    known.validity.confirm(sent, renew.ttl);
                    known.deadline = known.deadline.max(deadline);
                    known.note.clone_from(&entry.note);
                    deadline = known.deadline;
                });
                answer(inner.standing(&renew.id, entry.token, deadline), at)
            }
            ExtensionVerdict::Gone => {
                inner.part(key, &renew.id);
                answer(Reply::Gone, at)
            }
            ExtensionVerdict::Unanswered => {
                let limit = inner.patience(renew.ttl);
                return Err(report.error(inner, ErrorKind::Unavailable, limit));
            }
        })
    }

    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        let inner = &self.inner;
        let parting = match inner.book.look(key, &release.id) {
            Known::Left(Some(parting)) => Some(parting),
            Known::Left(None) => None,
            Known::Here(_) | Known::Nothing => Some(inner.part(key, &release.id)),
        };
        let Some(mut parting) = parting else {
            return Ok(answer(Reply::Absent, wall()));
        };
        let first = parting.borrow().is_none();
        let limit = inner.options.node_timeout;
        let verdict = tokio::time::timeout(limit, parting.wait_for(Option::is_some)).await;
        let verdict = match verdict {
            Ok(Ok(verdict)) => *verdict,
            // Nobody tells any more, or not in time.
            _ => None,
        };
        match verdict {
            Some(FarewellVerdict::Held) if first => {
                Ok(answer(Reply::Released { held: true }, wall()))
            }
            Some(_) => Ok(answer(Reply::Absent, wall())),
            None => {
                let (all, needed) = (inner.size.servers(), inner.size.quorum());
                Err(StoreError::new(
                    ErrorKind::Unavailable,
                    format!(
                        "fewer than {needed} of {all} servers have confirmed the release within \
                         {limit:?}; the others are told in the background until the claim lapses"
                    ),
                ))
            }
        }
    }

    async fn watch(&self, key: &Key, ttl: Duration) -> Result<Answer, StoreError> {
        let limit = self.inner.options.node_timeout;
        self.inner.ask_quorum(key, &Ask::Watch(ttl), limit).await?;
        Ok(answer(Reply::Done, wall()))
    }

    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError> {
        if self.inner.options.is_classic() {
            return self.inner.break_classic(key).await;
        }
        let limit = self.inner.options.node_timeout;
        let (_, seen) = self.inner.look(key).await?;
        let token = Token(wall().0.max(seen.0 + 1));
        let votes = self
            .inner
            .ask_quorum(key, &Ask::Break(token), limit)
            .await?;
        let held = |vote: &Vote| matches!(vote, Vote::Broken { token } if !token.is_none());
        let reply = Reply::Broken {
            holders: votes.iter().any(held).into(),
            token,
        };
        Ok(answer(reply, wall()))
    }
}

#[async_trait]
impl LockStore for RedlockStore {
    fn capabilities(&self) -> Capabilities {
        let inner = &self.inner;
        if inner.options.is_classic() {
            return super::classic::capabilities("redlock classic");
        }
        let hearing = inner.members.iter().filter(|member| member.hears());
        let mut can = Capabilities::queueing("redlock");
        can.queueing = false;
        can.push = hearing.count() >= inner.size.quorum();
        can.multi = false;
        can.durable_tokens = true;
        can.exclusive_only = true;
        can
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        match command {
            Command::Claim(claim) => self.claim(key, claim).await,
            Command::Renew(renew) => self.renew(key, renew).await,
            Command::Release(release) => self.release(key, release).await,
            Command::Watch { ttl, .. } => self.watch(key, *ttl).await,
            Command::Break => self.break_key(key).await,
            Command::Resize { .. } => Err(unsupported("there are no semaphores")),
            Command::Unheard { .. } | Command::Bury { .. } => Err(stores_own(command)),
        }
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(self.inner.look(key).await?.0)
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        Box::new(list::QuorumListing::new(&self.inner, pattern))
    }

    fn inbox(&self) -> &Inbox {
        &self.inner.inbox
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        if self.inner.options.is_classic() {
            return Err(super::classic::unsupported(
                "nobody is told when a lock is free",
            ));
        }
        Ok(Box::new(listen::listen(&self.inner, sink).await?))
    }
}

impl Inner {
    /// How long one server's answer may take.
    fn patience(&self, ttl: Duration) -> Duration {
        self.options.node_timeout.min(ttl / 4)
    }

    fn standing(&self, id: &ClaimId, token: Token, deadline: StoreTime) -> Reply {
        if self.options.is_classic() {
            return super::classic::standing(id.expose(), deadline);
        }
        Reply::Standing(Standing {
            arrival: Arrival(token.0),
            token: Some(token),
            position: 0,
            deadline,
            blocked_until: None,
        })
    }

    /// Takes a key from whoever has it at a majority: how many that were.
    async fn break_classic(self: &Arc<Self>, key: &Key) -> Result<Answer, StoreError> {
        let limit = self.options.node_timeout;
        let votes = self
            .ask_quorum(key, &Ask::Break(Token::NONE), limit)
            .await?;
        let held = |vote: &Vote| matches!(vote, Vote::Broken { token } if !token.is_none());
        let reply = Reply::Broken {
            holders: votes.iter().any(held).into(),
            token: Token::NONE,
        };
        Ok(answer(reply, wall()))
    }

    /// What is noted of a claim before its first request is sent.
    fn entry(claim: &Claim, token: Token, sent: Moment) -> Entry {
        Entry {
            token,
            proposed: sent,
            held: false,
            validity: Validity::default(),
            lapses: sent + claim.lease_ttl,
            deadline: StoreTime(0),
            owner: claim.owner.clone(),
            note: claim.note.clone(),
        }
    }
}

impl fmt::Debug for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockStore")
            .field("url", &self.redacted_url())
            .finish_non_exhaustive()
    }
}
