//! The command of an earlier version beside this one, on one store, as while a fleet is upgraded.
//!
//! `scripts/upgrade` builds the earlier one and runs these; without it they are ignored. On one
//! server an earlier client that meets a present one which holds alone is refused, and says why;
//! in all else both keep to one queue.

use std::env;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold::{Client, Lease, LockOptions};
use leasehold_testkit::deployment::Cluster;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// What an earlier client is told of a key that a present one holds alone.
const REFUSED: &str = "newer than this client";

/// Longer than a hand-off takes even if the grant has to be asked for: a third of the waiter TTL.
const HAND_OFF: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Earlier,
    Present,
}
use Version::{Earlier, Present};

const PAIRINGS: [(Version, Version); 4] = [
    (Earlier, Present),
    (Present, Earlier),
    (Present, Present),
    (Earlier, Earlier),
];

/// A store that both use.
struct Site {
    store: Store,
    /// Whether a client that holds alone is told to earlier ones by a format that they refuse.
    refuses: bool,
    /// It ends with the test.
    _cluster: Option<Cluster>,
}

impl Site {
    fn server() -> Self {
        Self {
            store: Store::redis(),
            refuses: true,
            _cluster: None,
        }
    }

    fn cluster() -> Self {
        let cluster = Cluster::builder().replicas(0).start();
        Self {
            store: Store::at(cluster.url(), None),
            refuses: false,
            _cluster: Some(cluster),
        }
    }

    /// The command of a version.
    fn command(&self, version: Version, arguments: impl Arguments) -> Command {
        let present = self.store.command(arguments);
        if version == Present {
            return present;
        }
        let program = env::var_os("LEASEHOLD_EARLIER").expect("scripts/upgrade says where it is");
        let mut earlier = Command::new(program);
        in_environment_of(&present, &mut earlier);
        earlier.args(present.get_args());
        earlier
    }

    fn spawn(&self, version: Version, arguments: impl Arguments) -> Process {
        Process::spawn(self.command(version, arguments))
    }

    async fn run(&self, version: Version, arguments: impl Arguments) -> Finished {
        self.spawn(version, arguments).finish().await
    }

    /// A process that holds, and has said so.
    async fn holder(&self, version: Version, arguments: &str) -> Process {
        let holder = self.spawn(version, format!("hold {arguments}"));
        holder.prints("").await;
        holder
    }

    /// Whether it is refused by the format, and not by the queue.
    fn is_refused(&self, holder: Version, rival: Version) -> bool {
        self.refuses && (holder, rival) == (Present, Earlier)
    }

    /// Somebody who does not wait does not get in: what it is told.
    async fn is_taken(&self, key: &str, holder: Version, rival: Version, mode: &str) -> String {
        let run = format!("run -n {key} {mode} -- echo ran");
        let ended = self.run(rival, run).await;
        let refused = ended.stderr.contains(REFUSED);
        let status = if refused { 69 } else { 75 };
        ended.has_printed(Some(status), "");
        assert!(!refused || rival == Earlier, "{holder:?}: {}", ended.stderr);
        ended.stderr
    }
}

/// Each case on one server and on a cluster.
macro_rules! on_each_site {
    ($($case:ident),* $(,)?) => {
        mod server {
            $(#[tokio::test]
            #[ignore = "scripts/upgrade builds what it needs"]
            async fn $case() {
                super::$case(&super::Site::server()).await;
            })*
        }
        mod cluster {
            $(#[tokio::test]
            #[ignore = "scripts/upgrade builds what it needs"]
            async fn $case() {
                super::$case(&super::Site::cluster()).await;
            })*
        }
    };
}

on_each_site!(
    a_holder_keeps_the_other_out_for_as_long_as_it_renews,
    a_holder_goes_on_whoever_looks_at_its_key,
    a_key_is_handed_on,
    those_who_wait_are_served_in_order,
    a_dead_holder_is_followed,
    readers_and_permits_are_counted_together,
    a_crowd_of_both_counts_right,
    a_run_is_waited_for,
    a_run_outlives_a_break,
);

async fn a_holder_keeps_the_other_out_for_as_long_as_it_renews(site: &Site) {
    let mut ends = Vec::new();
    for (holding, asking) in PAIRINGS {
        let key = format!("{holding:?}/{asking:?}");
        let holder = site.holder(holding, &format!("--ttl 1s {key}")).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) && holder.status().is_none() {
            site.is_taken(&key, holding, asking, "").await;
        }
        let ended = holder.ends_by(Signal::TERM).await;
        let after = site.run(asking, format!("run -w 2s {key} -- true")).await;
        after.has_code(Some(0));
        ends.push((key, ended));
    }
    all_held_to_their_end(&ends);
}

/// Each holder was told to end, and had not lost its lease.
fn all_held_to_their_end(ends: &[(String, Finished)]) {
    let lost = ends.iter().filter(|(_, ended)| ended.code() != Some(0));
    let lost = lost.map(|(what, ended)| format!("{what}: {}", ended.stderr));
    assert_eq!(lost.collect::<String>(), "");
}

/// Looks, tries, and waits that are given up.
async fn a_holder_goes_on_whoever_looks_at_its_key(site: &Site) {
    let others = [
        "show KEY",
        "ls",
        "run -n KEY -- true",
        "run -w 100ms KEY -- true",
        "run -n -s KEY -- true",
    ];
    let mut ends = Vec::new();
    for (holding, asking) in PAIRINGS {
        for (number, other) in others.iter().enumerate() {
            let key = format!("{holding:?}/{asking:?}/{number}");
            let holder = site.holder(holding, &format!("--ttl 1s {key}")).await;
            let looked = site.run(asking, other.replace("KEY", &key)).await;
            // Two TTLs: a renewal that fails has ended the holder by then.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let ended = holder.ends_by(Signal::TERM).await;
            let what = format!("{holding:?} holds, {asking:?} does {other:?}");
            println!("{what}: {:?} {}", looked.code(), looked.stderr.trim_end());
            ends.push((what, ended));
        }
    }
    all_held_to_their_end(&ends);
}

async fn a_key_is_handed_on(site: &Site) {
    for (holding, waiting) in PAIRINGS {
        let key = format!("{holding:?}/{waiting:?}");
        let holder = site.holder(holding, &key).await;
        if site.is_refused(holding, waiting) {
            // Not before somebody of the present version waits.
            let told = site.is_taken(&key, holding, waiting, "").await;
            println!("{holding:?} holds, {waiting:?} asks: {}", told.trim_end());
            continue;
        }
        let waiter = site.spawn(waiting, format!("run {key} -- echo ran"));
        waiter.says("position 1").await;
        let begun = Instant::now();
        holder.signal(Signal::TERM);
        let served = waiter.finish().await;
        let took = begun.elapsed();
        served.has_printed(Some(0), "ran\n");
        holder.finish().await.has_code(Some(0));
        println!("{holding:?} hands on to {waiting:?} in {took:.0?}");
        assert!(took < HAND_OFF, "{took:?}");
    }
}

async fn those_who_wait_are_served_in_order(site: &Site) {
    for holding in [Earlier, Present] {
        let key = format!("{holding:?}");
        // The holder has a queue before an earlier one comes.
        let queue = [Present, Earlier, Earlier, Present, Present, Earlier];
        let holder = site.holder(holding, &key).await;
        let order = site.store.path(&key);
        let mut waiters = Vec::new();
        for (number, version) in (1..).zip(queue) {
            let script = format!("echo {number} $LEASEHOLD_TOKEN >> '{}'", order.display());
            let waiter = site.spawn(version, (&format!("run {key} -- sh -c"), &script));
            waiter.says(&format!("position {number}")).await;
            waiters.push(waiter);
        }
        let begun = Instant::now();
        holder.signal(Signal::TERM);
        for waiter in waiters {
            waiter.finish().await.has_code(Some(0));
        }
        println!("six after {holding:?} in {:.0?}", begun.elapsed());
        let served = pairs(&order);
        let numbers: Vec<_> = served.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        rise(&served);
    }
}

/// A present service with a key that it holds, and two claims behind that in its run.
async fn service(site: &Site, key: &str) -> (Client, Lease, [JoinHandle<Lease>; 2]) {
    let service = leasehold::connect(&site.store.url).await.unwrap();
    let held = service.mutex(key).unwrap().lock().await.unwrap();
    let first = behind(&service, key, 1).await;
    let second = behind(&service, key, 2).await;
    (service, held, [first, second])
}

/// One more claim of the service, which has that place in line.
async fn behind(service: &Client, key: &str, place: u64) -> JoinHandle<Lease> {
    let lock = service.mutex(key).unwrap();
    let (told, mut places) = mpsc::unbounded_channel();
    let how = LockOptions::new().on_progress(move |progress| {
        // Nobody minds later places.
        told.send(progress.position).ok();
    });
    let waiter = tokio::spawn(async move { lock.lock_opts(how).await.unwrap() });
    let first = timeout(PATIENCE, places.recv()).await;
    assert_eq!(first.expect("it is in line"), Some(place));
    waiter
}

async fn a_run_is_waited_for(site: &Site) {
    let (service, mut held, run) = service(site, "run").await;
    let order = site.store.path("run");
    let script = format!("echo 0 $LEASEHOLD_TOKEN >> '{}'", order.display());
    let earlier = site.spawn(Earlier, ("run run -- sh -c", &script));
    earlier.says("position").await;
    let last = behind(&service, "run", 4).await;
    for next in run {
        let _ = held.release().await.unwrap();
        held = next.await.unwrap();
        assert!(!order.exists(), "it is not yet its turn");
    }
    let before = held.token().get();
    let _ = held.release().await.unwrap();
    earlier.finish().await.has_code(Some(0));
    let after = last.await.unwrap().token().get();
    let [(_, token)] = pairs(&order)[..] else {
        panic!("it ran once");
    };
    assert!(before < token && token < after, "{before} {token} {after}");
}

/// An earlier client takes those behind the holder for holders, and the key from all of them. They
/// join anew, in any order.
async fn a_run_outlives_a_break(site: &Site) {
    let (_service, held, run) = service(site, "run").await;
    let mut token = held.token();
    site.run(Earlier, "break --yes run").await.has_code(Some(0));
    held.lost().await;
    drop(held);
    let begun = Instant::now();
    let mut run: FuturesUnordered<_> = run.into_iter().collect();
    while let Some(next) = run.next().await {
        let next = next.unwrap();
        assert!(next.token() > token);
        token = next.token();
        let _ = next.release().await.unwrap();
    }
    println!("after a break in {:.0?}", begun.elapsed());
    assert!(begun.elapsed() < HAND_OFF);
}

async fn a_dead_holder_is_followed(site: &Site) {
    for (holding, waiting) in PAIRINGS {
        let key = format!("{holding:?}/{waiting:?}");
        let holder = site.holder(holding, &format!("--ttl 2s {key}")).await;
        let killed = Instant::now();
        holder.signal(Signal::KILL);
        let served = loop {
            let served = site.run(waiting, format!("run {key} -- echo ran")).await;
            if !(site.is_refused(holding, waiting) && served.stderr.contains(REFUSED)) {
                break served;
            }
        };
        let took = killed.elapsed();
        served.has_printed(Some(0), "ran\n");
        println!("{waiting:?} follows a dead {holding:?} after {took:.1?}");
        // The last renewal was at most a third of the TTL before.
        assert!(took > Duration::from_millis(1200), "{took:?}");
        assert!(took < Duration::from_secs(2) + HAND_OFF, "{took:?}");
    }
}

async fn readers_and_permits_are_counted_together(site: &Site) {
    let modes = [
        ("readers", "-s", "-x"),
        ("permits", "--limit 2", "--limit 2"),
    ];
    for (name, mode, too_much) in modes {
        for first in [Earlier, Present] {
            let key = format!("{name}/{first:?}");
            let second = if first == Earlier { Present } else { Earlier };
            let mut holders = vec![site.holder(first, &format!("{mode} {key}")).await];
            if site.is_refused(first, second) {
                site.is_taken(&key, first, second, mode).await;
                // Two hold in a record that earlier ones read.
                holders.push(site.holder(Present, &format!("{mode} {key}")).await);
            } else {
                holders.push(site.holder(second, &format!("{mode} {key}")).await);
            }
            for rival in [Earlier, Present] {
                site.is_taken(&key, first, rival, too_much).await;
            }
            for holder in holders {
                holder.ends_by(Signal::TERM).await.has_code(Some(0));
            }
        }
    }
}

/// What each does under the lock: nobody else is there, one more was, and with this token.
const WORK: &str = "mkdir inside || { echo two at once >&2; exit 99; }; n=$(cat count); sleep 0.01; \
                    echo $((n + 1)) > count; echo $n $LEASEHOLD_TOKEN >> tokens; rmdir inside";

async fn a_crowd_of_both_counts_right(site: &Site) {
    fs::write(site.store.path("count"), "0\n").unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let lanes = [Earlier, Present, Earlier, Present].map(|version| lane(site, version, until));
    let (mut served, mut refused) = ([0, 0], 0);
    for (version, done, turned_away) in join_all(lanes).await {
        served[usize::from(version == Present)] += done;
        refused += turned_away;
    }
    let [earlier, present] = served;
    println!("served {earlier} earlier and {present} present; {refused} refused");
    let counted = fs::read_to_string(site.store.path("count")).unwrap();
    assert_eq!(counted.trim(), (earlier + present).to_string());
    rise(&pairs(&site.store.path("tokens")));
    assert!(served.iter().all(|&count| count > 5), "{served:?}");
    assert!(refused == 0 || site.refuses);
}

/// One client after the other of a version: how many were served, and how many refused.
async fn lane(site: &Site, version: Version, until: Instant) -> (Version, usize, usize) {
    let (mut served, mut refused) = (0, 0);
    while Instant::now() < until {
        let ended = site.run(version, ("run -q k -- sh -c", WORK)).await;
        match ended.code() {
            Some(0) => served += 1,
            Some(69) if version == Earlier && ended.stderr.contains(REFUSED) => refused += 1,
            other => panic!("{version:?}: {other:?} {}", ended.stderr),
        }
    }
    (version, served, refused)
}

fn rise(tokens: &[(u64, u64)]) {
    assert_eq!(tokens.windows(2).find(|pair| pair[0].1 >= pair[1].1), None);
}
