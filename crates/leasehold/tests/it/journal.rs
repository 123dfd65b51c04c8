//! The journal engine, on the toy of `examples/toy-store`: what is in its way here is a backend that
//! hesitates, that finds conflicts, and whose answers are lost.

use std::task::{Context, Poll, Waker};

use leasehold::core::{Claim, ClientInfo, Inbox, Key, Mode, Push, Renew, StoreTime};
use leasehold_store::journal::{
    Append, Appended, Doorbell, Journal, JournalStore, News, Page, PageOf, Position,
};
use leasehold_store::{Capabilities, ErrorKind, Listening, StoreError};
use tokio::sync::mpsc::UnboundedReceiver;
use toy_store::journal::{BASE_AFTER, Shelf, ToyJournal};

use crate::steps::*;

/// Far longer than any of these tests.
const LONG: Duration = Duration::from_secs(600);

/// What a backend was asked, by all clients of a [`Place`].
#[derive(Debug, Default)]
struct Seen {
    appends: AtomicU64,
    reads: AtomicU64,
    bases_written: AtomicU64,
    bases_taken: AtomicU64,
    /// What a backend moves that writes a record anew at each step.
    bytes_since_base: AtomicU64,
    bytes_of_bases: AtomicU64,
    doubts: AtomicU64,
    /// Steps whose base did not come through.
    too_long: AtomicU64,
}

/// A journal that does its work after a while, and does not always say so.
#[derive(Debug)]
struct Fickle {
    toy: ToyJournal,
    seen: Arc<Seen>,
    dice: Mutex<Dice>,
    /// One in so many appends finds that something has changed.
    conflicts: u64,
    /// One in so many answers is lost.
    losses: u64,
    /// It writes records anew, as who can only compare and set.
    rewrites: bool,
    /// It takes itself for a listener, and nobody can ring it.
    is_half_open: AtomicBool,
    /// How many claims have room in a queue.
    room: usize,
    /// No base comes through.
    is_narrow: bool,
}

impl Fickle {
    fn happens(&self, one_in: u64) -> bool {
        one_in > 0 && self.dice.lock().unwrap().one_in(one_in)
    }

    async fn hesitate(&self) {
        let times = self.dice.lock().unwrap().roll(4);
        for _ in 0..times {
            yield_now().await;
        }
    }

    fn lose<T>(&self, answer: T) -> Result<T, StoreError> {
        match self.happens(self.losses) {
            true => Err(unavailable("the answer was lost")),
            false => Ok(answer),
        }
    }

    fn note(&self, counter: &AtomicU64, news: &[News]) {
        count(counter, 1);
        let bases = news.iter().filter_map(|news| news.base.as_ref());
        let bases = bases.filter(|base| !base.is_empty()).count();
        count(&self.seen.bases_taken, bases as u64);
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn unavailable(why: &str) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, why)
}

#[async_trait]
impl Journal for Fickle {
    fn capabilities(&self) -> Capabilities {
        self.toy.capabilities()
    }

    async fn append(
        &self,
        parts: &[Append<'_>],
        unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError> {
        self.hesitate().await;
        let has_no_room = |part: &Append<'_>| part.grows() && part.claims() >= self.room;
        if parts.iter().any(has_no_room) {
            return Err(StoreError::new(ErrorKind::Refused, "there is no room"));
        }
        if self.is_narrow && parts[0].new_base(BASE_AFTER)?.is_some() {
            count(&self.seen.too_long, 1);
            return Err(unavailable("the answer came too late"));
        }
        let conflict = self.happens(self.conflicts).then_some(StoreTime(u64::MAX));
        let answer = self.toy.append(parts, conflict.or(unchanged_since)).await?;
        for part in parts.iter().filter(|_| answer.appended) {
            if let Some((base, _)) = part.new_base(BASE_AFTER)? {
                count(&self.seen.bases_written, 1);
                count(&self.seen.bytes_of_bases, base.len() as u64);
            }
            if let Some(known) = part.known.filter(|_| self.rewrites) {
                // The queue before, and the entry.
                self.toy.take_base(part.key, part.base()?, known);
            }
        }
        self.note(&self.seen.appends, &answer.news);
        let bytes = answer.news.iter().map(|news| news.since_base).sum();
        count(&self.seen.bytes_since_base, bytes);
        self.hesitate().await;
        self.lose(answer)
    }

    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        self.hesitate().await;
        let answer = self.toy.read(keys).await?;
        self.note(&self.seen.reads, &answer.1);
        self.hesitate().await;
        self.lose(answer)
    }

    async fn ring(&self, key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        self.hesitate().await;
        self.toy.ring(key, inboxes).await
    }

    async fn page(&self, of: &PageOf<'_>) -> Result<Page, StoreError> {
        self.toy.page(of).await
    }

    async fn forget(&self, key: &Key, at: Position) -> Result<(), StoreError> {
        self.toy.forget(key, at).await
    }

    fn inbox(&self) -> &Inbox {
        self.toy.inbox()
    }

    fn epoch(&self) -> u64 {
        match self.is_half_open.load(Ordering::Relaxed) {
            true => 1,
            false => self.toy.epoch(),
        }
    }

    fn doubt(&self, _: StoreTime) {
        count(&self.seen.doubts, 1);
        self.is_half_open.store(false, Ordering::Relaxed);
    }

    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        if self.is_half_open.load(Ordering::Relaxed) {
            return Ok(Box::new(Deaf));
        }
        self.toy.listen(bell).await
    }
}

/// What listens, and whom nothing reaches.
struct Deaf;

impl Listening for Deaf {}

#[derive(Default)]
struct Place {
    shelf: Shelf,
    seen: Arc<Seen>,
    clients: AtomicU64,
    conflicts: u64,
    losses: u64,
    rewrites: bool,
    room: Option<usize>,
    is_narrow: bool,
}

impl Place {
    fn rewriting() -> Self {
        but(Self::new(3, 0), |it| it.rewrites = true)
    }

    fn new(conflicts: u64, losses: u64) -> Self {
        Self {
            conflicts,
            losses,
            ..Self::default()
        }
    }

    fn store(&self) -> JournalStore<Fickle> {
        self.store_that(false)
    }

    fn store_that(&self, is_half_open: bool) -> JournalStore<Fickle> {
        let fickle = Fickle {
            toy: self.shelf.journal(),
            seen: self.seen.clone(),
            dice: Mutex::new(Dice(self.clients.fetch_add(1, Ordering::Relaxed))),
            conflicts: self.conflicts,
            losses: self.losses,
            rewrites: self.rewrites,
            is_half_open: AtomicBool::new(is_half_open),
            room: self.room.unwrap_or(usize::MAX),
            is_narrow: self.is_narrow,
        };
        JournalStore::new(fickle, Duration::from_secs(60))
    }

    async fn connect(&self) -> Client {
        client_of(Arc::new(self.store())).await
    }

    fn count(&self, counter: impl Fn(&Seen) -> &AtomicU64) -> u64 {
        counter(&self.seen).load(Ordering::Relaxed)
    }

    /// How many entries the records have since their bases.
    async fn entries(&self) -> usize {
        let page = self.shelf.journal().page(&PageOf::default()).await.unwrap();
        let news = page.records.iter().map(|(.., news)| news.as_ref().unwrap());
        news.map(|news| news.entries.len()).sum()
    }
}

#[async_trait]
impl Fixture for Place {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(self.store())
    }
}

impl leasehold_testkit::facade::Fixture for Place {}

mod appending {
    use super::Place;

    leasehold_testkit::facade!(Place::default());
}

/// As a backend that can only compare and set.
mod conflicting {
    use super::Place;

    leasehold_store::contract!(Place::rewriting());
    leasehold_testkit::facade!(Place::rewriting());
}

/// Clients that append, write bases and lose answers, all at once on one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bases_lost_answers_and_conflicts_let_one_in_at_a_time() {
    let place = Place::new(7, 20);
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let client = place.connect().await;
        for _ in 0..3 {
            let (lock, inside) = (client.mutex("k").unwrap(), inside.clone());
            tasks.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..8 {
                    let lease = lock.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
                    yield_now().await;
                    tokens.push(lease.token());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = lease.release().await.unwrap();
                }
                tokens
            });
        }
    }
    let mut tokens = Vec::new();
    while let Some(done) = soon("everyone's turn", tasks.join_next()).await {
        tokens.extend(done.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 18 * 8, "no token twice");
    let bases = place.count(|seen| &seen.bases_written);
    assert!(bases > 2, "{:?}", place.seen);
}

async fn take(client: &Client, key: &str, times: usize) {
    for _ in 0..times {
        use_once(client, key).await;
    }
}

/// One round trip to acquire, one to release, and none that writes where a claim is refused.
#[tokio::test]
async fn a_step_is_one_round_trip() {
    let place = Place::default();
    let (one, other) = (place.connect().await, place.connect().await);
    let appends = || place.count(|seen| &seen.appends);
    let asked = || (appends(), place.count(|seen| &seen.reads));
    take(&one, "k", 10).await;
    assert_eq!(asked(), (20, 0));
    // Another client, which knows nothing of the key.
    let lease = lock(&other, "k").await;
    assert_eq!(asked(), (21, 0));
    assert!(try_lock(&one, "k").await.is_none());
    // It was free when the first client saw it last, so it tries; nothing is appended.
    assert_eq!(appends(), 22);
    assert!(try_lock(&one, "k").await.is_none());
    assert_eq!(asked(), (22, 1), "the second time it looks");
    give_back(lease).await;
    let entries = place.entries().await;
    assert_eq!(entries, 22, "what was refused has left nothing");
}

/// A claim for which there is no room is refused, and takes along nothing that is asked with it.
#[tokio::test]
async fn who_has_no_room_holds_up_nobody() {
    let place = but(Place::default(), |it| it.room = Some(2));
    let client = place.connect().await;
    let (held, waiter) = contended(&client, &client, "k").await;
    for _ in 0..10 {
        let more = client.mutex("k").unwrap();
        let (renewed, refused) = tokio::join!(held.renew(), more.lock());
        renewed.unwrap();
        fails(refused, ErrorKind::Refused, &[]);
    }
    drop(hand_over(held, waiter).await);
}

/// Where a base cannot be sent, as over a slow line with many in line, steps go on without it.
#[tokio::test]
async fn a_base_that_does_not_come_through_holds_up_few_steps() {
    let place = but(Place::default(), |it| it.is_narrow = true);
    take(&place.connect().await, "k", 400).await;
    let failed = place.count(|seen| &seen.too_long);
    assert!((1..10).contains(&failed), "{failed}");
    assert_eq!(place.count(|seen| &seen.bases_written), 0);
}

/// Who was away while others wrote bases takes the last of them, once.
#[tokio::test]
async fn who_is_far_behind_takes_the_base() {
    let place = Place::default();
    let (one, other) = (place.connect().await, place.connect().await);
    let taken = || place.count(|seen| &seen.bases_taken);
    take(&one, "k", 1).await;
    take(&other, "k", 400).await;
    assert!(place.count(|seen| &seen.bases_written) > 2);
    assert_eq!(taken(), 0, "near enough until now");
    take(&one, "k", 5).await;
    assert_eq!(taken(), 1);
    let kept = place.entries().await;
    assert!(kept < 200, "{kept} of 812 entries are left since the base");
}

/// Who waited while others came and went need not ask what the base has told it.
#[tokio::test]
async fn who_waits_hears_its_grant_by_a_base() {
    let (place, key) = (Place::default(), key("k"));
    let (one, other) = (place.store(), place.store());
    let mut pushes = hear(&other).await;
    let claim = |number, store: &dyn LockStore| Claim {
        waiter_ttl: LONG,
        lease_ttl: LONG,
        ..claim(store, number)
    };
    let leave = async |number| one.release(&key, &settled(id(number))).await.unwrap();
    one.claim(&key, &claim(1, &one)).await.unwrap();
    other.claim(&key, &claim(2, &other)).await.unwrap();
    for number in 3..103 {
        one.claim(&key, &claim(number, &one)).await.unwrap();
        leave(number).await;
    }
    leave(1).await;
    let mut heard = vec![soon("a push", pushes.recv()).await];
    assert_eq!(place.count(|seen| &seen.bases_taken), 1);
    heard.extend(std::iter::from_fn(|| pushes.try_recv().ok().map(Some)));
    let told = matches!(
        heard[..],
        [Some(Push::Next { .. }), Some(Push::Granted { .. })]
    );
    assert!(told, "{heard:?}");
}

/// A record that was removed and made again has positions of its own.
#[tokio::test]
async fn a_record_that_was_made_again_is_another() {
    let place = Place::default();
    let (one, other) = (place.connect().await, place.connect().await);
    let key = key("k");
    take(&one, "k", 3).await;
    let journal = place.shelf.journal();
    let (_, news) = journal.read(&[(&key, None)]).await.unwrap();
    journal.forget(&key, news[0].end.unwrap()).await.unwrap();
    // As many entries as before, so that only the number of the record tells.
    take(&other, "k", 2).await;
    let held = lock(&other, "k").await;
    assert!(try_lock(&one, "k").await.is_none(), "the other holds it");
    give_back(held).await;
    take(&one, "k", 1).await;
}

/// With many in line, the journal stays short beside the queue, bases are rare beside the steps, and a
/// client does not go through the queue at each step.
#[tokio::test]
async fn many_waiters_cost_a_step_little() {
    let place = Place::default();
    let (store, key) = (place.store(), key("k"));
    let claim = |number: u64| Claim {
        inbox: Some(Inbox::from_random(number / 100)),
        waiter_ttl: LONG,
        ..Claim::new(id(number.into()), Mode::EXCLUSIVE, LONG)
    };
    let moved =
        || place.count(|seen| &seen.bytes_since_base) + place.count(|seen| &seen.bytes_of_bases);
    // The fastest of some rounds: others use this machine, too.
    let renewals = async || {
        let renew = Renew::new(id(0), LONG);
        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let begun = Instant::now();
            for _ in 0..20 {
                store.renew(&key, &renew).await.unwrap();
            }
            fastest = fastest.min(begun.elapsed());
        }
        fastest
    };
    for number in 0..10 {
        store.claim(&key, &claim(number)).await.unwrap();
    }
    let few = renewals().await;
    for number in 10..4_000 {
        store.claim(&key, &claim(number)).await.unwrap();
    }
    let before = moved();
    for number in 4_000..5_000 {
        store.claim(&key, &claim(number)).await.unwrap();
    }
    let bytes = (moved() - before) / 1_000;
    assert!(
        bytes < 100 * 1024,
        "{bytes} bytes a step beside a queue of a megabyte"
    );
    let many = renewals().await;
    assert!(many < 8 * few, "{many:?} where {few:?} were enough for ten");
    assert_eq!(store.inspect(&key).await.unwrap().waiters.len(), 4_999);
}

/// Who listens, and whom others cannot ring, is passed over in the step that would grant to it, and is
/// told to open another session. It has its place, and is granted the key in its turn.
#[tokio::test]
async fn who_cannot_be_rung_is_passed_over_and_told_so() {
    let (place, key) = (Place::default(), key("k"));
    let (first, second, third) = (place.store(), place.store_that(true), place.store());
    let mut pushes = hear(&second).await;
    claimed(&first, &key, 1).await;
    claimed(&second, &key, 2).await;
    let last = claimed(&third, &key, 3).await;
    // It sees who waits.
    let _seen = first.inspect(&key).await.unwrap();
    let _released = first.release(&key, &settled(id(1))).await.unwrap();
    let after = first.inspect(&key).await.unwrap();
    assert_eq!(after.waiters.len(), 1, "{after:?}");
    let _released = third.release(&key, &settled(id(3))).await.unwrap();
    let seen = second.inspect(&key).await.unwrap();
    assert_eq!(after.holders[0].claim.arrival, last.arrival);
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    assert_eq!(place.count(|seen| &seen.doubts), 1);
    // That it was passed over comes before the grant.
    assert_eq!(pushes.recv().await, Some(Push::Reset));
    let granted = pushes.recv().await;
    assert!(matches!(granted, Some(Push::Granted { .. })), "{granted:?}");
}

/// Who waits and cannot be rung is passed over, also if it holds what it got before it listened.
#[tokio::test]
async fn who_holds_from_before_it_listened_is_passed_over_too() {
    let (place, key) = (Place::default(), key("k"));
    let (dying, other) = (place.store(), place.store());
    claimed(&dying, &key, 1).await;
    let listening = dying.listen(sink().0).await.unwrap();
    claimed(&dying, &key, 2).await;
    let _open = other.listen(sink().0).await.unwrap();
    let last = claimed(&other, &key, 3).await;
    drop(listening);
    let _broken = other.break_key(&key, &ClientInfo::unknown()).await.unwrap();
    let seen = other.inspect(&key).await.unwrap();
    assert_eq!(seen.holders[0].claim.arrival, last.arrival, "{seen:?}");
}

/// What was asked in a runtime that has ended ends with it, and others go on.
#[test]
fn a_runtime_that_ends_takes_along_what_was_asked() {
    let place = Place::default();
    let store = place.store();
    let key = key("k");
    let first = runtime();
    let mut asking = store.inspect(&key);
    let entered = first.enter();
    let mut here = Context::from_waker(Waker::noop());
    // It is asked, and its turn is not taken any more.
    assert!(asking.as_mut().poll(&mut here).is_pending());
    drop(entered);
    drop(first);
    let Poll::Ready(ended) = asking.as_mut().poll(&mut here) else {
        panic!("it goes on");
    };
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Unavailable);
    runtime().block_on(async {
        let seen = soon("an answer", store.inspect(&key)).await.unwrap();
        assert!(seen.holders.is_empty());
    });
}

/// What a store is told from now on.
async fn hear(store: &dyn LockStore) -> UnboundedReceiver<Push> {
    let (sink, pushes) = sink();
    // For as long as the test.
    Box::leak(Box::new(store.listen(sink).await.unwrap()));
    pushes
}

/// Whoever is rung for something that it does not know any more is told to ask.
#[tokio::test]
async fn who_is_rung_without_a_copy_asks() {
    let place = Place::default();
    let store = place.store();
    let mut pushes = hear(&store).await;
    let key = key("k");
    let inboxes = [LockStore::inbox(&store).clone()];
    place.shelf.journal().ring(&key, &inboxes).await.unwrap();
    assert_eq!(soon("a push", pushes.recv()).await, Some(Push::Reset));
}
