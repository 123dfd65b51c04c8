//! A client in a test case: makes claims, and records the pushes of its inbox.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Answer, Listening, LockStore, Push, PushSink, Verbs as _};
use crate::{ErrorKind, StoreError};
use leasehold_core::{
    Arrival, Claim, ClaimId, ClaimReply, ClientInfo, Key, Mode, OwnerSecret, Release, ReleaseReply,
    Renew, RenewReply, Reply, ResizeReply, Snapshot, Standing, Token,
};
use tokio::sync::Notify;

use super::{Fixture, LONG, PUSH_LIMIT};

/// How often a request that too few of a quorum have answered is repeated.
const TRIES: usize = 20;

/// A client whose inbox is open, where there are pushes.
pub(super) struct Actor {
    pub(super) store: Arc<dyn LockStore>,
    pub(super) inbox: Option<Box<dyn Listening>>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    pushes: Mutex<VecDeque<Push>>,
    came: Notify,
}

impl Heard {
    fn pushes(&self) -> MutexGuard<'_, VecDeque<Push>> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PushSink for Heard {
    fn push(&self, push: Push) {
        self.pushes().push_back(push);
        self.came.notify_one();
    }
}

/// Whether claims wait in a queue. A store without one answers them `Busy`, and a
/// case about waiting is not for it.
pub(super) async fn keeps_a_queue(fixture: &dyn Fixture) -> bool {
    fixture.client().await.capabilities().queueing
}

/// Whether there is more than plain exclusive claims.
pub(super) async fn knows_all_kinds(fixture: &dyn Fixture) -> bool {
    !fixture.client().await.capabilities().exclusive_only
}

/// So many clients, and a key.
pub(super) async fn scene<const N: usize>(fixture: &dyn Fixture) -> ([Actor; N], Key) {
    let mut actors = Vec::with_capacity(N);
    for _ in 0..N {
        actors.push(Actor::new(fixture).await);
    }
    let actors = actors.try_into().ok().expect("as many as were made");
    (actors, key("k"))
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

impl Actor {
    pub(super) async fn new(fixture: &dyn Fixture) -> Self {
        Self::of(fixture.client().await).await
    }

    /// One that keeps an audit log, where the store can.
    pub(super) async fn audited(fixture: &dyn Fixture) -> Self {
        Self::of(fixture.audited().await).await
    }

    async fn of(store: Arc<dyn LockStore>) -> Self {
        let heard = Arc::<Heard>::default();
        let mut inbox = None;
        if store.capabilities().push {
            let opened = store.listen(heard.clone()).await;
            inbox = Some(opened.expect("the inbox opens"));
        }
        Self {
            store,
            inbox,
            heard,
        }
    }

    // ---- what it may ask for ----

    /// An exclusive claim that outlives the case.
    pub(super) fn want(&self, number: u128) -> Claim {
        Claim {
            waiter_ttl: LONG,
            inbox: Some(self.store.inbox().clone()),
            owner: ClientInfo::new("host", 7, Some("case")),
            ..Claim::new(id(number), Mode::EXCLUSIVE, LONG)
        }
    }

    pub(super) fn want_shared(&self, number: u128) -> Claim {
        Claim {
            mode: Mode::SHARED,
            ..self.want(number)
        }
    }

    pub(super) fn want_permits(&self, number: u128, take: u32, of: u32) -> Claim {
        Claim {
            mode: Mode::permits(of, take),
            ..self.want(number)
        }
    }

    /// A re-entrant claim of the owner with that secret.
    pub(super) fn want_as(&self, number: u128, secret: u128) -> Claim {
        Claim {
            secret: Some(OwnerSecret::from_random(secret)),
            ..self.want(number)
        }
    }

    // ---- asking ----

    pub(super) async fn ask(&self, key: &Key, claim: &Claim) -> Answer<ClaimReply> {
        self.answered(|| self.store.claim(key, claim))
            .await
            .expect("the store answers a claim")
    }

    pub(super) async fn standing(&self, key: &Key, claim: &Claim) -> Standing {
        stands(self.ask(key, claim).await.reply)
    }

    pub(super) async fn granted(&self, key: &Key, claim: &Claim) -> (Arrival, Token) {
        let standing = self.standing(key, claim).await;
        (standing.arrival, standing.token.expect("it is granted"))
    }

    pub(super) async fn waiting(&self, key: &Key, claim: &Claim) -> Standing {
        let standing = self.standing(key, claim).await;
        assert_eq!(standing.token, None, "it waits");
        standing
    }

    pub(super) async fn renew(&self, key: &Key, claim: &Claim, ttl: Duration) -> RenewReply {
        self.change(key, &Renew::new(claim.id.clone(), ttl)).await
    }

    pub(super) async fn change(&self, key: &Key, renew: &Renew) -> RenewReply {
        self.answered(|| self.store.renew(key, renew))
            .await
            .expect("the store answers a renewal")
            .reply
    }

    /// The release of a claim, fair and of one that may come again.
    pub(super) fn leaving(&self, claim: &Claim) -> Release {
        Release {
            id: claim.id.clone(),
            hand_off: true,
            settled: false,
            unused: false,
        }
    }

    pub(super) async fn release(&self, key: &Key, claim: &Claim) -> ReleaseReply {
        self.store
            .release(key, &self.leaving(claim))
            .await
            .expect("the store answers a release")
            .reply
    }

    pub(super) async fn resize(&self, key: &Key, from: u32, to: u32) -> ResizeReply {
        self.store
            .resize(key, from, to)
            .await
            .expect("the store answers a resize")
            .reply
    }

    pub(super) async fn watch(&self, key: &Key, ttl: Duration) {
        let answer = self.store.watch(key, ttl).await;
        answer.expect("the store answers a watch");
    }

    pub(super) async fn look(&self, key: &Key) -> Snapshot {
        self.store.inspect(key).await.expect("a look")
    }

    /// The answer of a store; of a quorum, the first that there is: a machine that is busy enough
    /// lets servers be late, and both verbs find what was done before.
    async fn answered<R, F>(&self, ask: impl Fn() -> F) -> Result<Answer<R>, StoreError>
    where
        F: Future<Output = Result<Answer<R>, StoreError>>,
    {
        for _ in 0..TRIES {
            match ask().await {
                Err(error) if error.kind() == ErrorKind::Unavailable && !self.queues() => {}
                answer => return answer,
            }
        }
        ask().await
    }

    // ---- hearing ----

    pub(super) fn queues(&self) -> bool {
        self.store.capabilities().queueing
    }

    /// Whether there are fencing tokens, which every grant raises. Without them the
    /// token of a grant is none.
    pub(super) fn has_tokens(&self) -> bool {
        self.store.capabilities().tokens
    }

    /// Whether `later` is the token of a later grant than `earlier`, as far as it tells.
    pub(super) fn rises(&self, earlier: Token, later: Token) -> bool {
        if self.has_tokens() {
            later > earlier
        } else {
            earlier.is_none() && later.is_none()
        }
    }

    pub(super) fn is_pushed_to(&self) -> bool {
        self.store.capabilities().push
    }

    /// The next push but those about the connection, which carry no news.
    pub(super) async fn hears(&self) -> Push {
        let next = async {
            loop {
                let push = self.heard.pushes().pop_front();
                match push {
                    Some(Push::Disconnected | Push::Reset) => {}
                    Some(push) => return push,
                    None => self.heard.came.notified().await,
                }
            }
        };
        tokio::time::timeout(PUSH_LIMIT, next)
            .await
            .expect("a push comes")
    }

    pub(super) async fn hears_grant(&self) -> (Arrival, Token) {
        loop {
            if let Push::Granted { arrival, token, .. } = self.hears().await {
                return (arrival, token);
            }
        }
    }

    /// Skips other pushes until that one comes.
    pub(super) async fn hears_this(&self, wanted: impl Fn(&Push) -> bool) {
        while !wanted(&self.hears().await) {}
    }

    pub(super) fn has_heard(&self, wanted: impl Fn(&Push) -> bool) -> bool {
        self.heard.pushes().iter().any(wanted)
    }
}
