//! What every store must do: each case is a bullet of the contract in
//! `leasehold::store::LockStore`.
//!
//! A store's whole test file is a [`Fixture`] and one line:
//!
//! ```text
//! leasehold_testkit::conformance!(MyFixture::start().await);
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{
    Arrival, Capacity, Claim, ClaimId, Key, Mode, Owner, Release, Renew, Reply, Standing, Token,
};
use leasehold::store::{Answer, Listening, LockStore, Push, PushSink};
use tokio::sync::Notify;

/// A store under test, fresh for each case.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Another client of the same store.
    async fn client(&self) -> Arc<dyn LockStore>;

    /// Lets the store's time pass: by hand where that is possible, else by waiting.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// How long a push may take on a busy machine before a case fails.
const PUSH_LIMIT: Duration = Duration::from_secs(10);

/// Long enough to outlive any case.
const LONG: Duration = Duration::from_secs(60);

/// Short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

/// One client in a case: makes claims, and keeps what its inbox heard.
struct Actor {
    store: Arc<dyn LockStore>,
    heard: Arc<Heard>,
    inbox: Option<Box<dyn Listening>>,
}

#[derive(Default)]
struct Heard {
    pushes: Mutex<VecDeque<Push>>,
    came: Notify,
}

impl PushSink for Heard {
    fn push(&self, push: Push) {
        self.pushes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(push);
        self.came.notify_one();
    }
}

impl Actor {
    async fn deaf(fixture: &dyn Fixture) -> Self {
        Self {
            store: fixture.client().await,
            heard: Arc::default(),
            inbox: None,
        }
    }

    async fn new(fixture: &dyn Fixture) -> Self {
        let mut actor = Self::deaf(fixture).await;
        let sink = actor.heard.clone();
        actor.inbox = Some(actor.store.listen(sink).await.expect("the inbox opens"));
        actor
    }

    fn want(&self, id: u128) -> Claim {
        Claim {
            waiter_ttl: LONG,
            inbox: Some(self.store.inbox().clone()),
            owner: Owner::new("host", 7, Some("case")),
            ..Claim::new(ClaimId::from_random(id), Mode::Exclusive, LONG)
        }
    }

    async fn ask(&self, key: &Key, claim: &Claim) -> Answer {
        self.store
            .claim(key, claim)
            .await
            .expect("the store answers a claim")
    }

    async fn standing(&self, key: &Key, claim: &Claim) -> Standing {
        match self.ask(key, claim).await.reply {
            Reply::Standing(standing) => standing,
            other => panic!("{other:?} where a standing was due"),
        }
    }

    async fn granted(&self, key: &Key, claim: &Claim) -> (Arrival, Token) {
        let standing = self.standing(key, claim).await;
        (standing.arrival, standing.token.expect("it is granted"))
    }

    async fn waiting(&self, key: &Key, claim: &Claim) -> Standing {
        let standing = self.standing(key, claim).await;
        assert_eq!(standing.token, None, "it waits");
        standing
    }

    async fn renew(&self, key: &Key, claim: &Claim, ttl: Duration) -> Reply {
        let renew = Renew::new(claim.id.clone(), ttl);
        self.store
            .renew(key, &renew)
            .await
            .expect("the store answers a renewal")
            .reply
    }

    async fn release(&self, key: &Key, claim: &Claim) -> Reply {
        let release = Release {
            id: claim.id.clone(),
            hand_off: true,
            settled: false,
        };
        self.store
            .release(key, &release)
            .await
            .expect("the store answers a release")
            .reply
    }

    /// The next push but resets, which carry no news.
    async fn hears(&self) -> Push {
        let next = async {
            loop {
                let push = self
                    .heard
                    .pushes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front();
                match push {
                    Some(Push::Reset) => {}
                    Some(push) => return push,
                    None => self.heard.came.notified().await,
                }
            }
        };
        tokio::time::timeout(PUSH_LIMIT, next)
            .await
            .expect("a push comes")
    }

    async fn hears_grant(&self) -> (Arrival, Token) {
        loop {
            if let Push::Granted { arrival, token, .. } = self.hears().await {
                return (arrival, token);
            }
        }
    }

    fn has_heard(&self, wanted: impl Fn(&Push) -> bool) -> bool {
        self.heard
            .pushes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(wanted)
    }
}

fn key(name: &str) -> Key {
    Key::new(name).expect("a good key")
}

/// A free key is granted with a token above zero, at once.
pub async fn claim_free_key_is_granted(fixture: &dyn Fixture) {
    let a = Actor::new(fixture).await;
    for name in [
        "k",
        "with space",
        "{tag}x",
        "}odd{",
        "emoji 🔒",
        "a:b/c*?[d]",
        &"x".repeat(512),
    ] {
        let key = key(name);
        let (_, token) = a.granted(&key, &a.want(1)).await;
        assert!(token > Token(0), "{name}");
        assert_eq!(
            a.release(&key, &a.want(1)).await,
            Reply::Released { held: true },
            "{name}"
        );
    }
}

/// A held key makes a claim wait, or answers `Busy` and keeps nothing of it.
pub async fn claim_held_key_waits_or_is_busy(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(1)).await;
    let trying = Claim {
        wait: false,
        ..b.want(2)
    };
    let busy = b.ask(&key, &trying).await;
    assert!(matches!(busy.reply, Reply::Busy { blocked_until } if blocked_until >= busy.at));
    assert_eq!(b.renew(&key, &trying, LONG).await, Reply::Gone);
    let waiting = b.waiting(&key, &b.want(3)).await;
    assert_eq!(waiting.position, 1);
    assert_eq!(b.waiting(&key, &b.want(4)).await.position, 2);
}

/// The same id finds the same claim: same arrival, same token, never twice.
pub async fn claim_again_finds_itself(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let first = a.granted(&key, &a.want(1)).await;
    assert_eq!(a.granted(&key, &a.want(1)).await, first);
    let waiting = b.waiting(&key, &b.want(2)).await;
    assert_eq!(b.waiting(&key, &b.want(2)).await.arrival, waiting.arrival);
    a.release(&key, &a.want(1)).await;
    let (arrival, _) = b.granted(&key, &b.want(2)).await;
    assert_eq!(arrival, waiting.arrival);
    b.release(&key, &b.want(2)).await;
    let look = b.store.inspect(&key).await.expect("a look");
    assert!(look.holders.is_empty() && look.waiters.is_empty());
}

/// A released id stays released, also one that was never there.
pub async fn claim_after_release_is_gone(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    a.granted(&key, &a.want(1)).await;
    a.release(&key, &a.want(1)).await;
    assert_eq!(a.ask(&key, &a.want(1)).await.reply, Reply::Gone);
    assert_eq!(a.release(&key, &a.want(2)).await, Reply::Absent);
    assert_eq!(a.ask(&key, &a.want(2)).await.reply, Reply::Gone);
    a.granted(&key, &a.want(3)).await;
}

/// First come, first served.
pub async fn claims_are_granted_in_order(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(0)).await;
    let mut arrivals = Vec::new();
    for id in 1..=6 {
        let actor = if id % 2 == 0 { &a } else { &b };
        arrivals.push(actor.waiting(&key, &actor.want(id)).await.arrival);
    }
    assert!(arrivals.is_sorted_by(|x, y| x < y), "{arrivals:?}");
    for id in 0..6 {
        let (actor, next) = if id % 2 == 0 { (&a, &b) } else { (&b, &a) };
        actor.release(&key, &actor.want(id)).await;
        let (arrival, _) = next.granted(&key, &next.want(id + 1)).await;
        assert_eq!(
            Some(&arrival),
            arrivals.get(usize::try_from(id).expect("small"))
        );
    }
}

/// A key in use is of one kind; idle again, it may become another.
pub async fn claim_of_other_capacity_is_mismatch(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    let permits = |id| Claim {
        mode: Mode::Permits { of: 3, take: 1 },
        ..a.want(id)
    };
    a.granted(&key, &a.want(1)).await;
    let reply = a.ask(&key, &permits(2)).await.reply;
    assert_eq!(
        reply,
        Reply::Mismatch {
            in_use: Capacity::Lock
        }
    );
    a.release(&key, &a.want(1)).await;
    for id in 3..6 {
        a.granted(&key, &permits(id)).await;
    }
    a.waiting(&key, &permits(6)).await;
    let reply = a.ask(&key, &a.want(7)).await.reply;
    assert_eq!(
        reply,
        Reply::Mismatch {
            in_use: Capacity::Permits(3)
        }
    );
}

/// An unfair claim takes what is vacant ahead of those who wait.
pub async fn claim_ahead_passes_waiters(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    let vacate = Release {
        id: a.want(1).id,
        hand_off: false,
        settled: false,
    };
    let reply = a
        .store
        .release(&key, &vacate)
        .await
        .expect("an answer")
        .reply;
    assert_eq!(reply, Reply::Released { held: true });
    a.granted(
        &key,
        &Claim {
            ahead: true,
            ..a.want(3)
        },
    )
    .await;
    b.waiting(&key, &b.want(2)).await;
    a.release(&key, &a.want(3)).await;
    b.granted(&key, &b.want(2)).await;
}

/// Nobody waits behind the dead: a holder that has lapsed is passed.
pub async fn lapsed_holder_is_passed(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let brief = Claim {
        lease_ttl: SHORT,
        ..a.want(1)
    };
    let (_, first) = a.granted(&key, &brief).await;
    b.waiting(&key, &b.want(2)).await;
    fixture.pass(SHORT + SHORT).await;
    let (_, second) = b.granted(&key, &b.want(2)).await;
    assert!(second > first);
    assert_eq!(a.renew(&key, &brief, LONG).await, Reply::Gone);
    assert_eq!(a.release(&key, &brief).await, Reply::Absent);
}

/// Tokens strictly increase in the order of grants.
pub async fn tokens_strictly_increase(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let mut last = Token(0);
    for id in 0..20 {
        let actor = if id % 3 == 0 { &a } else { &b };
        let (_, token) = actor.granted(&key, &actor.want(id)).await;
        assert!(token > last);
        last = token;
        actor.release(&key, &actor.want(id)).await;
    }
}

/// A renewal raises the deadline and never lowers it.
pub async fn renew_raises_never_lowers(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    let brief = Claim {
        lease_ttl: SHORT,
        ..a.want(1)
    };
    let granted = a.standing(&key, &brief).await;
    let Reply::Standing(raised) = a.renew(&key, &brief, LONG).await else {
        panic!("renewed")
    };
    assert!(raised.deadline > granted.deadline);
    let Reply::Standing(kept) = a.renew(&key, &brief, SHORT).await else {
        panic!("renewed")
    };
    assert_eq!(kept.deadline, raised.deadline);
    fixture.pass(SHORT + SHORT).await;
    assert!(matches!(
        a.renew(&key, &brief, SHORT).await,
        Reply::Standing(_)
    ));
}

/// What is not in the queue cannot be renewed.
pub async fn renew_unknown_is_gone(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, Reply::Gone);
    a.granted(&key, &a.want(2)).await;
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, Reply::Gone);
}

/// A renewal changes neither place nor token.
pub async fn renew_keeps_place_and_token(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let (arrival, token) = a.granted(&key, &a.want(1)).await;
    let waiting = b.waiting(&key, &b.want(2)).await;
    let Reply::Standing(held) = a.renew(&key, &a.want(1), LONG).await else {
        panic!("renewed")
    };
    assert_eq!(
        (held.arrival, held.token, held.position),
        (arrival, Some(token), 0)
    );
    let Reply::Standing(still) = b.renew(&key, &b.want(2), LONG).await else {
        panic!("renewed")
    };
    assert_eq!(
        (still.arrival, still.token, still.position),
        (waiting.arrival, None, 1)
    );
}

/// The step that releases also grants the next, and its inbox hears.
pub async fn release_hands_on_to_next(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let (_, first) = a.granted(&key, &a.want(1)).await;
    let waiting = b.waiting(&key, &b.want(2)).await;
    assert_eq!(
        a.release(&key, &a.want(1)).await,
        Reply::Released { held: true }
    );
    let look = a.store.inspect(&key).await.expect("a look");
    assert_eq!(look.holders.len(), 1);
    assert!(look.holders[0].token > first);
    if b.store.capabilities().push {
        assert_eq!(
            b.hears_grant().await,
            (waiting.arrival, look.holders[0].token)
        );
    }
}

/// A second release finds nothing, and does no harm.
pub async fn release_twice_is_absent(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    assert_eq!(
        a.release(&key, &a.want(1)).await,
        Reply::Released { held: true }
    );
    assert_eq!(a.release(&key, &a.want(1)).await, Reply::Absent);
    b.granted(&key, &b.want(2)).await;
}

/// A release of an unknown claim touches nobody else's.
pub async fn release_unknown_is_absent(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    assert_eq!(a.release(&key, &a.want(9)).await, Reply::Absent);
    a.granted(&key, &a.want(1)).await;
    assert_eq!(a.release(&key, &a.want(8)).await, Reply::Absent);
    assert!(matches!(
        a.renew(&key, &a.want(1), LONG).await,
        Reply::Standing(_)
    ));
}

/// A waiter that leaves is passed, wherever it stood.
pub async fn withdrawn_waiter_is_passed(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(1)).await;
    for id in 2..=6 {
        b.waiting(&key, &b.want(id)).await;
    }
    for id in [2, 4, 6] {
        assert_eq!(
            b.release(&key, &b.want(id)).await,
            Reply::Released { held: false }
        );
    }
    for (leaver, next) in [(1, 3), (3, 5)] {
        a.release(&key, &a.want(leaver)).await;
        b.granted(&key, &b.want(next)).await;
    }
    b.release(&key, &b.want(5)).await;
    b.granted(&key, &b.want(7)).await;
}

/// Breaking a key fences its holders, and grants to the next.
pub async fn break_fences_holders(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let (_, first) = a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    let broken = b.store.break_key(&key).await.expect("an answer").reply;
    assert_eq!(
        broken,
        Reply::Broken {
            holders: 1,
            token: first
        }
    );
    assert_eq!(a.renew(&key, &a.want(1), LONG).await, Reply::Gone);
    assert_eq!(a.ask(&key, &a.want(1)).await.reply, Reply::Gone);
    let (_, second) = b.granted(&key, &b.want(2)).await;
    assert!(
        second > Token(first.0 + 1),
        "the token was raised before the next grant"
    );
}

/// Holders hear that their key was broken.
pub async fn break_tells_holders(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let (arrival, _) = a.granted(&key, &a.want(1)).await;
    b.store.break_key(&key).await.expect("an answer");
    if a.store.capabilities().push {
        assert_eq!(a.hears().await, Push::Revoked { key, arrival });
    }
}

/// A look shows holders and waiters in order, and no whole claim id.
pub async fn inspect_shows_holders_and_waiters(fixture: &dyn Fixture) {
    let (a, b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    let shared = |id| Claim {
        mode: Mode::Shared,
        ..a.want(id)
    };
    let (_, one) = a.granted(&key, &shared(1)).await;
    let (_, two) = a.granted(&key, &shared(2)).await;
    let waiting = b.waiting(&key, &b.want(3)).await;
    b.waiting(&key, &shared(4)).await;
    let look = b.store.inspect(&key).await.expect("a look");
    assert_eq!(look.capacity, Some(Capacity::Lock));
    assert_eq!(look.last_token, two);
    assert_eq!(
        look.holders.iter().map(|h| h.token).collect::<Vec<_>>(),
        [one, two]
    );
    assert_eq!(
        look.waiters.iter().map(|w| w.position).collect::<Vec<_>>(),
        [1, 2]
    );
    let first = &look.waiters[0].claim;
    assert_eq!(
        (first.arrival, first.mode),
        (waiting.arrival, Mode::Exclusive)
    );
    assert_eq!(first.owner, Owner::new("host", 7, Some("case")));
    assert!(first.since <= look.at && first.deadline > look.at);
    assert!(!first.id_hint.contains(b.want(3).id.expose()));
}

/// A key nobody holds shows nobody, and remembers its last token.
pub async fn inspect_idle_key_is_empty(fixture: &dyn Fixture) {
    let (a, key) = (Actor::new(fixture).await, key("k"));
    let look = a.store.inspect(&key).await.expect("a look");
    assert!(look.capacity.is_none() && look.holders.is_empty() && look.waiters.is_empty());
    let (_, token) = a.granted(&key, &a.want(1)).await;
    a.release(&key, &a.want(1)).await;
    let look = a.store.inspect(&key).await.expect("a look");
    assert!(look.capacity.is_none() && look.holders.is_empty());
    assert_eq!(look.last_token, token);
}

/// Listing finds what is held or waited for, by glob, sorted.
pub async fn list_finds_live_keys_by_pattern(fixture: &dyn Fixture) {
    let a = Actor::new(fixture).await;
    for name in ["orders/2", "orders/1", "orders [x]", "other", "idle"] {
        a.granted(&key(name), &a.want(1)).await;
    }
    a.release(&key("idle"), &a.want(1)).await;
    for (pattern, wanted) in [
        ("*", vec!["orders [x]", "orders/1", "orders/2", "other"]),
        ("orders/*", vec!["orders/1", "orders/2"]),
        ("orders/[2-9]", vec!["orders/2"]),
        ("orders \\[x\\]", vec!["orders [x]"]),
        ("o????", vec!["other"]),
        ("idle", vec![]),
    ] {
        let found = a.store.list(pattern).await.expect("a list");
        let names: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, wanted, "{pattern}");
        assert!(found.iter().all(|(_, look)| look.holders.len() == 1));
    }
}

/// A grant is pushed to the inbox of its claim, and to no other.
pub async fn grant_is_pushed_to_its_inbox_only(fixture: &dyn Fixture) {
    let (a, b, c) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        Actor::new(fixture).await,
    );
    if !a.store.capabilities().push {
        return;
    }
    let key = key("k {x} 🔒");
    a.granted(&key, &a.want(1)).await;
    let waiting = b.ask(&key, &b.want(2)).await;
    let Reply::Standing(standing) = waiting.reply else {
        panic!("it waits")
    };
    c.waiting(&key, &c.want(3)).await;
    a.release(&key, &a.want(1)).await;
    match b.hears().await {
        Push::Granted {
            epoch,
            key: pushed,
            arrival,
            ..
        } => {
            assert_eq!(
                (epoch, pushed, arrival),
                (waiting.epoch, key.clone(), standing.arrival)
            );
            assert_ne!(epoch, 0);
        }
        other => panic!("{other:?} where a grant was due"),
    }
    b.release(&key, &b.want(2)).await;
    c.hears_grant().await;
    assert!(!a.has_heard(|push| matches!(push, Push::Granted { .. })));
    assert!(!b.has_heard(|push| matches!(push, Push::Granted { .. })));
}

/// The claim that becomes next is told, with the time ahead of it.
pub async fn next_in_line_is_told(fixture: &dyn Fixture) {
    let (a, b, c) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        Actor::new(fixture).await,
    );
    if !a.store.capabilities().push {
        return;
    }
    let key = key("k");
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    let third = c.waiting(&key, &c.want(3)).await;
    a.release(&key, &a.want(1)).await;
    match c.hears().await {
        Push::Next {
            key: pushed,
            arrival,
            left,
        } => {
            assert_eq!((pushed, arrival), (key, third.arrival));
            assert!(left <= LONG);
        }
        other => panic!("{other:?} where a hint was due"),
    }
}

/// A closed inbox hears nothing more, and its claims go on by asking.
pub async fn closed_inbox_hears_nothing(fixture: &dyn Fixture) {
    let (a, mut b, key) = (
        Actor::new(fixture).await,
        Actor::new(fixture).await,
        key("k"),
    );
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    b.inbox = None;
    a.release(&key, &a.want(1)).await;
    b.granted(&key, &b.want(2)).await;
    assert!(!b.has_heard(|push| matches!(push, Push::Granted { .. })));
}

/// Mounts every case as a test of the store that the expression makes a
/// [`Fixture`] of.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance!(@cases $fixture;
            claim_free_key_is_granted, claim_held_key_waits_or_is_busy, claim_again_finds_itself,
            claim_after_release_is_gone, claims_are_granted_in_order,
            claim_of_other_capacity_is_mismatch, claim_ahead_passes_waiters,
            lapsed_holder_is_passed, tokens_strictly_increase, renew_raises_never_lowers,
            renew_unknown_is_gone, renew_keeps_place_and_token, release_hands_on_to_next,
            release_twice_is_absent, release_unknown_is_absent, withdrawn_waiter_is_passed,
            break_fences_holders, break_tells_holders, inspect_shows_holders_and_waiters,
            inspect_idle_key_is_empty, list_finds_live_keys_by_pattern,
            grant_is_pushed_to_its_inbox_only, next_in_line_is_told, closed_inbox_hears_nothing);
    };
    (@cases $fixture:expr; $($case:ident),+) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::conformance::$case(&$fixture).await;
        })+
    };
}
