//! `layout=classic`: the string of `SET key id NX PX ttl`, which other libraries
//! use too, on one server, behind Sentinels or in a cluster.
//!
//! One holder, no queue, no pushes, no tokens: the value is the id of the claim
//! that holds, and nothing else is kept. A step compares it and writes, by a script
//! or by a transaction. See `docs/stores/classic.md`.

mod book;
mod desk;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod look;
mod refusal;
mod verb;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{
    Claim, Command, Inbox, Invalid, Key, Mode, Release, Renew, Reply, Snapshot, Standing,
    StoreTime, Token,
};
use leasehold_store::{
    Answer, Capabilities, ErrorKind, ListPage, Listening, Listing, LockStore, PushSink, SeenNames,
    StoreError, clock,
};
use redis::Value;
use tokio::time::Instant;

use self::book::{Book, Known};
pub(super) use self::desk::Desk;
use self::look::{arrival, deadline};
pub(super) use self::look::{check_pattern, is_listed, look, view};
pub(super) use self::refusal::{Failure, unsupported};
pub(super) use self::verb::{Found, Outcome, Step, Verb};
use super::options::{RedisLayout, RedisOptions};
use crate::codec::stores_own;
use crate::connection::connect::Target;
use crate::connection::link::Shared;
use crate::connection::wire::Wire;
use crate::routing::cluster::{Cluster, RedisClusterOptions};
use crate::routing::names::{Names, Source, as_key};

/// A store that shares its locks with other libraries, on one Redis or Valkey
/// server, behind Sentinels, or on a cluster. Cheap to share behind an `Arc`; its
/// connections close when it is dropped.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("redis://127.0.0.1/?layout=classic").await?;
/// // What `redis.Redis().lock("invoice-42")` locks in Python:
/// let lease = client.mutex("invoice-42")?.lock().await?;
/// assert!(lease.token().is_none(), "there is nothing to fence with");
/// # Ok(()) }
/// ```
pub struct ClassicStore {
    route: Route,
    book: Book,
}

/// The way from a key to its server.
enum Route {
    One(Arc<Shared>, Desk),
    Cluster(Arc<Cluster>),
}

impl ClassicStore {
    /// Opens a store: connects, and finds out whether scripts are allowed.
    ///
    /// # Errors
    /// As [`RedisStore::connect`](crate::RedisStore::connect); `Invalid` unless the
    /// options say [`RedisOptions::classic`].
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        options.check()?;
        check_layout(options.layout)?;
        let shared = Shared::open(Target::new(&options)?, None).await?;
        let desk = Desk::default();
        let opened = desk.open(&shared.wire().await?).await;
        opened.map_err(Failure::error)?;
        Ok(Self {
            route: Route::One(shared, desk),
            book: Book::default(),
        })
    }

    /// Opens a store on a cluster, where scripts have to be allowed.
    ///
    /// # Errors
    /// As [`RedisStore::connect_cluster`](crate::RedisStore::connect_cluster);
    /// `Invalid` unless the options say [`RedisOptions::classic`].
    pub async fn connect_cluster(options: RedisClusterOptions) -> Result<Self, StoreError> {
        options.check()?;
        check_layout(options.node.layout)?;
        let cluster = Cluster::open(options).await?;
        Ok(Self {
            route: Route::Cluster(cluster),
            book: Book::default(),
        })
    }

    /// The URL of the server or cluster, without the password.
    #[must_use]
    pub fn redacted_url(&self) -> &str {
        match &self.route {
            Route::One(shared, _) => &shared.target().redacted,
            Route::Cluster(cluster) => cluster.redacted(),
        }
    }

    /// The primaries of a cluster.
    pub(super) fn nodes(&self) -> Vec<RedisOptions> {
        match &self.route {
            Route::One(..) => Vec::new(),
            Route::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn prefix(&self) -> &str {
        match &self.route {
            Route::One(shared, _) => &shared.target().prefix,
            Route::Cluster(cluster) => &cluster.options().prefix,
        }
    }

    fn redis_key(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix())
    }

    async fn ask(&self, key: &Key, step: Step<'_>) -> Result<Outcome, StoreError> {
        let name = self.redis_key(key);
        match &self.route {
            Route::One(shared, desk) => {
                let mut search = Search::default();
                loop {
                    let wire = shared.wire().await?;
                    match desk.step(&wire, &name, step).await {
                        Ok(outcome) => return Ok(outcome),
                        Err(failure) => search.go_on(shared, &wire, failure)?,
                    }
                }
            }
            Route::Cluster(cluster) => {
                let keys = [&*name];
                let asked = cluster.run(&verb::STEP, &keys, |call, _| step.add(call));
                verb::read(&asked.await?.0).map_err(Failure::error)
            }
        }
    }

    async fn found(&self, key: &Key) -> Result<Found, StoreError> {
        let name = self.redis_key(key);
        match &self.route {
            Route::One(shared, _) => {
                let mut search = Search::default();
                loop {
                    let wire = shared.wire().await?;
                    match look(&wire, &name).await {
                        Ok(found) => return Ok(found),
                        Err(failure) => search.go_on(shared, &wire, failure)?,
                    }
                }
            }
            Route::Cluster(cluster) => {
                let keys = [&*name];
                let asked = cluster.run(&verb::LOOK, &keys, |_, _| {});
                match asked.await?.0 {
                    Value::Array(answers) => verb::read_found(&answers).map_err(Failure::error),
                    Value::ServerError(error) => Err(refusal::of_server(&error)),
                    other => Err(crate::codec::script::unreadable(&other)),
                }
            }
        }
    }
}

fn check_layout(layout: RedisLayout) -> Result<(), StoreError> {
    if layout == RedisLayout::Classic {
        return Ok(());
    }
    Err(StoreError::new(
        ErrorKind::Invalid,
        "the options are not of the classic layout",
    )
    .with_hint("call RedisOptions::classic, or say layout=classic in the URL"))
}

/// The way from a server that is no primary to the one that is.
#[derive(Default)]
struct Search {
    end: Option<Instant>,
}

impl Search {
    /// A server that says it is no primary has carried out nothing: the request goes
    /// to the next, for as long as an answer may take. Any other failure is one.
    fn go_on(&mut self, shared: &Shared, wire: &Wire, failure: Failure) -> Result<(), StoreError> {
        match failure {
            Failure::Server(error) if super::refusal::is_elsewhere(&error) => {
                let limit = shared.target().response_timeout;
                if Instant::now() >= *self.end.get_or_insert_with(|| Instant::now() + limit) {
                    return Err(super::refusal::still_elsewhere(&error));
                }
                wire.leave();
                Ok(())
            }
            failure => Err(failure.error()),
        }
    }
}

/// Refuses what a string with an id cannot hold.
pub(super) fn check_claim(claim: &Claim) -> Result<(), StoreError> {
    let why = match claim.mode {
        Mode::SHARED => "its record has one holder, so there are no readers",
        Mode::Permits { .. } => "its record has one holder, so there are no permits",
        Mode::EXCLUSIVE if claim.secret.is_some() => {
            "its record names no owner who could enter again"
        }
        Mode::EXCLUSIVE if !claim.min_hold.is_zero() => "its record cannot outlive a release",
        Mode::EXCLUSIVE if claim.note.is_some() => "its record has no place for a note",
        Mode::EXCLUSIVE => return Ok(()),
    };
    Err(unsupported(why))
}

/// Refuses what a renewal cannot change.
pub(super) fn check_renew(renew: &Renew) -> Result<(), StoreError> {
    let why = if renew.rotate.is_some() {
        "its record has no place for a former id, so ids are not replaced and leases not handed over"
    } else if renew.downgrade {
        "its record has one holder, so there are no readers"
    } else if renew.note.is_some() {
        "its record has no place for a note"
    } else {
        return Ok(());
    };
    Err(unsupported(why))
}

/// What this layout can do, under that name.
pub(super) fn capabilities(name: &'static str) -> Capabilities {
    let mut can = Capabilities::queueing(name);
    can.queueing = false;
    can.push = false;
    can.tokens = false;
    can.owners = false;
    can.multi = false;
    can.exclusive_only = true;
    can
}

/// The time of day: what this layout takes for the time of a step.
fn wall() -> StoreTime {
    StoreTime(u64::try_from(clock::wall().as_micros()).unwrap_or(u64::MAX))
}

pub(super) fn standing(id: &str, deadline: StoreTime) -> Reply {
    Reply::Standing(Standing {
        arrival: arrival(id.as_bytes()),
        token: Some(Token::NONE),
        position: 0,
        deadline,
        blocked_until: None,
    })
}

impl ClassicStore {
    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        claim.mode.check()?;
        check_claim(claim)?;
        let (id, ttl, at) = (&claim.id, claim.lease_ttl, wall());
        let answer = |reply| Ok(Answer::new(reply, at, 0));
        let verb = match self.book.ask(key, id, ttl, clock::now()) {
            Known::Nothing => Verb::First,
            Known::Here => Verb::Claim,
            Known::Left => return answer(Reply::Gone),
        };
        let step = Step {
            verb,
            id: id.expose(),
            ttl,
        };
        match self.ask(key, step).await? {
            Outcome::Ours(_) if self.book.has_left(key, id) => {
                // It was released while it was asked for.
                let verb = Verb::Release;
                self.ask(key, Step { verb, ..step }).await?;
                answer(Reply::Gone)
            }
            Outcome::Ours(left) => answer(standing(id.expose(), deadline(at, left))),
            Outcome::Others(left) => {
                let blocked_until = deadline(at, left);
                answer(Reply::Busy { blocked_until })
            }
            Outcome::Taken => {
                self.book.forget(key, id);
                answer(Reply::Taken)
            }
            Outcome::Nobodys => answer(Reply::Gone),
        }
    }

    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        check_renew(renew)?;
        let at = wall();
        let step = Step {
            verb: Verb::Renew,
            id: renew.id.expose(),
            ttl: renew.ttl,
        };
        let reply = match self.ask(key, step).await? {
            Outcome::Ours(left) => standing(renew.id.expose(), deadline(at, left)),
            _ => {
                self.book.leave(key, &renew.id, clock::now());
                Reply::Gone
            }
        };
        Ok(Answer::new(reply, at, 0))
    }

    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        // Noted before it is sent: a claim under way must not come back.
        self.book.leave(key, &release.id, clock::now());
        let step = Step {
            verb: Verb::Release,
            id: release.id.expose(),
            ttl: Duration::ZERO,
        };
        let reply = match self.ask(key, step).await? {
            Outcome::Ours(_) => Reply::Released { held: true },
            _ => Reply::Absent,
        };
        Ok(Answer::new(reply, wall(), 0))
    }

    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError> {
        let step = Step {
            verb: Verb::Break,
            id: "",
            ttl: Duration::ZERO,
        };
        let held = matches!(self.ask(key, step).await?, Outcome::Ours(_));
        let reply = Reply::Broken {
            holders: held.into(),
            token: Token::NONE,
        };
        Ok(Answer::new(reply, wall(), 0))
    }
}

#[async_trait]
impl LockStore for ClassicStore {
    fn capabilities(&self) -> Capabilities {
        capabilities("redis classic")
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        match command {
            Command::Claim(claim) => self.claim(key, claim).await,
            Command::Renew(renew) => self.renew(key, renew).await,
            Command::Release(release) => self.release(key, release).await,
            Command::Break => self.break_key(key).await,
            Command::Resize { .. } => Err(unsupported(
                "its record has one holder, so there are no permits",
            )),
            Command::Watch { .. } => {
                Err(unsupported("its record has no place for those who watch"))
            }
            Command::Unheard { .. } | Command::Bury { .. } => Err(stores_own(command)),
        }
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(view(&self.found(key).await?, wall()))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let source = match &self.route {
            Route::One(shared, _) => Source::One(shared),
            Route::Cluster(cluster) => Source::Cluster(cluster),
        };
        Box::new(ClassicListing {
            store: self,
            allowed: check_pattern(self.prefix(), pattern),
            names: Names::new(source, self.prefix().to_owned(), pattern),
            pending: Vec::new(),
            named: SeenNames::default(),
        })
    }

    fn inbox(&self) -> &Inbox {
        match &self.route {
            Route::One(shared, _) => shared.inbox(),
            Route::Cluster(cluster) => cluster.inbox(),
        }
    }

    async fn listen(&self, _sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Err(unsupported("nobody is told when a lock is free"))
    }
}

/// A listing of the strings that are locks.
struct ClassicListing<'a> {
    store: &'a ClassicStore,
    /// Whether that pattern may be listed.
    allowed: Result<(), Invalid>,
    names: Names<'a>,
    /// Keys that were found and not looked into yet.
    pending: Vec<Key>,
    named: SeenNames,
}

#[async_trait]
impl Listing for ClassicListing<'_> {
    async fn next_page(&mut self) -> Result<Option<ListPage>, StoreError> {
        self.allowed.clone()?;
        if self.pending.is_empty() {
            let Some(names) = self.names.next().await? else {
                return Ok(None);
            };
            self.pending = names.iter().filter_map(|name| as_key(name).ok()).collect();
        }
        let looks = join_all(self.pending.iter().map(|key| self.store.found(key))).await;
        let mut found = Vec::new();
        for (key, look) in self.pending.iter().zip(looks) {
            match look {
                Ok(look) => found.push((key.clone(), view(&look, wall()))),
                // Whatever else has such a name is no lock of this layout.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        found.retain(|(key, seen)| is_listed(seen) && self.named.insert(key.as_str().as_bytes()));
        Ok(Some(ListPage {
            found,
            skipped: Vec::new(),
        }))
    }
}

impl fmt::Debug for ClassicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassicStore")
            .field("url", &self.redacted_url())
            .finish_non_exhaustive()
    }
}
