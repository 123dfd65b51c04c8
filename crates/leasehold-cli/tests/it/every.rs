//! Jobs that run once in a period, whoever starts them.

use std::fs;

use crate::common::{Store, events, includes, on_each_store};
use leasehold_testkit::process::Signal;
use serde_json::json;

on_each_store!(
    started_everywhere_at_once_it_runs_once,
    a_job_that_succeeded_is_not_shown_as_failed,
    a_crash_does_not_free_it_within_the_period,
    a_crashed_job_is_not_shown_as_running,
);

const RUN: &str = "run --every 10s k";

async fn started_everywhere_at_once_it_runs_once(store: &Store) {
    // Its failure changes nothing about it.
    let script = "echo ran >> log; exit 3";
    let job = (format!("{RUN} -- sh -c"), script);
    let all: Vec<_> = (0..8).map(|_| store.spawn(&job)).collect();
    let (mut ran, mut skipped) = (0, 0);
    for each in all {
        let ended = each.finish().await;
        match ended.code() {
            Some(3) => ran += 1,
            Some(0) => {
                skipped += 1;
                ended.has_said_first("leasehold: skipped: k ");
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

    let quiet = format!("{RUN} -q -E 9 -- true");
    let again = store.run(&quiet).await;
    assert_eq!((again.code(), &*again.stderr), (Some(9), ""));
    let told = format!("{RUN} --json -- true");
    let told = events(&store.run(&told).await.stderr);
    includes(&told[0], json!({"event": "skipped", "running": false}));
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
    let job = format!("{RUN} -- true");
    assert_eq!(store.run(&job).await.code(), Some(0));
    let skipped = store.run(&job).await.stderr;
    assert!(skipped.contains("skipped: k ran on "), "{skipped}");
    assert!(!skipped.contains("failed"), "{skipped}");
}

async fn a_crash_does_not_free_it_within_the_period(store: &Store) {
    let script = "echo up; exec sleep 60";
    let job = (format!("{RUN} --ttl 3s -- sh -c"), script);
    let first = store.spawn(&job);
    first.prints("up").await;
    let meanwhile = store.run(&job).await;
    assert_eq!(meanwhile.code(), Some(0));
    meanwhile.has_said("k has been running on ");
    first.signal(Signal::KILL);
    first.finish().await;
    let again = store.run(&job).await;
    again.has_printed(Some(0), "");
    again.has_said_first("leasehold: skipped: k ");
    store
        .until("k", |shown| shown["holders"] == json!([]))
        .await;
    let after = store.spawn(&job);
    after.prints("up").await;
}

async fn a_crashed_job_is_not_shown_as_running(store: &Store) {
    let script = "echo up; exec sleep 60";
    let job = ("run --every 1m --ttl 1s k -- sh -c", script);
    let first = store.spawn(job);
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
    again.has_said_first("leasehold: skipped: k ran on ");
    let told = store.run(format!("{RUN} --ttl 3s --json -- true")).await;
    assert_eq!(events(&told.stderr)[0]["running"], json!(false));
}
