//! Fail-overs with Sentinels where the servers refuse writes without a replica, as the page of the
//! store recommends: nobody ends, and nobody has to be started again.

use crate::common::*;
use leasehold_testkit::deployment::Sentinels;

const LEADS: &str = "-- sh -c 'echo up; exec sleep 600'";

/// The ways to begin while the servers change, before the key and behind it.
const WAYS: [(&str, &str); 6] = [
    ("run", "-- echo up"),
    ("run -w 10m", "-- echo up"),
    ("run -n --retry-for 10m", "-- echo up"),
    ("run --every 1h --retry-for 10m", "-- echo up"),
    ("hold", ""),
    ("elect", LEADS),
];

/// Begins in each of these ways, on a key of its own; each says that it has it.
pub(crate) fn begin_all(url: &str, key: &str) -> Vec<Process> {
    let begun = WAYS.iter().enumerate().map(|(number, (before, behind))| {
        spawn_at(url, format!("{before} {key}-{number} {behind}"))
    });
    begun.collect()
}

fn spawn(sentinels: &Sentinels, arguments: impl Arguments) -> Process {
    spawn_at(&sentinels.url(), arguments)
}

async fn outlived(sentinels: &Sentinels, round: &str, fail_over: impl Future<Output = ()>) {
    let elect = format!("elect boss-{round} {LEADS}");
    let held = format!("held-{round}");
    let leader = spawn(sentinels, &elect);
    let holder = spawn(sentinels, ("hold", &held));
    leader.prints("up").await;
    holder.prints("").await;
    let follower = spawn(sentinels, &elect);
    let waiter = spawn(sentinels, format!("run {held} -- echo up"));
    follower.says("waiting for").await;
    waiter.says("waiting for").await;
    sentinels.wait_for_replicas().await;

    let begin = async {
        let begun = begin_all(&sentinels.url(), round);
        for process in &begun {
            process.prints("").await;
            process.signal(Signal::TERM);
        }
        begun
    };
    let (begun, ()) = tokio::join!(begin, fail_over);
    for process in begun {
        let ended = process.finish().await;
        assert!(matches!(ended.shown(), Some(0 | 143)), "{round}: {ended:?}");
    }
    // Those who held have not noticed more than a renewal that came late.
    holder.signal(Signal::TERM);
    leader.signal(Signal::TERM);
    waiter.prints("up").await;
    follower.prints("up").await;
    follower.signal(Signal::TERM);
    for (process, status) in [(holder, 0), (leader, 143), (waiter, 0), (follower, 143)] {
        let ended = process.finish().await;
        assert_eq!(ended.shown(), Some(status), "{round}: {ended:?}");
        assert!(!ended.stderr.contains("lost k"), "{round}: {ended:?}");
    }
}

#[tokio::test]
async fn nobody_ends_in_a_fail_over() {
    let server = RedisServer::builder().config("min-replicas-to-write", "1");
    let server = server.config("min-replicas-max-lag", "10");
    let sentinels = Sentinels::builder().server(server).start();
    sentinels.wait_for_replicas().await;
    outlived(&sentinels, "planned", async {
        sentinels.fail_over().await;
    })
    .await;
    sentinels.wait_for_replicas().await;
    outlived(&sentinels, "killed", async {
        let old = sentinels.primary();
        old.kill();
        sentinels.wait_for_another_primary(old).await;
    })
    .await;
}
