//! Many processes for one lock: hundreds at once, in line, killed, frozen, and robbed of their
//! server.
//!
//! The figures that these cases bound are printed; `cargo test --test it many:: -- --nocapture` shows
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime};

use crate::common::{Store, on_store, pairs, within};
use leasehold_testkit::dice::Dice;
use leasehold_testkit::process::{Process, Signal};
use leasehold_testkit::server::Data;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// What a crowd may take on a busy machine; it only decides how soon a failing test fails.
const LONG: Duration = Duration::from_secs(240);

/// What a busy machine may add to a bound: it starts processes and schedules them.
const SLACK: Duration = Duration::from_secs(3);

/// Cases that measure or crowd the machine do it one after the other.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

/// Each case on the local store and on a real server. What it borrows is a part of the pair, which
/// lives, as its guard does, until the case has ended.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        on_store!(local: (super::alone().await, super::Store::local()).1; $($case),*);
        on_store!(redis: (super::alone().await, super::Store::redis()).1; $($case),*);
    };
}

on_both!(
    two_hundred_commands_lose_no_update_to_kills,
    thirty_waiters_are_served_in_order_of_start,
    a_waiter_killed_next_in_line_delays_little,
    a_waiter_killed_behind_a_former_waiter_delays_little,
    ten_waiters_killed_in_line_keep_nobody_for_ever,
    a_crashed_holder_is_followed_at_its_end,
    a_crash_is_noticed_by_one_who_came_from_far_back,
);

/// Every update is a line "token number" of a file that is replaced as a whole, and then one of a
/// log: the first is the truth that must not be lost, the second what was finished. Before it stands
/// at which of its points it hangs, to be killed there.
const UPDATE: &str = "
    read -r _ _ _ holder _ < /proc/$PPID/stat
    at() { [ $hangs != $1 ] || { echo \"$LEASEHOLD_TOKEN $holder\" >> hung; sleep 600; }; }
    echo \"$LEASEHOLD_TOKEN $holder\" >> began
    at 0
    n=$(($(wc -l < truth) + 1))
    { cat truth; echo \"$LEASEHOLD_TOKEN $n\"; } > new.$LEASEHOLD_TOKEN
    at 1
    mv new.$LEASEHOLD_TOKEN truth
    at 2
    echo \"$LEASEHOLD_TOKEN $n\" >> log
    at 3";
const POINTS: u64 = 4;

async fn two_hundred_commands_lose_no_update_to_kills(store: &Store) {
    // Where the dead are seen the longest lease is no delay. Elsewhere each of them costs one, and a
    // busy machine still has to renew it in time.
    let (kills, ttl, lease) = match kind(store) {
        "local" => (15, "30s", Duration::from_secs(30)),
        _ => (4, "10s", Duration::from_secs(10)),
    };
    let seed = RandomState::new().hash_one("seed");
    let mut dice = Dice(seed);
    for file in ["began", "hung", "truth", "log"] {
        fs::write(store.path(file), "").unwrap();
    }
    let mut points = vec![POINTS; 200];
    // Each point once at least, and each victim among as many others.
    let groups = points.chunks_exact_mut(200 / kills).take(kills);
    for (group, point) in groups.zip((0..POINTS).cycle()) {
        let of = u64::try_from(group.len()).unwrap();
        group[usize::try_from(dice.roll(of)).unwrap()] = point;
    }
    let run = format!("run -q --ttl {ttl} k -- sh -c");
    let spawn = |hangs: &u64| store.spawn((&run, &format!("hangs={hangs}{UPDATE}")));
    let mut running: Vec<_> = points.iter().map(spawn).collect();

    let mut freed = Vec::new();
    for killed in 0..kills {
        let hung = || pairs(&store.path("hung")).get(killed).copied();
        let is_hung = within(LONG, async || hung().is_some()).await;
        assert!(is_hung, "they hang: {running:?}");
        let seen = pairs(&store.path("began")).len();
        tokio::time::sleep(dice.millis(0, 12)).await;
        let is_hung = |each: &Process| hung().is_some_and(|it| it.1 == u64::from(each.pid()));
        let victim = running.swap_remove(running.iter().position(is_hung).unwrap());
        let shot = Instant::now();
        victim.signal(Signal::KILL);
        // Its output ends with all that it started.
        let ended = victim.finish().await;
        assert_eq!(ended.status.signal(), Some(9), "{}", ended.stderr);
        let gone = Instant::now();
        let next = || pairs(&store.path("began")).len() > seen;
        let goes_on = async || next() || running.iter().all(|each| each.status().is_some());
        assert!(within(LONG, goes_on).await, "they hang: {running:?}");
        if next() {
            freed.push((shot.elapsed(), gone.elapsed()));
        }
    }
    all_succeed(running).await;
    // Where the last of all was killed nobody asked for the key: its lease ends by itself.
    let is_left = async || store.show("k").await["holders"] == json!([]);
    let is_over = within(10 * lease, is_left).await;
    assert!(is_over, "a dead holder keeps the key");
    is_free(store).await;

    let (truth, log) = (pairs(&store.path("truth")), pairs(&store.path("log")));
    let since_shot = freed.iter().map(|times| times.0).max().unwrap_or_default();
    let since_gone = freed.iter().map(|times| times.1).max().unwrap_or_default();
    println!(
        "{}: {kills} killed (seed {seed}), {} updates, {} logged; the next began at most \
         {since_shot:?} after the kill, {since_gone:?} after the last of the killed was gone",
        kind(store),
        truth.len(),
        log.len(),
    );
    let numbers: Vec<_> = truth.iter().map(|line| line.1).collect();
    let expected: Vec<_> = (1..=truth.len() as u64).collect();
    assert_eq!(numbers, expected, "{truth:?}");
    assert!(truth.is_sorted_by(|a, b| a.0 < b.0), "{truth:?}");
    assert!(log.is_sorted_by(|a, b| a.0 < b.0), "{log:?}");
    assert!(log.iter().all(|line| truth.contains(line)), "lost: {log:?}");
    // Whoever was not killed has finished; whoever was may have come to any point.
    assert!(log.len() >= 200 - kills, "{} logged", log.len());
    assert!(truth.len() <= 200);
    let began = pairs(&store.path("began"));
    assert!(began.is_sorted_by(|a, b| a.0 < b.0), "{began:?}");
    if kind(store) == "local" {
        // Nobody has waited for a lease to end.
        assert!(since_gone < lease / 2, "{since_gone:?}");
    } else {
        let latest = lease + Duration::from_millis(300) + SLACK;
        assert!(since_shot < latest, "{since_shot:?}");
    }
}

async fn thirty_waiters_are_served_in_order_of_start(store: &Store) {
    let (holder, first) = store.holder("k").await;
    let waiters = line_up(store, "run -q", 1..=30).await;
    holder.signal(Signal::TERM);
    let released = Instant::now();
    all_succeed(waiters).await;
    println!("{}: 30 served in {:?}", kind(store), released.elapsed());
    let order = pairs(&store.path("order"));
    let numbers: Vec<_> = order.iter().map(|line| line.1).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>());
    assert!(order.is_sorted_by(|a, b| a.0 < b.0), "{order:?}");
    assert!(order[0].0 > first);
}

async fn a_waiter_killed_next_in_line_delays_little(store: &Store) {
    for round in 1..=3 {
        let (holder, _) = store.holder("k").await;
        next_in_line_is_killed(store, holder, &format!("round {round}")).await;
    }
    is_free(store).await;
}

/// As above, where the one who releases has waited before: it has listened to the store.
async fn a_waiter_killed_behind_a_former_waiter_delays_little(store: &Store) {
    for round in 1..=3 {
        let (earlier, _) = store.holder("k").await;
        let holder = store.spawn("hold k");
        in_line(store, [&holder]).await;
        earlier.signal(Signal::TERM);
        holder.prints("").await;
        next_in_line_is_killed(store, holder, &format!("a former waiter, round {round}")).await;
    }
    is_free(store).await;
}

async fn next_in_line_is_killed(store: &Store, holder: Process, what: &str) {
    let first = store.spawn("run -q k -- true");
    in_line(store, [&first]).await;
    let second = store.spawn("run -q k -- date +%s%N");
    in_line(store, [&first, &second]).await;
    first.signal(Signal::KILL);
    first.wait().await;
    let released = SystemTime::now();
    holder.signal(Signal::TERM);
    let delay = ran_at(second).await.duration_since(released).unwrap();
    let store = kind(store);
    println!(
        "{store}: killed next in line, {what}: the one behind ran {delay:?} after the release"
    );
    assert!(delay < Duration::from_millis(1_500) + SLACK, "{delay:?}");
}

async fn ten_waiters_killed_in_line_keep_nobody_for_ever(store: &Store) {
    let (holder, _) = store.holder("k").await;
    // Among the dead, and behind them, some live: 3, 7 and 12.
    let waiters = line_up(store, "run -q", 0..=12).await;
    let lives = |number: usize| [3, 7, 12].contains(&number);
    let (mut dead, mut live) = (Vec::new(), Vec::new());
    for (number, waiter) in waiters.into_iter().enumerate() {
        if lives(number) { &mut live } else { &mut dead }.push(waiter);
    }
    for waiter in &dead {
        waiter.signal(Signal::KILL);
    }
    for waiter in dead {
        assert_eq!(waiter.wait().await.signal(), Some(9));
    }
    let released = Instant::now();
    holder.signal(Signal::TERM);
    all_succeed(live).await;
    println!(
        "{}: ten killed in line, the three others served in {:?}",
        kind(store),
        released.elapsed()
    );
    let order = pairs(&store.path("order"));
    let numbers: Vec<_> = order.iter().map(|line| line.1).collect();
    assert_eq!(numbers, [3, 7, 12]);
    is_free(store).await;
}

async fn a_crashed_holder_is_followed_at_its_end(store: &Store) {
    let mut measured = 0;
    for _ in 0..10 {
        let script = "echo up; exec sleep 600";
        let holder = store.up(("run -q --ttl 1s k -- sh -c", script)).await;
        let waiter = store.spawn("run -q k -- date +%s%N");
        in_line(store, [&waiter]).await;
        // Frozen first, so that no renewal comes between the look at its end and its death.
        holder.signal(Signal::STOP);
        let shown = store.show("k").await;
        let killed = SystemTime::now();
        holder.ends_by(Signal::KILL).await;
        let gone = SystemTime::now();
        let ran = ran_at(waiter).await;

        // A machine that took a whole lease to look has seen nothing: once more.
        let Some(held) = shown["holders"].get(0) else {
            continue;
        };
        if held["expires_in_ms"] == 0 || held["token"].is_null() {
            continue;
        }
        measured += 1;
        let at: jiff::Timestamp = shown["at"].as_str().unwrap().parse().unwrap();
        let left = Duration::from_millis(held["expires_in_ms"].as_u64().unwrap());
        let end = SystemTime::from(at) + left;
        println!(
            "{}: crash, round {measured}: {} ms of lease left, the next ran {} ms after the kill, \
             {} ms after all were gone, {} ms after the end of the lease",
            kind(store),
            held["expires_in_ms"],
            signed_ms(killed, ran),
            signed_ms(gone, ran),
            signed_ms(end, ran),
        );
        if kind(store) == "local" {
            assert!(ran < gone + Duration::from_secs(1) + SLACK);
        } else {
            assert!(ran < end + Duration::from_millis(300) + SLACK);
            // Not before it either, by the one clock of this machine.
            assert!(ran + Duration::from_millis(5) > end);
        }
        if measured == 3 {
            return;
        }
    }
    assert!(measured > 0, "no look at the lease was in time");
}

/// The line moves up by twenty in no time, and then the holder is killed: whoever was far back a
/// moment ago is the only one left to notice.
async fn a_crash_is_noticed_by_one_who_came_from_far_back(store: &Store) {
    let (holder, _) = store.holder("k").await;
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(store.spawn("run -q k -- true"));
        in_line(store, &waiters).await;
    }
    let script = "echo up; exec sleep 600";
    let ttl = if kind(store) == "local" { "30s" } else { "1s" };
    waiters.push(store.spawn((&format!("run -q --ttl {ttl} k -- sh -c"), script)));
    in_line(store, &waiters).await;
    waiters.push(store.spawn("run -q k -- date +%s%N"));
    in_line(store, &waiters).await;
    let (last, crashing) = (waiters.pop().unwrap(), waiters.pop().unwrap());
    holder.signal(Signal::TERM);
    crashing.prints("up").await;
    crashing.ends_by(Signal::KILL).await;
    let gone = SystemTime::now();
    all_succeed(waiters).await;
    let delay = ran_at(last).await.duration_since(gone).unwrap();
    let store = kind(store);
    println!("{store}: crash, from far back: the next ran {delay:?} after all were gone");
    // Who comes from the queue has three seconds at least.
    let bound = match store {
        "local" => Duration::from_secs(1),
        _ => Duration::from_millis(3_300),
    };
    assert!(delay < bound + SLACK, "{delay:?}");
}

/// One holds, five wait, and the server forgets them all.
#[tokio::test]
async fn a_server_that_restarts_empty_keeps_nobody_waiting() {
    let _alone = alone().await;
    let store = Store::redis();
    let script = "echo $LEASEHOLD_TOKEN; exec sleep 600";
    let holder = store.spawn(("run --ttl 3s k -- sh -c", script));
    let first: u64 = holder.prints("").await.parse().unwrap();
    let waiters = line_up(&store, "run --ttl 3s", 1..=5).await;
    let forgotten = Instant::now();
    store.server().restart(Data::Lose);
    ends(&holder).await;
    let told = forgotten.elapsed();
    holder.finish().await.has_code(Some(79));
    for waiter in waiters {
        ends(&waiter).await;
        waiter.finish().await.has_code(Some(0));
    }
    let order = pairs(&store.path("order"));
    println!(
        "forgotten: the holder ended after {told:?}, all five had run after {:?}, in the order {:?}",
        forgotten.elapsed(),
        order.iter().map(|line| line.1).collect::<Vec<_>>()
    );
    assert_eq!(order.len(), 5);
    assert!(order.is_sorted_by(|a, b| a.0 < b.0), "{order:?}");
    assert!(order[0].0 > first, "{first}, then {order:?}");
    is_free(&store).await;
}

/// Where the store is: "local" or "redis".
fn kind(store: &Store) -> &str {
    store.url.split(':').next().unwrap()
}

/// Waits for the end of a process, for longer than the testkit would.
async fn ends(process: &Process) {
    let has_ended = async || process.status().is_some();
    assert!(within(LONG, has_ended).await, "it hangs: {process}");
}

/// Waits for the end of them all, which must be a quiet success.
async fn all_succeed(all: Vec<Process>) {
    let (count, mut failed) = (all.len(), BTreeMap::<_, usize>::new());
    for each in all {
        ends(&each).await;
        let ended = each.finish().await;
        if (ended.code(), &*ended.stderr) != (Some(0), "") {
            *failed.entry((ended.code(), ended.stderr)).or_default() += 1;
        }
    }
    assert!(failed.is_empty(), "of {count} failed: {failed:#?}");
}

/// Puts so many in line, each of which writes its token and its number into the file `order`.
async fn line_up(store: &Store, run: &str, numbers: RangeInclusive<u64>) -> Vec<Process> {
    let mut waiters = Vec::new();
    for number in numbers {
        let script = format!("echo $LEASEHOLD_TOKEN {number} >> order");
        waiters.push(store.spawn((&format!("{run} k -- sh -c"), &script)));
        in_line(store, &waiters).await;
    }
    waiters
}

/// Waits until exactly these wait, in this order.
async fn in_line<'a>(store: &Store, waiters: impl IntoIterator<Item = &'a Process>) {
    let pids = waiters.into_iter().map(|each| u64::from(each.pid()));
    let pids: Vec<_> = pids.collect();
    let waiting = within(LONG, async || store.waiting("k").await == pids).await;
    assert!(waiting, "not {pids:?}: {:?}", store.waiting("k").await);
}

/// Waits until nobody holds the lock or waits for it: who was passed over keeps its place for a
/// second.
async fn is_free(store: &Store) {
    let nobody = async || {
        let shown = store.show("k").await;
        shown["holders"] == json!([]) && shown["waiters"] == json!([])
    };
    assert!(within(LONG, nobody).await, "{}", store.show("k").await);
}

/// When a process ran that has nothing to do but to say so.
async fn ran_at(process: Process) -> SystemTime {
    ends(&process).await;
    let ended = process.ends(0).await;
    SystemTime::UNIX_EPOCH + Duration::from_nanos(ended.stdout.trim().parse().unwrap())
}

/// The milliseconds from one time to another, which may be before it.
fn signed_ms(from: SystemTime, to: SystemTime) -> i128 {
    let ms = |time: Duration| time.as_millis().cast_signed();
    to.duration_since(from)
        .map_or_else(|error| -ms(error.duration()), ms)
}
