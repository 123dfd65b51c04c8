//! Jobs that run once in a period, whoever starts them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a case that is no #[test] by itself fails like one"
)]

use std::fs;

use crate::common::{HasEnded, Running, Store, events, on_each_store};
use leasehold_testkit::process::Signal;
use serde_json::json;

on_each_store!(
    started_everywhere_at_once_it_runs_once,
    a_job_that_succeeded_is_not_shown_as_failed,
    a_crash_does_not_free_it_within_the_period,
    a_crashed_job_is_not_shown_as_running,
);

const RUN: [&str; 4] = ["run", "--every", "10s", "k"];

async fn started_everywhere_at_once_it_runs_once(store: &Store) {
    // Its failure changes nothing about it.
    let script = "echo ran >> log; exit 3";
    let job = [&RUN[..], &["--", "sh", "-c", script]].concat();
    let all: Vec<_> = (0..8).map(|_| store.spawn(&job)).collect();
    let (mut ran, mut skipped) = (0, 0);
    for each in all {
        let ended = each.finish().await;
        match ended.code() {
            Some(3) => ran += 1,
            Some(0) => {
                skipped += 1;
                assert!(
                    ended.stderr.starts_with("leasehold: skipped: k "),
                    "{}",
                    ended.stderr
                );
                ended.has_said("; it can run again in ");
                assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
            }
            other => panic!("{other:?}: {}", ended.stderr),
        }
    }
    assert_eq!((ran, skipped), (1, 7));

    let after = store.run(&job).await.stderr;
    let failed = " and failed (exit status 3); it can run again in ";
    assert!(after.contains(failed), "{after}");

    let quiet = [&RUN[..], &["-q", "-E", "9", "--", "true"]].concat();
    let again = store.run(&quiet).await;
    assert_eq!((again.code(), &*again.stderr), (Some(9), ""));
    let told = [&RUN[..], &["--json", "--", "true"]].concat();
    let told = events(&store.run(&told).await.stderr);
    assert_eq!(
        (&told[0]["event"], &told[0]["running"]),
        (&json!("skipped"), &json!(false))
    );
    assert!(
        told[0]["again_in_ms"].as_u64().unwrap() <= 9_000,
        "{told:?}"
    );

    store
        .until("k", |shown| shown["holders"] == json!([]))
        .await;
    assert_eq!(store.run(&job).await.code(), Some(3));
    assert_eq!(fs::read_to_string(store.path("log")).unwrap(), "ran\nran\n");
}

async fn a_job_that_succeeded_is_not_shown_as_failed(store: &Store) {
    let job = [&RUN[..], &["--", "true"]].concat();
    assert_eq!(store.run(&job).await.code(), Some(0));
    let skipped = store.run(&job).await.stderr;
    assert!(skipped.contains("skipped: k ran on "), "{skipped}");
    assert!(!skipped.contains("failed"), "{skipped}");
}

async fn a_crash_does_not_free_it_within_the_period(store: &Store) {
    let script = "echo up; exec sleep 60";
    let job = [&RUN[..], &["--ttl", "3s", "--", "sh", "-c", script]].concat();
    let first = store.spawn(&job);
    first.prints("up").await;
    let meanwhile = store.run(&job).await;
    assert_eq!(meanwhile.code(), Some(0));
    meanwhile.has_said("k has been running on ");
    first.signal(Signal::KILL);
    first.finish().await;
    let again = store.run(&job).await;
    again.has_printed(Some(0), "");
    assert!(
        again.stderr.starts_with("leasehold: skipped: k "),
        "{}",
        again.stderr
    );
    store
        .until("k", |shown| shown["holders"] == json!([]))
        .await;
    let after = store.spawn(&job);
    after.prints("up").await;
}

async fn a_crashed_job_is_not_shown_as_running(store: &Store) {
    let script = "echo up; exec sleep 60";
    let job = [
        "run", "--every", "1m", "--ttl", "1s", "k", "--", "sh", "-c", script,
    ];
    let first = store.spawn(&job);
    first.prints("up").await;
    first.signal(Signal::KILL);
    first.finish().await;
    // A server knows it when the lease has not been renewed.
    store
        .until("k", |shown| shown["holders"][0]["kept_until"].is_string())
        .await;
    let table = store.run("show k").await.stdout;
    assert!(table.contains("\ntaken until 2"), "{table}");
    let table = store.run("ls").await.stdout;
    assert!(table.contains(" (finished)"), "{table}");
    let busy = store.run("run -n k -- true").await.stderr;
    assert!(busy.starts_with("leasehold: k is taken until "), "{busy}");
    assert!(busy.contains("Z (minimum hold; pid "), "{busy}");
    assert!(busy.ends_with(" has finished)\n"), "{busy}");
    let again = store.run(&job).await;
    assert!(
        again.stderr.starts_with("leasehold: skipped: k ran on "),
        "{}",
        again.stderr
    );
    let told = store
        .run(&[&job[..6], &["--json", "--", "true"]].concat())
        .await;
    assert_eq!(events(&told.stderr)[0]["running"], json!(false));
}
