//! What a user of the library relies on, over any store: mount with
//! [`crate::facade!`].

mod cancellation;
mod endings;
mod gated;
mod handles;
mod identity;
mod kinds;
mod limits;

use std::error::Error;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::fence::Gate;
use leasehold::store::LockStore;
use leasehold::{
    Client, ErrorKind, LeaseState, LockOptions, Loss, Mutex, Released, RenewalPolicy, Settings,
    Token,
};
use leasehold_store::contract;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::expect::fails;

pub use self::cancellation::*;
pub use self::endings::*;
pub use self::handles::*;
pub use self::identity::*;
pub use self::kinds::*;
pub use self::limits::*;

/// A store under test, fresh for each case, and what a case about its clients asks of it.
pub trait Fixture: contract::Fixture {
    /// How many lives of each kind of lock are cut short at random.
    fn cancellations(&self) -> usize {
        cancellations()
    }

    /// How many clients have their inbox open now, where that can be seen.
    fn open_inboxes(&self) -> Option<usize> {
        None
    }
}

/// How many lives of each kind of lock are cut short at random where that is quick: as
/// `LEASEHOLD_CANCELLATIONS` says, else 300.
#[must_use]
pub fn cancellations() -> usize {
    let said = std::env::var("LEASEHOLD_CANCELLATIONS");
    let count = said.map_or(Ok(300), |count| count.parse());
    count.expect("LEASEHOLD_CANCELLATIONS is no number of lives")
}

/// What comes of a case.
pub type Outcome = Result<(), Failed>;

/// What a case met that it does not expect, and where.
#[derive(Debug)]
pub struct Failed {
    at: &'static Location<'static>,
    error: Box<dyn Error>,
}

impl<E: Into<Box<dyn Error>>> From<E> for Failed {
    #[track_caller]
    fn from(error: E) -> Self {
        let (at, error) = (Location::caller(), error.into());
        Self { at, error }
    }
}

/// What a store must be able to do for a case to say anything about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// What every store can.
    Nothing,
    /// Claims wait in a queue.
    Queue,
    /// There is more than plain exclusive claims.
    AllKinds,
}

/// A case as it is mounted.
pub type Case = for<'a> fn(&'a dyn Fixture) -> Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// Runs a case on a store of its own, with two workers. It is one function for all, since
/// thousands of tests are mounted, and each would be compiled with a runtime of its own.
///
/// # Panics
/// As the case does.
pub fn run(fixture: &dyn Fn() -> Box<dyn Fixture>, needs: Needs, case: Case) {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let fixture = fixture();
        let can = match needs {
            Needs::Nothing => true,
            Needs::Queue => fixture.client().await.capabilities().queueing,
            Needs::AllKinds => knows_all_kinds(&*fixture).await,
        };
        if !can {
            return;
        }
        if let Err(Failed { at, error }) = case(&*fixture).await {
            panic!("at {at}: {error}");
        }
    });
}

/// How long anything may take on a busy machine before a case fails.
const LIMIT: Duration = Duration::from_secs(180);

/// Whether there is more than plain exclusive claims.
async fn knows_all_kinds(fixture: &dyn Fixture) -> bool {
    !fixture.client().await.capabilities().exclusive_only
}

/// Whether a later grant has a higher token; without tokens, that both are none.
fn rises(client: &Client, earlier: Token, later: Token) -> bool {
    if client.capabilities().tokens {
        later > earlier
    } else {
        earlier.is_none() && later.is_none()
    }
}

async fn client_with(fixture: &dyn Fixture, settings: Settings) -> Client {
    client_on(fixture.client().await, settings).await
}

async fn client_on(store: Arc<dyn LockStore>, settings: Settings) -> Client {
    let builder = Client::builder().with_store(store).settings(settings);
    builder.connect().await.expect("a client")
}

async fn client(fixture: &dyn Fixture) -> Client {
    client_with(fixture, Settings::default()).await
}

/// Two clients, the first of which hears of a loss soon: where nobody tells it, when it renews.
async fn one_that_hears(fixture: &dyn Fixture) -> [Client; 2] {
    let other = client(fixture).await;
    let brief = Duration::from_secs(if other.capabilities().push { 30 } else { 2 });
    [client_with(fixture, ttl(brief)).await, other]
}

async fn clients<const N: usize>(fixture: &dyn Fixture) -> [Client; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(client(fixture).await);
    }
    clients.try_into().expect("so many")
}

fn ttl(ttl: Duration) -> Settings {
    Settings::default().with_ttl(ttl)
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{what} within {LIMIT:?}"))
}

/// Looks, every so many milliseconds, until it is so.
async fn until(what: &str, millis: u64, is_so: impl AsyncFn() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    })
    .await;
}

/// What `tasks` send next, if any still does; one that failed is told at once, since the others may
/// wait for it. If nothing comes, it says how the queue of "k" stands.
async fn next_sent<T>(
    client: &Client,
    order: &mut mpsc::UnboundedReceiver<T>,
    tasks: &mut JoinSet<()>,
) -> Result<Option<T>, JoinError> {
    let next = async {
        loop {
            tokio::select! {
                Some(done) = tasks.join_next() => done?,
                next = order.recv() => return Ok(next),
            }
        }
    };
    if let Ok(next) = timeout(LIMIT, next).await {
        return next;
    }
    let seen = client.inspect("k").await.expect("a look");
    let first = (seen.holders.first(), seen.waiters.first());
    let (hold, wait) = (seen.holders.len(), seen.waiters.len());
    panic!("no turn within {LIMIT:?}: {hold} hold and {wait} wait, first {first:?}");
}

/// Waits until nobody holds or waits for `key`.
async fn idle(client: &Client, key: &str) {
    let mut seen = None;
    let look = async {
        loop {
            let now = client.inspect(key).await.expect("a look");
            if now.holders.is_empty() && now.waiters.is_empty() {
                return;
            }
            seen = Some(now);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let idle = timeout(LIMIT, look).await;
    assert!(idle.is_ok(), "not idle after {LIMIT:?}: {seen:?}");
}

/// Waits until the store sees no client that listens.
async fn no_inbox_is_open(fixture: &dyn Fixture) {
    let closed = async || fixture.open_inboxes().is_none_or(|open| open == 0);
    until("closed inboxes", 2, closed).await;
}

/// Waits until so many wait for `key`; for a moment where no queue shows them.
async fn queued(client: &Client, key: &str, waiters: usize) {
    if !client.capabilities().queueing {
        // Nothing tells that they have asked.
        tokio::time::sleep(Duration::from_millis(30)).await;
        return;
    }
    soon("a queue", async {
        loop {
            let began = Instant::now();
            if client.inspect(key).await.expect("a look").waiters.len() == waiters {
                break;
            }
            // A look at a thousand is work: the server is for the others half of the time.
            tokio::time::sleep(began.elapsed().max(Duration::from_millis(2))).await;
        }
    })
    .await;
}

/// A task that waits in the line of a key, in which so many wait with it.
async fn in_line<T: Send + 'static>(
    client: &Client,
    key: &str,
    waiters: usize,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let task = tokio::spawn(work);
    queued(client, key, waiters).await;
    task
}

/// So many tasks of each of so many clients take ten turns at a lock, alone inside; the tokens.
async fn take_turns(
    fixture: &dyn Fixture,
    [clients, tasks]: [usize; 2],
    lock_of: fn(&Client) -> Result<Mutex, leasehold::Error>,
) -> Result<Vec<Token>, leasehold::Error> {
    let inside = Arc::new(AtomicU64::new(0));
    let mut turns = JoinSet::new();
    for _ in 0..clients {
        let client = client(fixture).await;
        for _ in 0..tasks {
            let (lock, inside) = (lock_of(&client)?, inside.clone());
            turns.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..10 {
                    let lease = lock.lock().await.expect("a lease");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
                    tokio::task::yield_now().await;
                    assert!(lease.is_valid());
                    tokens.push(lease.token());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let released = lease.release().await.expect("an answer");
                    assert_eq!(released, Released::Held);
                }
                tokens
            });
        }
    }
    Ok(soon("everyone's turn", turns.join_all()).await.concat())
}

/// One holder at a time, over clients; nobody's work is lost.
pub async fn excludes_each_other(fixture: &dyn Fixture) -> Outcome {
    let has_tokens = fixture.client().await.capabilities().tokens;
    let mut tokens = take_turns(fixture, [4, 5], |client| client.mutex("k")).await?;
    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    let different = if has_tokens { 200 } else { 1 };
    assert_eq!((count, tokens.len()), (200, different), "no token twice");
    Ok(())
}

/// Served strictly in order of arrival, over clients, with rising tokens.
pub async fn serves_in_order_of_arrival(fixture: &dyn Fixture) -> Outcome {
    let clients: [_; 3] = clients(fixture).await;
    let first = clients[0].mutex("k")?.lock().await?;
    let (served, mut order) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let (lock, served) = (clients[n % 3].mutex("k")?, served.clone());
        tasks.spawn(async move {
            let lease = lock.lock().await.expect("a lease");
            served.send((n, lease.token())).expect("somebody listens");
            let _ = lease.release().await.expect("an answer");
        });
        queued(&clients[0], "k", n + 1).await;
    }
    let mut last = first.token();
    let _ = first.release().await?;
    for n in 0..12 {
        let turn = next_sent(&clients[0], &mut order, &mut tasks).await?;
        let (who, token) = turn.ok_or("a turn")?;
        assert_eq!(who, n);
        assert!(token > last);
        last = token;
    }
    tasks.join_all().await;
    Ok(())
}

/// Busy is an answer of `try_lock`, and leaves nothing behind.
pub async fn try_lock_says_busy(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let lease = a.mutex("k")?.try_lock().await?.ok_or("a lease")?;
    let lock = b.mutex("k")?;
    assert!(lock.try_lock().await?.is_none());
    assert!(b.inspect("k").await?.waiters.is_empty());
    let _ = lease.release().await?;
    assert!(lock.try_lock().await?.is_some());
    Ok(())
}

/// A lease outlives its TTL while the watchdog renews it.
pub async fn watchdog_renews(fixture: &dyn Fixture) -> Outcome {
    let a = client_with(fixture, ttl(Duration::from_secs(2))).await;
    let lease = a.mutex("k")?.lock().await?;
    // Held for two of its TTLs: the passing of time is what is tested.
    let lost = timeout(Duration::from_secs(4), lease.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(lease.is_valid());
    assert_eq!(lease.release().await?, Released::Held);
    Ok(())
}

/// A fixed lease ends at its time; a manual one lives by its holder's renewals.
pub async fn fixed_and_manual_leases(fixture: &dyn Fixture) -> Outcome {
    let time = Duration::from_millis(300);
    let a = client_with(fixture, ttl(time)).await;
    let fixed = a.mutex("f")?.with_renewal(RenewalPolicy::Fixed);
    let lease = fixed.lock().await?;
    assert_eq!(soon("the end", lease.lost()).await, Loss::Expired);
    assert!(!lease.is_valid());
    fails(lease.run(async {}).await, ErrorKind::Lost);

    let manual = a.mutex("m")?.with_renewal(RenewalPolicy::Manual);
    let lease = manual.lock().await?;
    let before = lease.remaining();
    tokio::time::sleep(time / 3).await;
    lease.renew().await?;
    assert!(lease.remaining() > before.saturating_sub(time / 3));
    assert_eq!(soon("the end", lease.lost()).await, Loss::Expired);
    fails(lease.renew().await, ErrorKind::Lost);
    Ok(())
}

/// Breaking a lock tells its holder, and a later token is higher.
pub async fn a_broken_lease_is_lost(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = one_that_hears(fixture).await;
    let lease = a.mutex("k")?.lock().await?;
    let work = lease.run(std::future::pending::<()>());
    let (lost, broken) = tokio::join!(soon("the loss", work), b.break_key("k"));
    fails(lost, ErrorKind::Lost);
    let broken = broken?;
    assert_eq!(broken.holders, 1);
    // Nobody was given it: whoever is told it refuses the former holder.
    assert!(rises(&a, lease.token(), broken.token));
    let next = b.mutex("k")?.lock().await?;
    assert!(rises(&a, broken.token, next.token()));
    if a.capabilities().tokens {
        let told = Gate::at(broken.token);
        told.admit(lease.token()).expect_err("a broken lease");
        told.admit(next.token())?;
    }
    assert!(matches!(lease.state(), LeaseState::Lost(_)));
    assert_eq!(lease.release().await?, Released::AlreadyGone);
    assert!(next.is_valid());
    Ok(())
}

/// Dropping a guard releases it, and hands on.
pub async fn dropping_a_lease_hands_on(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let lease = a.mutex("k")?.lock().await?;
    let lock = b.mutex("k")?;
    let waiter = in_line(&a, "k", 1, async move { lock.lock().await }).await;
    drop(lease);
    let next = soon("the hand-off", waiter).await??;
    drop(next);
    idle(&a, "k").await;
    Ok(())
}

/// The first wait of a client that already keeps a lease hears of its grant at
/// once, not at its next renewal.
pub async fn the_first_wait_hears_its_grant(fixture: &dyn Fixture) -> Outcome {
    let a = client(fixture).await;
    if !fixture.client().await.capabilities().push {
        return Ok(());
    }
    // A heartbeat would take seconds; a closed inbox 100 ms.
    const PROMPT: Duration = Duration::from_millis(90);
    let mut quickest = Duration::MAX;
    // A busy machine is slow now and then, and a closed inbox each time.
    for n in 0..40 {
        if n >= 5 && quickest < PROMPT {
            return Ok(());
        }
        let b = client(fixture).await;
        let held = a.mutex(format!("k{n}"))?.lock().await?;
        let _kept = b.mutex(format!("kept{n}"))?.lock().await?;
        let lock = b.mutex(format!("k{n}"))?;
        let waiter = in_line(&a, &format!("k{n}"), 1, async move { lock.lock().await }).await;
        let started = Instant::now();
        let _ = held.release().await?;
        let _ = soon("the hand-off", waiter).await??;
        quickest = quickest.min(started.elapsed());
    }
    Err(format!("at best after {quickest:?}").into())
}

/// The place in the queue is told while waiting.
pub async fn progress_tells_the_place(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let other = client(fixture).await;
    let first = a.mutex("k")?.lock().await?;
    let lock = other.mutex("k")?;
    let second = in_line(&b, "k", 1, async move { lock.lock().await }).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let how = LockOptions::new().on_progress(move |p| {
        tell.send(p.position).ok();
    });
    let lock = b.mutex("k")?;
    let third = tokio::spawn(async move { lock.lock_opts(how).await });
    assert_eq!(soon("a place", told.recv()).await, Some(2));
    let _ = first.release().await?;
    let second = soon("the second", second).await??;
    assert_eq!(soon("a better place", told.recv()).await, Some(1));
    let _ = second.release().await?;
    let _third = soon("the third", third).await??;
    Ok(())
}

/// An unfair lock excludes, and lets nobody hang.
pub async fn unfair_locks_exclude(fixture: &dyn Fixture) -> Outcome {
    let lock_of = |client: &Client| client.mutex("k").map(Mutex::unfair);
    take_turns(fixture, [2, 4], lock_of).await?;
    Ok(())
}

/// Shutting down gives everything back, tells everyone, and takes no more.
pub async fn shutdown_releases_everything(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let mut leases = Vec::new();
    for n in 0..20 {
        let lock = a.mutex(format!("k{n}"))?;
        leases.push(lock.lock().await?);
    }
    let theirs = b.mutex("theirs")?.lock().await?;
    let lock = a.mutex("theirs")?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let waits = LockOptions::new().on_progress(move |p| {
        tell.send(p.position).ok();
    });
    let waiting = tokio::spawn(async move { lock.lock_opts(waits).await });
    // The client itself knows of its place, not just the store; where there is one.
    if a.capabilities().queueing {
        assert_eq!(soon("a place", told.recv()).await, Some(1));
    }
    let done = a.shutdown(LIMIT).await;
    // Whoever waits without a queue has nothing to give back.
    let all = 20 + u64::from(a.capabilities().queueing);
    assert_eq!((done.released, done.unconfirmed), (all, 0));
    for lease in leases {
        assert_eq!(lease.lost().await, Loss::Shutdown);
    }
    assert!(soon("the waiter", waiting).await?.is_err());
    assert!(a.mutex("new")?.lock().await.is_err());
    assert!(b.list("k*").await?.is_empty());
    assert!(theirs.is_valid());
    Ok(())
}

/// Thousands of held and waiting locks of one client: all kept by one task.
pub async fn many_locks_one_watchdog(fixture: &dyn Fixture) -> Outcome {
    const LOCKS: usize = 300;
    let settings = ttl(Duration::from_secs(10));
    let client = || client_with(fixture, settings.clone());
    let (a, b) = (client().await, client().await);
    let mut held = Vec::new();
    for n in 0..LOCKS {
        held.push(a.mutex(format!("k{n}"))?.lock().await?);
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks_before = metrics.num_alive_tasks();
    let mut waiting = JoinSet::new();
    for n in 0..LOCKS {
        let lock = b.mutex(format!("k{n}"))?;
        let queues = b.capabilities().queueing;
        waiting.spawn(async move {
            loop {
                match lock.lock().await {
                    // A busy machine lets too many servers of a quorum be late.
                    Err(error) if error.kind() == ErrorKind::Unavailable && !queues => {}
                    answer => return answer,
                }
            }
        });
    }
    queued(&a, &format!("k{}", LOCKS - 1), 1).await;
    // Batches may still be under way. Without a queue each waits by asking, and what
    // it got is given back meanwhile.
    if a.capabilities().queueing {
        let few = async || metrics.num_alive_tasks() <= tasks_before + LOCKS + 32;
        until("no task but the waiters", 2, few).await;
    }
    assert!(held.iter().all(leasehold::Lease::is_valid));
    drop(held);
    let leases = soon("all hand-offs", waiting.join_all()).await;
    let failed = leases.iter().filter_map(|lease| lease.as_ref().err());
    let failed: Vec<_> = failed.collect();
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// After the last guard and waiter are gone, no task, claim or inbox is left.
pub async fn nothing_is_left(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for round in 0..3 {
        let mut tasks = JoinSet::new();
        for n in 0..30 {
            let lock = [&a, &b][n % 2].mutex(format!("k{}", n % 3))?;
            tasks.spawn(async move {
                let lease = timeout(Duration::from_millis(n as u64 * 3), lock.lock()).await;
                if let (0, Ok(Ok(lease))) = (round % 2, lease) {
                    let _ = lease.release().await.expect("an answer");
                }
            });
        }
        tasks.join_all().await;
    }
    for n in 0..3 {
        idle(&a, &format!("k{n}")).await;
    }
    let none_is_left = async || metrics.num_alive_tasks() <= before;
    until("no task left", 20, none_is_left).await;
    assert!(a.list("*").await?.is_empty());
    no_inbox_is_open(fixture).await;
    Ok(())
}

/// Mounts every case as a test of the store that the expression makes a
/// [`Fixture`] of. With `@quick` before it, those that take a minute stay out:
/// enough for another server behind a store that passes all.
#[macro_export]
macro_rules! facade {
    ($fixture:expr) => {
        $crate::facade!(@quick $fixture);
        $crate::facade!(@cases $fixture, Nothing; cancellations_leave_nothing);
    };
    (@quick $fixture:expr) => {
        $crate::facade!(@cases $fixture, Nothing;
            excludes_each_other, try_lock_says_busy, watchdog_renews, fixed_and_manual_leases,
            a_broken_lease_is_lost, dropping_a_lease_hands_on, the_first_wait_hears_its_grant,
            unfair_locks_exclude, shutdown_releases_everything, many_locks_one_watchdog,
            nothing_is_left, several_keys_are_one_lock, multi_locks_do_not_deadlock,
            leaders_follow_each_other, a_maximum_hold_ends_a_lease, retries_get_the_key,
            blocking_calls_work_anywhere, handles_tell_who_holds, an_untyped_lock_is_any_kind,
            a_loss_is_told_to_those_who_watch, work_under_a_lock_ends_with_it,
            a_claim_id_is_never_shared, leases_end_without_their_runtime,
            a_client_without_its_runtime_is_closed, a_shutdown_ends_claims_under_way,
            a_shutdown_ends_waits_of_all_kinds, a_shutdown_ends_when_all_have_left,
            a_wait_that_timed_out_is_out_of_line, a_dropped_lease_is_not_in_the_way,
            a_wait_of_no_time_asks_once, a_store_out_of_reach_is_not_a_time_out,
            fixed_leases_follow_each_other, a_loss_is_told_without_any_runtime,
            a_blocking_call_is_refused_where_it_would_hang);
        $crate::facade!(@cases $fixture, Queue;
            serves_in_order_of_arrival, progress_tells_the_place,
            a_fixed_lease_from_the_queue_holds_its_ttl);
        $crate::facade!(@cases $fixture, AllKinds;
            readers_share_and_writers_are_alone, a_downgrade_lets_no_writer_between,
            reader_groups_run_together_in_order, a_semaphore_admits_so_many,
            a_semaphore_is_resized_in_use, an_owner_enters_again,
            waiting_claims_of_an_owner_enter_together, a_minimum_hold_outlives_its_lease,
            a_minimum_hold_counts_from_use, an_owner_may_retry, a_rotation_makes_a_leaked_id_stale,
            of_two_rotations_one_wins, the_watchdog_rotates, a_lease_is_handed_over,
            a_lease_right_behind_another_is_handed_over, a_reentrant_lease_stays_one,
            a_forced_adoption_tells_the_former, recovery_goes_on_or_begins_anew,
            a_change_does_not_prolong_a_fixed_lease);
    };
    // What waits in real time, for stores with a queue and without: enough for all.
    (@limits $fixture:expr) => {
        $crate::facade!(@cases $fixture, Nothing;
            a_limit_is_kept_on_a_store_that_does_not_answer,
            a_limit_that_is_over_while_others_hold_is_a_time_out);
    };
    (@cases $fixture:expr, $needs:ident; $($case:ident),+) => {
        $(#[test]
        fn $case() {
            $crate::facade::run(&|| Box::new($fixture), $crate::facade::Needs::$needs, |fixture| {
                Box::pin($crate::facade::$case(fixture))
            });
        })+
    };
}
