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

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{
    Capacity, Claim, ClaimId, Command, Inbox, Key, Mode, Renew, Reply, Snapshot, Standing,
    StoreTime, Token, Void, Voided,
};
use leasehold_store::{
    Answer, Capabilities, Listening, Listing, LockStore, PushSink, StoreError, clock,
};

pub(super) use self::errors::{no_tokens, unsupported};
use self::look::{arrival, check_pattern, deadline, view};
use self::verb::{Found, LOOK, Outcome, STEP, Verb, millis};
use super::options::{RedisLayout, RedisOptions};
use crate::claim_table::{ClaimTable, Known};
use crate::codec::script::Request;
use crate::codec::stores_own;
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
    /// Of its own claims nothing is noted: the value of the key is the id.
    claims: ClaimTable<Known<()>>,
}

impl ClassicStore {
    /// Opens a store: connects, and checks the version and the role of the server.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect`](crate::RedisStore::connect); `Invalid` unless the options
    /// have [`RedisOptions::classic`].
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        Ok(Self::by(Route::open(&options, RedisLayout::Classic).await?))
    }

    /// Opens a store on a cluster.
    ///
    /// # Errors
    /// Same as [`RedisStore::connect_cluster`](crate::RedisStore::connect_cluster); `Invalid`
    /// unless the options have [`RedisOptions::classic`].
    pub async fn connect_cluster(options: RedisClusterOptions) -> Result<Self, StoreError> {
        let route = Route::open_cluster(options, RedisLayout::Classic);
        Ok(Self::by(route.await?))
    }

    /// The same for a server that is reached so.
    pub(super) fn by(route: Route) -> Self {
        let claims = ClaimTable::default();
        Self { route, claims }
    }

    /// Returns the URL of the server or cluster, without the password.
    #[must_use]
    pub fn redacted_url(&self) -> &str {
        self.route.redacted()
    }

    fn redis_key(&self, key: &Key) -> String {
        format!("{}{key}", self.route.prefix())
    }

    /// Takes a step; `ttl`: in milliseconds.
    async fn ask(&self, key: &Key, verb: Verb, id: &str, ttl: u64) -> Result<Outcome, StoreError> {
        let (key, ttl) = (&self.redis_key(key), ttl.to_string());
        let step = Request::Call {
            script: &STEP,
            key,
            arguments: &[verb.name, id, &ttl].map(str::as_bytes),
            last: verb.last,
        };
        verb::read(&self.route.read(&step).await?)
    }

    async fn found(&self, key: &Key) -> Result<Found, StoreError> {
        let key = self.redis_key(key);
        let look = Request::call(&LOOK, &key, &[]);
        verb::read_found(&self.route.read(&look).await?)
    }

    async fn claim(&self, key: &Key, claim: &Claim, at: StoreTime) -> Result<Reply, StoreError> {
        claim.mode.check()?;
        check_claim(claim)?;
        let (id, ttl, now) = (&claim.id, claim.lease_ttl, clock::now());
        let known = |known: Option<&Known<()>>| known.copied().unwrap_or(Known::Here(()));
        let verb = match self.claims.note((key, id), (now + ttl, now), known) {
            None => Verb::FIRST,
            Some(Known::Here(())) => Verb::CLAIM,
            Some(Known::Left) => return Ok(Reply::Gone),
        };
        Ok(match self.ask(key, verb, id.expose(), millis(ttl)).await? {
            Outcome::Ours(_) if matches!(self.claims.get(key, id), Some((Known::Left, _))) => {
                // It was released while it was asked for.
                self.ask(key, Verb::RELEASE, id.expose(), 0).await?;
                Reply::Gone
            }
            Outcome::Ours(left) => Reply::Standing(standing(id.expose(), deadline(at, left))),
            Outcome::Others(left) => Reply::Busy {
                blocked_until: deadline(at, left),
            },
            Outcome::Taken => {
                self.claims.remove(key, id);
                Reply::Taken
            }
            Outcome::Nobodys => Reply::Gone,
        })
    }

    async fn renew(&self, key: &Key, renew: &Renew, at: StoreTime) -> Result<Reply, StoreError> {
        check_renew(renew)?;
        self.route.ready_for(renew).await?;
        let (id, ttl) = (&renew.id, millis(renew.ttl));
        Ok(match self.ask(key, Verb::RENEW, id.expose(), ttl).await? {
            Outcome::Ours(left) => Reply::Standing(standing(id.expose(), deadline(at, left))),
            _ => {
                self.note_left(key, id);
                Reply::Gone
            }
        })
    }

    async fn release(&self, key: &Key, id: &ClaimId, verb: Verb) -> Result<Reply, StoreError> {
        Ok(match self.ask(key, verb, id.expose(), 0).await? {
            Outcome::Ours(_) => Reply::Released { held: true },
            _ => Reply::Absent,
        })
    }

    async fn break_key(&self, key: &Key) -> Result<Reply, StoreError> {
        let broken = self.ask(key, Verb::BREAK, "", 0).await?;
        let (holders, token) = (matches!(broken, Outcome::Ours(_)).into(), Token::NONE);
        Ok(Reply::Broken { holders, token })
    }

    /// As a member of a set is asked. A vote that is only taken back may be asked for again.
    async fn void(&self, key: &Key, void: &Void) -> Result<Reply, StoreError> {
        match &void.whose {
            Voided::Key { .. } => self.break_key(key).await,
            Voided::Claim { id, released: true } => {
                self.note_left(key, id);
                self.release(key, id, Verb::RELEASE).await
            }
            Voided::Claim { id, .. } => {
                self.claims.remove(key, id);
                self.release(key, id, Verb::WITHDRAW).await
            }
        }
    }

    fn note_left(&self, key: &Key, id: &ClaimId) {
        let now = clock::now();
        self.claims.note((key, id), (now, now), |_| Known::Left);
    }
}

/// Refuses what a string with an id cannot hold.
pub(super) fn check_claim(claim: &Claim) -> Result<(), StoreError> {
    refuse([
        (claim.mode.capacity() != Capacity::Lock, NO_PERMITS),
        (claim.mode != Mode::EXCLUSIVE, NO_READERS),
        (claim.secret.is_some(), NO_OWNERS),
        (!claim.min_hold.is_zero(), NO_MINIMUM),
        (claim.note.is_some(), NO_NOTES),
    ])
}

/// Refuses what a renewal cannot change.
pub(super) fn check_renew(renew: &Renew) -> Result<(), StoreError> {
    refuse([
        (renew.rotate.is_some(), NO_ROTATION),
        (renew.downgrade, NO_READERS),
        (renew.note.is_some(), NO_NOTES),
    ])
}

const NO_PERMITS: &str = "its record stores one holder, so there are no permits";
const NO_READERS: &str = "its record stores one holder, so there are no readers";
const NO_NOTES: &str = "its record cannot store a note";
const NO_WATCHERS: &str = "its record cannot store who watches a key";
const NO_OWNERS: &str = "its record stores no owner, so there are no re-entrant locks";
const NO_MINIMUM: &str = "a release deletes its record, so there is no minimum hold";
const NO_ROTATION: &str =
    "its record cannot store a former claim id, so there is no rotation and no hand-over";

fn refuse<const N: usize>(asked: [(bool, &str); N]) -> Result<(), StoreError> {
    let first = asked.into_iter().find(|(is_asked, _)| *is_asked);
    first.map_or(Ok(()), |(_, why)| Err(unsupported(why)))
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

pub(super) fn standing(id: &str, deadline: StoreTime) -> Standing {
    Standing {
        arrival: arrival(id.as_bytes()),
        behind: None,
        token: Some(Token::NONE),
        position: 0,
        deadline,
        blocked_until: None,
    }
}

#[async_trait]
impl LockStore for ClassicStore {
    fn capabilities(&self) -> Capabilities {
        capabilities("redis classic")
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let at = wall();
        let reply = match command {
            Command::Claim(claim) => self.claim(key, claim, at).await?,
            Command::Renew(renew) => self.renew(key, renew, at).await?,
            Command::Release(release) => {
                // Noted before it is sent: a claim under way must not come back.
                self.note_left(key, &release.id);
                let verb = match release.settled {
                    true => Verb::RELEASE,
                    false => Verb::WITHDRAW,
                };
                self.release(key, &release.id, verb).await?
            }
            Command::Void(void) => self.void(key, void).await?,
            Command::Break { only: Some(_), .. } => return Err(no_tokens()),
            Command::Break { .. } => self.break_key(key).await?,
            Command::Resize { .. } => return Err(unsupported(NO_PERMITS)),
            Command::Watch { .. } => return Err(unsupported(NO_WATCHERS)),
            Command::Unheard { .. } | Command::Bury { .. } => return Err(stores_own(command)),
        };
        Ok(Answer::new(reply, at, 0))
    }

    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(view(&self.found(key).await?, wall()))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let names = check_pattern(self.route.prefix(), pattern)
            .map(|()| Names::new(self.route.clone(), self.route.prefix().to_owned(), pattern));
        Box::new(NamedKeys::new(self, names))
    }

    fn inbox(&self) -> &Inbox {
        self.route.inbox()
    }

    async fn listen(&self, _sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        Err(unsupported("it sends no message when a lock becomes free"))
    }
}
