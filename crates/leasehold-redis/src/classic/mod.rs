//! The classic layout (`layout=classic`): locks as strings of `SET key id NX PX ttl`, shared with
//! other libraries, on one server, behind Sentinels or in a cluster.
//!
//! It has one holder, no queue, no pushes and no tokens. The value is the id of the holding
//! claim, and nothing else is stored. A step is a script that compares and writes the value. See
//! `docs/stores/classic.md`.

mod errors;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod look;
mod verb;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Capacity, Claim, Command, Inbox, Key, Mode, Release, Renew, Reply, Snapshot, Standing,
    StoreTime, Token,
};
use leasehold_store::{
    Answer, Capabilities, ErrorKind, Listening, Listing, LockStore, PushSink, StoreError, clock,
};

pub(super) use self::errors::{no_tokens, unsupported};
use self::look::{arrival, deadline};
pub(super) use self::look::{check_pattern, is_listed, view};
pub(super) use self::verb::{Found, Outcome, Step, Verb, look};
use super::options::{RedisLayout, RedisOptions};
use crate::claims::{ClaimTable, Known};
use crate::codec::stores_own;
use crate::connection::endpoint::Endpoint;
use crate::connection::step::Delivery;
use crate::routing::Route;
use crate::routing::cluster::RedisClusterOptions;
use crate::routing::names::{NamedKeys, Names};

/// A store whose locks are shared with other libraries, on one Redis or Valkey server, behind
/// Sentinels, or on a cluster. Cheap to share in an `Arc`. Its connections close when it is
/// dropped.
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
    claims: ClaimTable<(), ()>,
}

impl ClassicStore {
    /// Opens a store: connects, and checks the version and the role of the server.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect`](crate::RedisStore::connect); `Invalid` unless the options
    /// have [`RedisOptions::classic`].
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        options.check()?;
        check_layout(options.layout)?;
        Ok(Self::by(Route::open(Endpoint::new(&options)?).await?))
    }

    /// Opens a store on a cluster.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect_cluster`](crate::RedisStore::connect_cluster); `Invalid`
    /// unless the options have [`RedisOptions::classic`].
    pub async fn connect_cluster(options: RedisClusterOptions) -> Result<Self, StoreError> {
        options.check()?;
        check_layout(options.node.layout)?;
        Ok(Self::by(Route::open_cluster(options).await?))
    }

    fn by(route: Route) -> Self {
        Self {
            route,
            claims: ClaimTable::default(),
        }
    }

    /// Returns the URL of the server or cluster, without the password.
    #[must_use]
    pub fn redacted_url(&self) -> &str {
        self.route.redacted()
    }

    /// The primaries of a cluster.
    pub(super) fn nodes(&self) -> Vec<RedisOptions> {
        self.route.nodes()
    }

    fn prefix(&self) -> &str {
        &self.route.options().prefix
    }

    fn redis_key(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix())
    }

    async fn ask(&self, key: &Key, step: Step<'_>) -> Result<Outcome, StoreError> {
        let keys = [&*self.redis_key(key)];
        verb::read(&self.route.ask(Delivery::Plain, &step.call(&keys)).await?.0)
    }

    async fn found(&self, key: &Key) -> Result<Found, StoreError> {
        let keys = [&*self.redis_key(key)];
        verb::read_found(
            &self
                .route
                .ask(Delivery::Plain, &verb::look_at(&keys))
                .await?
                .0,
        )
    }
}

fn check_layout(layout: RedisLayout) -> Result<(), StoreError> {
    if layout == RedisLayout::Classic {
        return Ok(());
    }
    Err(StoreError::new(
        ErrorKind::Invalid,
        "the options are not for the classic layout",
    )
    .with_hint("call RedisOptions::classic, or add layout=classic to the URL"))
}

/// Refuses what a string with an id cannot hold.
pub(super) fn check_claim(claim: &Claim) -> Result<(), StoreError> {
    let why = if claim.mode.capacity() != Capacity::Lock {
        "its record stores one holder, so there are no permits"
    } else if claim.mode != Mode::EXCLUSIVE {
        "its record stores one holder, so there are no readers"
    } else if claim.secret.is_some() {
        "its record stores no owner, so there are no re-entrant locks"
    } else if !claim.min_hold.is_zero() {
        "a release deletes its record, so there is no minimum hold"
    } else if claim.note.is_some() {
        "its record cannot store a note"
    } else {
        return Ok(());
    };
    Err(unsupported(why))
}

/// Refuses what a renewal cannot change.
pub(super) fn check_renew(renew: &Renew) -> Result<(), StoreError> {
    let why = if renew.rotate.is_some() {
        "its record cannot store a former claim id, so there is no rotation and no hand-over"
    } else if renew.downgrade {
        "its record stores one holder, so there are no readers"
    } else if renew.note.is_some() {
        "its record cannot store a note"
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

/// The wall clock, used as the time of a step if no server reports one.
pub(super) fn wall() -> StoreTime {
    StoreTime(u64::try_from(clock::wall().as_micros()).unwrap_or(u64::MAX))
}

pub(super) fn standing(id: &str, deadline: StoreTime) -> Reply {
    Reply::Standing(Standing {
        arrival: arrival(id.as_bytes()),
        behind: None,
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
        let now = clock::now();
        let verb = match self.claims.put(key, id, (), now + ttl, now) {
            Known::Nothing => Verb::First,
            Known::Here(()) => Verb::Claim,
            Known::Left(()) => return answer(Reply::Gone),
        };
        let step = Step {
            verb,
            id: id.expose(),
            ttl,
        };
        match self.ask(key, step).await? {
            Outcome::Ours(_) if self.claims.look(key, id) == Known::Left(()) => {
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
                self.claims.forget(key, id);
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
                self.claims.leave(key, &renew.id, (), clock::now());
                Reply::Gone
            }
        };
        Ok(Answer::new(reply, at, 0))
    }

    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        // Noted before it is sent: a claim under way must not come back.
        self.claims.leave(key, &release.id, (), clock::now());
        let verb = match release.settled {
            true => Verb::Release,
            false => Verb::Withdraw,
        };
        let step = Step {
            verb,
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
            Command::Break { only: Some(_), .. } => Err(no_tokens()),
            Command::Break { .. } => self.break_key(key).await,
            Command::Resize { .. } => Err(unsupported(
                "its record stores one holder, so there are no permits",
            )),
            Command::Watch { .. } => Err(unsupported("its record cannot store who watches a key")),
            Command::Unheard { .. } | Command::Bury { .. } => Err(stores_own(command)),
        }
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(view(&self.found(key).await?, wall()))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let names = check_pattern(self.prefix(), pattern)
            .map(|()| Names::new(self.route.clone(), self.prefix().to_owned(), pattern));
        Box::new(NamedKeys::new(self, names))
    }

    fn inbox(&self) -> &Inbox {
        self.route.inbox()
    }

    async fn listen(&self, _sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Err(unsupported("it sends no message when a lock becomes free"))
    }
}

impl fmt::Debug for ClassicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassicStore")
            .field("url", &self.redacted_url())
            .finish_non_exhaustive()
    }
}
