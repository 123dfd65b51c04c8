//! A client in a test case: makes claims, and records the pushes of its inbox.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Arrival, BreakReply, Claim, ClaimId, ClaimReply, ClientInfo, Key, Mode, OwnerSecret, Release,
    ReleaseReply, Renew, RenewReply, Reply, ResizeReply, Snapshot, Standing, Token,
};
use tokio::sync::Notify;

use super::{Fixture, LONG, PUSH_LIMIT};
use crate::sync::{Mutex, lock};
use crate::{
    Answer, Capabilities, ErrorKind, Listening, LockStore, Push, PushSink, StoreError, Verbs as _,
};

/// How often a request that too few of a quorum have answered is repeated.
const TRIES: usize = 20;

/// The release of a claim that held.
pub(super) const RELEASED: ReleaseReply = ReleaseReply::Released { held: true };

/// A client at one key, with an open inbox where there are pushes.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) key: Key,
    pub(super) store: Arc<dyn LockStore>,
    inbox: Rc<RefCell<Option<Box<dyn Listening>>>>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    pushes: Mutex<VecDeque<Push>>,
    came: Notify,
}

impl PushSink for Heard {
    fn push(&self, push: Push) {
        lock(&self.pushes).push_back(push);
        self.came.notify_one();
    }
}

/// So many clients at the key `k`.
pub(super) async fn scene<const N: usize>(fixture: &dyn Fixture) -> [Actor; N] {
    let mut actors = Vec::with_capacity(N);
    for _ in 0..N {
        actors.push(Actor::of(fixture.client().await).await);
    }
    actors.try_into().ok().expect("as many as were made")
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("a good key")
}

pub(super) fn id(number: u128) -> ClaimId {
    ClaimId::from_random(number)
}

/// The standing in a reply that must be one.
pub(super) fn stands(reply: impl Into<Reply>) -> Standing {
    match reply.into() {
        Reply::Standing(standing) => standing,
        other => panic!("{other:?} where a standing was due"),
    }
}

/// The reply of a store that must answer.
#[track_caller]
fn replied<R>(answer: Result<Answer<R>, StoreError>) -> R {
    answer.expect("the store answers").reply
}

// ---- what a client may ask for ----

/// What a client asks for: a claim, or the number of an exclusive one.
pub(super) trait Wanted: Sized {
    fn claim(self) -> Claim;

    /// The claim with a change.
    fn with(self, change: impl FnOnce(&mut Claim)) -> Claim {
        let mut claim = self.claim();
        change(&mut claim);
        claim
    }
}

impl Wanted for Claim {
    fn claim(self) -> Claim {
        self
    }
}

/// An exclusive claim that outlives the case.
impl Wanted for u128 {
    fn claim(self) -> Claim {
        Claim {
            waiter_ttl: LONG,
            owner: ClientInfo::new("host", 7, Some("case")),
            ..Claim::new(id(self), Mode::EXCLUSIVE, LONG)
        }
    }
}

/// A claim that does not wait.
pub(super) fn trying(claim: impl Wanted) -> Claim {
    claim.with(|it| it.wait = false)
}

pub(super) fn shared(number: u128) -> Claim {
    number.with(|it| it.mode = Mode::SHARED)
}

pub(super) fn permits(number: u128, take: u32, of: u32) -> Claim {
    number.with(|it| it.mode = Mode::permits(of, take))
}

/// A re-entrant claim of the owner with that secret.
pub(super) fn owned(number: u128, secret: u128) -> Claim {
    number.with(|it| it.secret = Some(OwnerSecret::from_random(secret)))
}

/// A claim that expires soon when it holds.
pub(super) fn brief(number: u128, fixture: &dyn Fixture) -> Claim {
    number.with(|it| it.lease_ttl = fixture.short())
}

/// A claim with a minimum hold.
pub(super) fn kept(number: u128, min_hold: Duration) -> Claim {
    number.with(|it| it.min_hold = min_hold)
}

/// A long renewal with a change.
pub(super) fn renewing(number: u128, change: impl FnOnce(&mut Renew)) -> Renew {
    let mut renew = Renew::new(id(number), LONG);
    change(&mut renew);
    renew
}

/// A fair release of a claim that may come again.
pub(super) fn leaving(number: u128) -> Release {
    Release {
        id: id(number),
        hand_off: true,
        settled: false,
        unused: false,
    }
}

impl Actor {
    pub(super) async fn of(store: Arc<dyn LockStore>) -> Self {
        let heard = Arc::<Heard>::default();
        let mut inbox = None;
        if store.capabilities().push {
            let opened = store.listen(heard.clone()).await;
            inbox = Some(opened.expect("the inbox opens"));
        }
        Self {
            key: key("k"),
            store,
            inbox: Rc::new(RefCell::new(inbox)),
            heard,
        }
    }

    /// The same client at another key.
    pub(super) fn at(&self, name: &str) -> Self {
        Self {
            key: key(name),
            ..self.clone()
        }
    }

    // ---- asking ----

    /// The claim as this client sends it.
    pub(super) fn want(&self, claim: impl Wanted) -> Claim {
        claim.with(|it| it.inbox = Some(self.store.inbox().clone()))
    }

    pub(super) async fn ask(&self, claim: impl Wanted) -> Answer<ClaimReply> {
        let claim = self.want(claim);
        self.answered(|| self.store.claim(&self.key, &claim)).await
    }

    pub(super) async fn granted(&self, claim: impl Wanted) -> (Arrival, Token) {
        let standing = stands(self.ask(claim).await.reply);
        (standing.arrival, standing.token.expect("it is granted"))
    }

    pub(super) async fn waiting(&self, claim: impl Wanted) -> Standing {
        let standing = stands(self.ask(claim).await.reply);
        assert_eq!(standing.token, None, "it waits");
        standing
    }

    /// Where there is a queue: waits. Its place in the order of arrival.
    pub(super) async fn waits_in_queue(&self, claim: impl Wanted) -> Option<Arrival> {
        match self.can().queueing {
            true => Some(self.waiting(claim).await.arrival),
            false => None,
        }
    }

    pub(super) async fn renew(&self, number: u128, ttl: Duration) -> RenewReply {
        self.change(&Renew::new(id(number), ttl)).await
    }

    pub(super) async fn change(&self, renew: &Renew) -> RenewReply {
        let answer = self.answered(|| self.store.renew(&self.key, renew)).await;
        answer.reply
    }

    pub(super) async fn release(&self, number: u128) -> ReleaseReply {
        self.leave(&leaving(number)).await
    }

    pub(super) async fn leave(&self, release: &Release) -> ReleaseReply {
        replied(self.store.release(&self.key, release).await)
    }

    pub(super) async fn resize(&self, from: u32, to: u32) -> ResizeReply {
        replied(self.store.resize(&self.key, from, to).await)
    }

    pub(super) async fn watch(&self, ttl: Duration) {
        replied(self.store.watch(&self.key, ttl).await);
    }

    /// Breaks the key, or only the grant with that token: how many held, and the token of the break.
    pub(super) async fn breaks(&self, only: Option<Token>) -> (u64, Token) {
        let by = ClientInfo::new("ops", 1, None);
        let BreakReply::Broken { holders, token } = replied(match only {
            None => self.store.break_key(&self.key, &by).await,
            Some(token) => self.store.break_grant(&self.key, token, &by).await,
        });
        (holders, token)
    }

    pub(super) async fn look(&self) -> Snapshot {
        self.store.inspect(&self.key).await.expect("a look")
    }

    /// The tokens of those who hold.
    pub(super) async fn held(&self) -> Vec<Token> {
        let holders = self.look().await.holders;
        holders.iter().map(|holder| holder.token).collect()
    }

    /// The answer of a store; of a quorum, the first that there is: a machine that is busy enough
    /// lets servers be late, and what is asked here finds what was done before.
    pub(super) async fn answered<A>(
        &self,
        mut ask: impl AsyncFnMut() -> Result<A, StoreError>,
    ) -> A {
        for _ in 0..TRIES {
            match ask().await {
                Err(error) if error.kind() == ErrorKind::Unavailable && !self.can().queueing => {}
                answer => return answer.expect("the store answers"),
            }
        }
        ask().await.expect("the store answers in the end")
    }

    // ---- hearing ----

    /// What the store can do. Where there are no fencing tokens, the token of a grant is none.
    pub(super) fn can(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Whether `later` is the token of a later grant than `earlier`, as far as it tells.
    pub(super) fn rises(&self, earlier: Token, later: Token) -> bool {
        match self.can().tokens {
            true => later > earlier,
            false => earlier.is_none() && later.is_none(),
        }
    }

    pub(super) fn close_inbox(&self) {
        self.inbox.take();
    }

    /// The next push but those about the connection, which carry no news.
    pub(super) async fn hears(&self) -> Push {
        let next = async {
            loop {
                let push = lock(&self.heard.pushes).pop_front();
                match push {
                    Some(Push::Disconnected | Push::Reset) => {}
                    Some(push) => return push,
                    None => self.heard.came.notified().await,
                }
            }
        };
        let next = tokio::time::timeout(PUSH_LIMIT, next).await;
        next.expect("a push comes")
    }

    /// Where there are pushes: the next grant that is heard of is that claim's. Its token.
    pub(super) async fn hears_grant(&self, of: Arrival) -> Option<Token> {
        while self.can().push {
            if let Push::Granted { arrival, token, .. } = self.hears().await {
                assert_eq!(arrival, of);
                return Some(token);
            }
        }
        None
    }

    /// Where there are pushes: skips others until one comes of that claim, proved by its id.
    pub(super) async fn hears_of(&self, of: Arrival, number: u128, is: impl Fn(&Push) -> bool) {
        let (of, id) = (Some((&self.key, of)), id(number));
        let wanted = |push: &Push| is(push) && push.claim() == of && push.is_proved_by(&id);
        while self.can().push && !wanted(&self.hears().await) {}
    }

    /// Whether a grant was heard of that nobody waited for.
    pub(super) fn has_heard_of_a_grant(&self) -> bool {
        let is_grant = |push: &Push| matches!(push, Push::Granted { .. });
        lock(&self.heard.pushes).iter().any(is_grant)
    }
}
