//! Redlock (`redlock://`): three or more independent Redis or Valkey servers, of which a majority
//! decides.
//!
//! Each member is an ordinary store on one server (`member`), with the record, the scripts, the
//! listing and the audit log of `redis://`. Commands go to all members at once, and a
//! [`QuorumRound`](leasehold_core::quorum::QuorumRound) folds their replies (`rounds`, `verbs`).
//! Claims, releases and renewals of own claims are answered with the last vote of a quorum; all
//! else waits for slower members, too, for `node_timeout` at most.
//! `docs/stores/redlock.md` describes the guarantees, and `docs/proof/quorum.md` explains them.

mod init;
mod list;
mod listen;
mod log;
mod look;
mod member;
mod options;
mod report;
mod rounds;
#[cfg(test)]
mod tests;
mod verbs;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::QuorumSize;
use leasehold_core::{Command, Inbox, Key, Reply, SetTerms, Snapshot, StoreTime};
use leasehold_store::random::random_u64;
use leasehold_store::sync::check_runtime;
use leasehold_store::{
    Answer, AuditLog, Capabilities, ErrorKind, Listening, Listing, LockStore, PushSink, StoreError,
};
use tokio::time::timeout_at;

use self::member::Member;
pub use self::options::RedlockOptions;
use self::report::Report;
use self::rounds::Bid;
use self::verbs::unsupported;
use crate::claim_table::{ClaimTable, Known};
use crate::classic;
use crate::codec::script::Script;
use crate::codec::stores_own;
use crate::options::restart::check_ttl;
use crate::queue::RedisStore;
use crate::routing::Route;

/// What the store and its tasks share.
struct Inner {
    options: RedlockOptions,
    size: QuorumSize,
    terms: SetTerms,
    members: Vec<Member>,
    claims: ClaimTable<Known<Box<Bid>>>,
    inbox: Inbox,
}

/// A store on several independent servers (Redlock). Cheap to share in an `Arc`. When it is
/// dropped, pending releases are sent and its connections close.
pub struct RedlockStore {
    inner: Arc<Inner>,
}

impl RedlockStore {
    /// Opens a store: connects to all servers. If a quorum is reachable, the other servers are
    /// retried in the background.
    ///
    /// # Errors
    /// `Unavailable` if no quorum can be reached, with the reason for each server; `Invalid` for
    /// invalid options.
    pub async fn connect(options: RedlockOptions) -> Result<Self, StoreError> {
        check_runtime()?;
        options.check()?;
        let store = Self::start(options)?;
        let inner = &store.inner;
        let mut report = Report::new(inner.size);
        let mut tries: FuturesUnordered<_> = (inner.members.iter().enumerate())
            .map(|(server, member)| async move { (server, member.shared.first_try().await) })
            .collect();
        let mut reached = 0;
        // Less than an attempt may take, so that the reasons can be told.
        let limit = inner.options.servers[0].connect_timeout * 4 / 5;
        let grace = inner.options.node_timeout;
        let mut end = tokio::time::Instant::now() + limit;
        while let Ok(Some((server, result))) = timeout_at(end, tries.next()).await {
            reached += usize::from(result.is_ok());
            report.note(server, &result);
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
        let terms = options.terms();
        let servers = options.servers.iter();
        let members: Result<_, _> = servers.map(|it| Member::start(it, &terms)).collect();
        Ok(Self {
            inner: Arc::new(Inner {
                size: options.size()?,
                terms,
                members: members?,
                claims: ClaimTable::default(),
                inbox: Inbox::from_random(random_u64()),
                options,
            }),
        })
    }

    /// Returns the URL of the servers, without the passwords.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.inner.options.redacted_url()
    }

    /// Runs a script that knows nothing of votes at each server that can be reached. The classic
    /// layout leaves nothing for one.
    pub(super) async fn run_on_each(&self, script: &Script, key: &Key) {
        let run = |member: &Member| {
            let store = RedisStore::by(Route::One(Arc::clone(&member.shared)));
            async move { store.run_on(script, key).await }
        };
        self.inner.each(self.inner.options.node_timeout, run).await;
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        let options = &self.inner.options;
        // The classic layout knows no quarantine that a longer claim would outlive.
        match options.is_classic() {
            true => Ok(()),
            false => check_ttl(ttl, options.max_ttl, "set"),
        }
    }
}

#[async_trait]
impl LockStore for RedlockStore {
    fn capabilities(&self) -> Capabilities {
        let inner = &self.inner;
        if inner.options.is_classic() {
            return classic::capabilities("redlock classic");
        }
        let hears = |member: &&Member| member.shared.inbox.hears();
        let hearing = inner.members.iter().filter(hears);
        let mut can = Capabilities::queueing("redlock");
        can.queueing = false;
        can.push = hearing.count() >= inner.size.quorum();
        can.multi = false;
        can.durable_tokens = true;
        can.exclusive_only = true;
        can
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let at = classic::wall();
        let reply = match command {
            Command::Claim(claim) => self.claim(key, claim, at).await?,
            Command::Renew(renew) => self.renew(key, renew, at).await?,
            Command::Release(release) => self.release(key, release).await?,
            Command::Watch { .. } => {
                self.inner.ask_quorum(key, command).await?;
                Reply::Done
            }
            Command::Break { by, only } => self.break_key(key, by, *only).await?,
            Command::Resize { .. } => return Err(unsupported("there are no semaphores")),
            Command::Void(_) | Command::Unheard { .. } | Command::Bury { .. } => {
                return Err(stores_own(command));
            }
        };
        Ok(Answer::new(reply, at, 0))
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.inner.look(key).await
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        Box::new(list::QuorumListing::new(&self.inner, pattern))
    }

    fn audit_log<'a>(
        &'a self,
        key: Option<&Key>,
        since: StoreTime,
    ) -> Option<Box<dyn AuditLog + 'a>> {
        let native = !self.inner.options.is_classic();
        native.then(|| Box::new(log::QuorumLog::new(&self.inner, key, since)) as _)
    }

    fn inbox(&self) -> &Inbox {
        &self.inner.inbox
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        if self.inner.options.is_classic() {
            return Err(classic::unsupported(
                "it sends no message when a lock becomes free",
            ));
        }
        listen::listen(&self.inner, sink).await
    }
}

impl Inner {
    /// Does some work at each member, within `limit`, and returns the results.
    async fn each<'a, T, F>(
        &'a self,
        limit: Duration,
        work: impl Fn(&'a Member) -> F,
    ) -> Vec<Result<T, StoreError>>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let each = self.members.iter();
        join_all(each.map(|member| member.within(limit, work(member)))).await
    }

    /// What members answered, and a report with the errors of the others.
    fn gather<T>(&self, results: Vec<Result<T, StoreError>>) -> (Vec<T>, Report) {
        let mut report = Report::new(self.size);
        for (member, result) in results.iter().enumerate() {
            report.note(member, result);
        }
        (results.into_iter().flatten().collect(), report)
    }

    /// How long one server's answer may take.
    fn patience(&self, ttl: Duration) -> Duration {
        self.options.node_timeout.min(ttl / 4)
    }
}
