//! Fail-overs with Sentinels where the servers refuse writes without a replica, as the page of the
//! store recommends: nobody ends, and nobody has to be started again.

use std::process::Command;

use crate::common::leasehold;
use leasehold_testkit::deployment::Sentinels;
use leasehold_testkit::process::{Process, Signal};
use leasehold_testkit::server::RedisServer;

const LEADS: [&str; 4] = ["--", "sh", "-c", "echo up; exec sleep 600"];

/// The ways to begin while the servers change, before the key and behind it.
const WAYS: [(&[&str], &[&str]); 6] = [
    (&["run"], &["--", "echo", "up"]),
    (&["run", "-w", "10m"], &["--", "echo", "up"]),
    (&["run", "-n", "--retry-for", "10m"], &["--", "echo", "up"]),
    (
        &["run", "--every", "1h", "--retry-for", "10m"],
        &["--", "echo", "up"],
    ),
    (&["hold"], &[]),
    (&["elect"], &LEADS),
];

fn spawn(sentinels: &Sentinels, arguments: &[&str]) -> Process {
    let mut command: Command = leasehold(arguments);
    command.env("LEASEHOLD_STORE", sentinels.url());
    Process::spawn(command)
}

async fn outlived(sentinels: &Sentinels, round: &str, fail_over: impl Future<Output = ()>) {
    let boss = format!("boss-{round}");
    let elect = [&["elect", &*boss][..], &LEADS].concat();
    let held = format!("held-{round}");
    let leader = spawn(sentinels, &elect);
    let holder = spawn(sentinels, &["hold", &held]);
    leader.stdout().wait_for("up").await;
    holder.stdout().wait_for("").await;
    let follower = spawn(sentinels, &elect);
    let waiter = spawn(sentinels, &["run", &held, "--", "echo", "up"]);
    follower.stderr().wait_for("waiting for").await;
    waiter.stderr().wait_for("waiting for").await;
    sentinels.wait_for_replicas().await;

    let begin = async {
        let begun = WAYS.iter().enumerate().map(|(number, (before, behind))| {
            let key = format!("{round}-{number}");
            spawn(sentinels, &[*before, &[&*key], *behind].concat())
        });
        let begun: Vec<_> = begun.collect();
        for process in &begun {
            process.stdout().wait_for("").await;
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
    waiter.stdout().wait_for("up").await;
    follower.stdout().wait_for("up").await;
    follower.signal(Signal::TERM);
    for (process, status) in [(holder, 0), (leader, 143), (waiter, 0), (follower, 143)] {
        let ended = process.finish().await;
        assert_eq!(ended.shown(), Some(status), "{round}: {ended:?}");
        assert!(!ended.stderr.contains("lost k"), "{round}: {ended:?}");
    }
}

#[tokio::test]
async fn nobody_ends_in_a_fail_over() {
    let server = RedisServer::builder()
        .config("min-replicas-to-write", "1")
        .config("min-replicas-max-lag", "10");
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
