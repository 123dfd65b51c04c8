//! What each kind of lock promises, over any store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, Mode, Owner, Released, Retry};
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use super::{
    Fixture, LIMIT, Outcome, client, client_with, clients, idle, in_line, next_sent, queued, rises,
    soon, ttl,
};
use crate::expect::{fails, times_out};

/// Readers share, a writer is alone, and each stands in the order of arrival.
pub async fn readers_share_and_writers_are_alone(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let (ours, theirs) = (a.rwlock("k")?, b.rwlock("k")?);
    let one = ours.read().await?;
    let two = theirs.try_read().await?.ok_or("a lease")?;
    assert!(two.number() > one.number(), "grants are numbered");
    assert!(theirs.try_write().await?.is_none());
    let writer = in_line(&a, "k", 1, async move { theirs.write().await }).await;
    let late = ours.try_read().await?;
    assert!(late.is_none(), "behind the writer that waits");
    drop((one, two));
    let writer = soon("the writer", writer).await??;
    times_out(async |limit| ours.read_within(limit).await).await;
    assert!(a.mutex("k")?.try_lock().await?.is_none());
    let _ = writer.release().await?;
    idle(&a, "k").await;
    Ok(())
}

/// A downgrade lets in the readers that are next, and no writer between.
pub async fn a_downgrade_lets_no_writer_between(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let (ours, theirs) = (a.rwlock("k")?, b.rwlock("k")?);
    let writer = ours.write().await?;
    let (token, saved) = (writer.token(), writer.parts()?);
    let lock = theirs.clone();
    let reader = in_line(&a, "k", 1, async move { lock.read().await }).await;
    let next = in_line(&a, "k", 2, async move { theirs.write().await }).await;
    let downgraded = writer.downgrade().await?;
    assert_eq!(downgraded.number().get(), token.get(), "the same grant");
    let reader = soon("the reader next to it", reader).await??;
    assert_eq!(a.inspect("k").await?.waiters.len(), 1);
    assert!(downgraded.is_valid(), "and it stays");
    assert_eq!(downgraded.mode(), Mode::SHARED);
    // Its parts from before would make a writer of it, beside the other reader.
    fails(ours.adopt_by_force(&saved).await, ErrorKind::Lost);
    downgraded.renew().await?;
    assert_eq!(downgraded.release().await?, Released::Held);
    drop(reader);
    let writer = soon("the writer", next).await??;
    assert!(writer.token() > token);
    Ok(())
}

/// 1,000 readers and 20 writers, a quarter of each where all of them have to ask whether it is
/// their turn: each group of readers between two writers runs together, strictly in order of
/// arrival.
pub async fn reader_groups_run_together_in_order(fixture: &dyn Fixture) -> Outcome {
    // On a busy machine a thousand claims on one key take their time; and one that has lost its place
    // keeps all of its group waiting.
    let patient = ttl(LIMIT / 3).with_waiter_ttl(LIMIT / 3);
    let settings = patient.with_operation_timeout(LIMIT / 6);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client_with(fixture, settings.clone()).await);
    }
    let gate = clients[0].rwlock("k")?.write().await?;
    // Fewer where each step takes longer the more of them there are: where all of them ask from
    // time to time, and in files, which are read and written as a whole.
    let capabilities = clients[0].capabilities();
    let fewer = !capabilities.push || capabilities.liveness;
    // How many readers stand before each writer.
    let groups = [0, 1, 90, 3, 156].repeat(if fewer { 1 } else { 4 });
    let inside = Arc::new(AtomicI64::new(0));
    let (served, mut order) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let mut waiters = 0;
    for (group, readers) in groups.into_iter().enumerate() {
        let barrier = Arc::new(Barrier::new(readers));
        for _ in 0..readers {
            let lock = clients[waiters % clients.len()].rwlock("k")?;
            let (inside, served, barrier) = (inside.clone(), served.clone(), barrier.clone());
            waiters += 1;
            tasks.spawn(async move {
                let lease = lock.read().await.expect("a lease");
                let before = inside.fetch_add(1, Ordering::SeqCst);
                assert!(before >= 0, "no writer inside");
                // Only if the whole group is inside at once does anybody pass.
                barrier.wait().await;
                let turn = (2 * group, lease.number().get());
                served.send(turn).expect("somebody listens");
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = lease.release().await.expect("an answer");
            });
        }
        // The readers of a group may come in any order; the writer comes after all of them.
        queued(&clients[0], "k", waiters).await;
        let lock = clients[waiters % clients.len()].rwlock("k")?;
        let (inside, served) = (inside.clone(), served.clone());
        waiters += 1;
        tasks.spawn(async move {
            let lease = lock.write().await.expect("a lease");
            assert_eq!(inside.swap(-1, Ordering::SeqCst), 0, "a writer is alone");
            let turn = (2 * group + 1, lease.token().get());
            served.send(turn).expect("somebody listens");
            inside.store(0, Ordering::SeqCst);
            let _ = lease.release().await.expect("an answer");
        });
        queued(&clients[0], "k", waiters).await;
    }
    drop(served);
    let _ = gate.release().await?;
    let mut seen = Vec::new();
    while let Some(turn) = next_sent(&clients[0], &mut order, &mut tasks).await? {
        seen.push(turn);
    }
    tasks.join_all().await;
    assert_eq!(seen.len(), waiters);
    let in_groups = seen.is_sorted_by_key(|(turn, _)| *turn);
    assert!(in_groups, "group by group: {seen:?}");
    let mut numbers = std::collections::BTreeMap::new();
    for (turn, number) in seen {
        let range = numbers.entry(turn).or_insert((number, number));
        *range = (range.0.min(number), range.1.max(number));
    }
    let ranges: Vec<_> = numbers.into_values().collect();
    let rise = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
    assert!(rise, "tokens rise");
    Ok(())
}

/// Permits held never exceed those there are; each lease has its own.
pub async fn a_semaphore_admits_so_many(fixture: &dyn Fixture) -> Outcome {
    const PERMITS: u32 = 3;
    let inside = Arc::new(AtomicU64::new(0));
    let most = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..4 {
        let client = client(fixture).await;
        for m in 0..4_u32 {
            let lock = client.semaphore("k", PERMITS)?;
            let (inside, most) = (inside.clone(), most.clone());
            tasks.spawn(async move {
                for round in 0..10 {
                    let take = 1 + (n + m + round) % PERMITS;
                    let lease = lock.acquire_many(take).await.expect("a lease");
                    let now = inside.fetch_add(u64::from(take), Ordering::SeqCst) + u64::from(take);
                    assert!(now <= u64::from(PERMITS), "{now} permits in use");
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(u64::from(take), Ordering::SeqCst);
                    let _ = lease.release().await.expect("an answer");
                }
            });
        }
    }
    soon("everyone's turn", tasks.join_all()).await;
    let most = most.load(Ordering::SeqCst);
    assert_eq!(most, u64::from(PERMITS), "and all are used");
    let other = client(fixture).await;
    let held = other.semaphore("k", PERMITS)?.acquire().await?;
    let wrong = fails(other.semaphore("k", 7)?.acquire().await, ErrorKind::Invalid);
    let text = wrong.to_string();
    let both = text.contains("3 permits") && text.contains("7 permits");
    assert!(both, "names both: {text}");
    // A semaphore is no lock.
    fails(other.mutex("k")?.try_lock().await, ErrorKind::Invalid);
    drop(held);
    Ok(())
}

/// Resizing compares and sets; growing lets in, shrinking takes nothing away,
/// and who can never fit any more is told.
pub async fn a_semaphore_is_resized_in_use(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let two = a.semaphore("k", 2)?;
    let held = two.acquire_many(2).await?;
    let theirs = b.semaphore("k", 2)?;
    let waiter = in_line(&a, "k", 1, async move { theirs.acquire().await }).await;
    let three = two.resize(3).await?;
    let third = soon("the waiter", waiter).await??;
    let refused = fails(two.resize(9).await, ErrorKind::Invalid);
    assert!(refused.to_string().contains("3 permits"), "{refused}");
    let lock = b.semaphore("k", 3)?;
    let heavy = in_line(&a, "k", 1, async move { lock.acquire_many(3).await }).await;
    let one = three.resize(1).await?;
    fails(soon("the heavy waiter", heavy).await?, ErrorKind::Invalid);
    assert!(held.is_valid() && third.is_valid(), "nothing is revoked");
    held.renew().await?;
    let _ = held.release().await?;
    assert!(one.try_acquire().await?.is_none(), "one is still held");
    let _ = third.release().await?;
    assert!(one.try_acquire().await?.is_some());
    Ok(())
}

/// An owner enters again at once, from anywhere, under the same token; the key
/// is free when its last claim has left, in whatever order.
pub async fn an_owner_enters_again(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let owner = Owner::new();
    let (here, there) = (a.reentrant("k", &owner)?, b.reentrant("k", &owner)?);
    let outer = here.lock().await?;
    let stranger = b.reentrant("k", &Owner::new())?;
    let waiting = in_line(&a, "k", 1, async move { stranger.lock().await }).await;
    let inner = soon("the owner", there.lock()).await?;
    let innermost = here.try_lock().await?.ok_or("a lease")?;
    let tokens = (inner.token(), innermost.token());
    assert_eq!(tokens, (outer.token(), outer.token()));
    let again = Owner::parse(&owner.expose())?;
    assert!(b.reentrant("k", &again)?.try_lock().await?.is_some());
    let _ = outer.release().await?;
    let _ = innermost.release().await?;
    // One claim is left.
    assert!(inner.is_valid() && !waiting.is_finished());
    inner.renew().await?;
    let _ = inner.release().await?;
    let lease = soon("the stranger", waiting).await?;
    assert!(lease.is_ok());
    Ok(())
}

/// Two claims of one owner that both wait are let in together: one of them may
/// be what the other's work waits for.
pub async fn waiting_claims_of_an_owner_enter_together(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let gate = a.mutex("k")?.lock().await?;
    let owner = Owner::new();
    let both = Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for client in [&a, &b] {
        let lock = client.reentrant("k", &owner)?;
        let both = both.clone();
        tasks.spawn(async move {
            let lease = lock.lock().await.expect("a lease");
            both.wait().await;
            lease.token()
        });
    }
    queued(&a, "k", 2).await;
    let _ = gate.release().await?;
    let tokens = soon("both", tasks.join_all()).await;
    assert_eq!(tokens[0], tokens[1]);
    Ok(())
}

/// Several keys at once: all or nothing, in any order of naming.
pub async fn several_keys_are_one_lock(fixture: &dyn Fixture) -> Outcome {
    // Where nothing is told, a loss is found by the next renewal.
    let a = client_with(fixture, ttl(Duration::from_secs(6))).await;
    let b = client(fixture).await;
    let names = ["k/2", "k/1", "k/3"];
    let lock = a.multi(names)?;
    let lease = lock.lock().await?;
    let keys: Vec<_> = lease.tokens().map(|(key, _)| key.to_string()).collect();
    assert_eq!(keys, names, "as they were named");
    for key in names {
        let single = b.mutex(key)?.try_lock().await?;
        assert!(single.is_none(), "{key} is held");
    }
    assert_eq!(lease.release().await?, Released::Held);

    let part = b.mutex("k/3")?.lock().await?;
    assert!(lock.try_lock().await?.is_none());
    for key in ["k/1", "k/2"] {
        idle(&b, key).await;
    }
    times_out(async |limit| lock.lock_within(limit).await).await;
    for key in ["k/1", "k/2"] {
        idle(&b, key).await;
    }
    let waiting = in_line(&a, "k/3", 1, async move { lock.lock().await }).await;
    let _ = part.release().await?;
    let lease = soon("all keys", waiting).await??;
    // Losing one part loses the whole.
    b.break_key("k/2").await?;
    soon("the loss", lease.lost()).await;
    assert!(!lease.is_valid());
    assert_eq!(lease.release().await?, Released::AlreadyGone);

    fails(a.multi(["x", "y", "x"]), ErrorKind::Invalid);
    assert!(a.multi(Vec::<String>::new()).is_err());
    Ok(())
}

/// Multi-locks that name their keys in opposite orders never wait in a circle,
/// and exclude each other.
pub async fn multi_locks_do_not_deadlock(fixture: &dyn Fixture) -> Outcome {
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..6 {
        let client = client(fixture).await;
        let names = [["k/1", "k/2"], ["k/2", "k/1"]][n % 2];
        let (lock, inside) = (client.multi(names)?, inside.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let lease = lock.lock().await.expect("a lease");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = lease.release().await.expect("an answer");
            }
        });
    }
    soon("everyone's turn", tasks.join_all()).await;
    Ok(())
}

/// Candidates lead in turn, with rising terms; observers hear of each.
pub async fn leaders_follow_each_other(fixture: &dyn Fixture) -> Outcome {
    let [a, b, c] = clients(fixture).await;
    // A record that does not name its owner has no place for a note.
    let notes = c.capabilities().owners;
    let note = move |text: &'static str| if notes { text } else { "" };
    let told = move |text: &'static str| notes.then_some(text);
    let (one, two) = (a.election("k")?, b.election("k")?);
    let mut leaders = c.election("k")?.observe();
    assert_eq!(soon("a look", leaders.next()).await?, None);
    let first = one.campaign(note("first")).await?;
    let seen = soon("the first", leaders.next()).await?.ok_or("a leader")?;
    let shown = (seen.term, seen.note.as_deref());
    assert_eq!(shown, (first.term(), told("first")));
    let standing = tokio::spawn(async move { two.campaign(note("second")).await });
    queued(&a, "k", 1).await;
    assert!(one.try_campaign(note("third")).await?.is_none());
    if notes {
        first.proclaim("first, still").await?;
        let seen = soon("the note", leaders.next()).await?.ok_or("a leader")?;
        assert_eq!(seen.note.as_deref(), Some("first, still"));
    }
    let term = first.term();
    let _ = first.resign().await?;
    let second = soon("the second", standing).await??;
    assert!(rises(&a, term, second.term()));
    let seen = soon("the next", leaders.next()).await?.ok_or("a leader")?;
    let shown = (seen.term, seen.note.as_deref());
    assert_eq!(shown, (second.term(), told("second")));
    let leader = one.leader().await?.ok_or("a leader")?;
    assert_eq!(leader.term, second.term());
    drop(second);
    assert_eq!(soon("nobody", leaders.next()).await?, None);
    let long = "x".repeat(2000);
    fails(one.campaign(&long).await, ErrorKind::Invalid);
    Ok(())
}

/// A minimum hold outlives the release and whoever made it.
pub async fn a_minimum_hold_outlives_its_lease(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let hold = Duration::from_millis(800);
    let lock = a.mutex("k")?.with_min_hold(hold);
    let before = tokio::time::Instant::now();
    let lease = lock.lock().await?;
    assert_eq!(lease.release().await?, Released::Held);
    let seen = b.inspect("k").await?;
    assert!(seen.holders[0].kept, "{seen:?}");
    let theirs = b.mutex("k")?;
    assert!(theirs.try_lock().await?.is_none());
    let next = soon("its end", theirs.lock()).await?;
    assert!(before.elapsed() >= hold, "{:?}", before.elapsed());
    drop(next);
    Ok(())
}

/// What was granted and never handed to its caller is not kept: one key of
/// several whose others were not free, or a wait that was cut short.
pub async fn a_minimum_hold_counts_from_use(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let hold = Duration::from_secs(600);
    let theirs = b.mutex("k2")?.lock().await?;
    let both = a.multi(["k1", "k2"])?;
    let both = both.with_min_hold(hold);
    times_out(async |limit| both.lock_within(limit).await).await;
    idle(&b, "k1").await;

    let lock = a.mutex("k2")?;
    let lock = lock.with_min_hold(hold);
    let waiting = in_line(&b, "k2", 1, async move { lock.lock().await }).await;
    let _ = theirs.release().await?;
    waiting.abort();
    if let Ok(lease) = waiting.await {
        // It was quicker: then it has been in hand, and is kept.
        drop(lease);
        b.break_key("k2").await?;
    }
    idle(&b, "k2").await;

    let lease = both.lock().await?;
    let _ = lease.release().await?;
    for key in ["k1", "k2"] {
        let seen = b.inspect(key).await?;
        assert!(seen.holders[0].kept, "{seen:?}");
    }
    Ok(())
}

/// A lease is not renewed beyond its longest hold, and says why it ended.
pub async fn a_maximum_hold_ends_a_lease(fixture: &dyn Fixture) -> Outcome {
    let client = client_with(fixture, ttl(Duration::from_millis(1_200))).await;
    let hold = Duration::from_millis(2_500);
    let lock = client.mutex("k")?.with_max_hold(hold);
    let before = tokio::time::Instant::now();
    let lease = lock.lock().await?;
    let granted = tokio::time::Instant::now();
    let lost = soon("its end", lease.lost()).await;
    assert_eq!(lost, leasehold::Loss::MaxHold);
    // Granted somewhere between the two.
    assert!(before.elapsed() >= hold / 2, "{:?}", before.elapsed());
    let took = granted.elapsed();
    assert!(took <= hold + Duration::from_millis(500), "{took:?}");
    drop(lease);
    assert!(soon("the next", lock.lock()).await.is_ok());
    Ok(())
}

/// Those who do not stand in line get the key too, by asking again.
pub async fn retries_get_the_key(fixture: &dyn Fixture) -> Outcome {
    let [a, b] = clients(fixture).await;
    let held = a.mutex("k")?.lock().await?;
    let ms = Duration::from_millis;
    let (base, cap) = (ms(2), ms(20));
    let retries = [
        Retry::Fixed(ms(5)),
        Retry::FullJitter { base, cap },
        Retry::Decorrelated { base, cap },
    ];
    let mut tasks = JoinSet::new();
    for retry in retries {
        let lock = b.mutex("k")?.retrying(retry);
        times_out(async |limit| lock.lock_within(limit).await).await;
        tasks.spawn(async move { lock.lock().await.expect("a lease").release().await });
    }
    assert!(a.inspect("k").await?.waiters.is_empty(), "nobody in line");
    let _ = held.release().await?;
    let released = soon("all of them", tasks.join_all()).await;
    assert!(released.iter().all(Result::is_ok));
    Ok(())
}

/// The blocking face works in a thread, and inside a runtime, where it holds
/// up nobody else.
pub async fn blocking_calls_work_anywhere(fixture: &dyn Fixture) -> Outcome {
    let store = fixture.client().await;
    let client = tokio::task::spawn_blocking(move || {
        let builder = leasehold::blocking::Client::builder();
        builder.with_store(store).connect().expect("a client")
    })
    .await?;
    let lock = client.mutex("k")?;
    // Here, on a thread of the runtime, many times: a task's budget must not matter.
    for _ in 0..300 {
        let lease = lock.lock()?;
        let _ = lease.release()?;
    }
    let lease = lock.lock()?;
    assert!(lock.lock_within(Duration::from_millis(30)).is_err());
    let waiting = std::thread::spawn(move || lock.lock().expect("a lease").token());
    queued(client.as_async(), "k", 1).await;
    let token = lease.token();
    drop(lease);
    let next = tokio::task::spawn_blocking(move || waiting.join().expect("no panic"));
    let later = soon("the thread", next).await?;
    assert!(rises(client.as_async(), token, later));
    let election = client.election("e")?;
    let single = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("one");
        runtime.block_on(async { election.campaign("").expect("a term").resign() })
    });
    assert!(single.await?.is_ok());
    let done = client.shutdown(Duration::from_secs(5));
    assert_eq!(done.unconfirmed, 0);
    Ok(())
}
