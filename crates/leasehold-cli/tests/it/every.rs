//! Jobs that run once in a period, whoever starts them.

use std::fs;

use crate::common::*;

on_each_store!(
    started_everywhere_at_once_it_runs_once,
    a_job_that_succeeded_is_not_shown_as_failed,
    a_crash_does_not_free_it_within_the_period,
    a_crashed_job_is_not_shown_as_running,
);

const RUN: &str = "run --every 10s k";

async fn started_everywhere_at_once_it_runs_once(store: &Store) {
    // Its failure changes nothing about it.
    let job = (format!("{RUN} -- sh -c"), "echo ran >> log; exit 3");
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

    let failed = " and failed (exit status 3); it can run again in ";
    store.run(&job).await.has_said(failed);

    let quiet = format!("{RUN} -q -E 9 -- true");
    store.run(&quiet).await.has_been_quiet(Some(9));
    let told = format!("{RUN} --json -- true");
    let told = &events(&store.run(&told).await.stderr)[0];
    includes(told, json!({"event": "skipped", "running": false}));
    assert!(told["again_in_ms"].as_u64().unwrap() <= 9_000, "{told}");

    store.until_free("k").await;
    store.run(&job).await.has_code(Some(3));
    assert_eq!(fs::read_to_string(store.path("log")).unwrap(), "ran\nran\n");
}

async fn a_job_that_succeeded_is_not_shown_as_failed(store: &Store) {
    let job = format!("{RUN} -- true");
    store.run(&job).await.has_code(Some(0));
    let skipped = store.run(&job).await;
    skipped.has_said("skipped: k ran on ");
    skipped.has_not_said("failed");
}

async fn a_crash_does_not_free_it_within_the_period(store: &Store) {
    let job = (format!("{RUN} --ttl 3s -- sh -c"), "echo up; exec sleep 60");
    let first = store.up(&job).await;
    ends_saying(store, &job, 0, "k has been running on ").await;
    first.ends_by(Signal::KILL).await;
    let again = ends_printing(store, &job, 0, "").await;
    again.has_said_first("leasehold: skipped: k ");
    store.until_free("k").await;
    store.up(&job).await;
}

async fn a_crashed_job_is_not_shown_as_running(store: &Store) {
    let script = "echo up; exec sleep 60";
    let job = ("run --every 1m --ttl 1s k -- sh -c", script);
    store.up(job).await.ends_by(Signal::KILL).await;
    // A server knows it when the lease has not been renewed.
    let is_kept = |shown: &Value| shown["holders"][0]["kept_until"].is_string();
    store.until("k", is_kept).await;
    store.run("show k").await.has_shown("\ntaken until 2");
    store.run("ls").await.has_shown(" (finished)");
    let busy = store.run("run -n k -- true").await;
    busy.has_said_first("leasehold: k is taken until ");
    busy.has_said("Z (minimum hold; pid ");
    assert!(busy.stderr.ends_with(" has finished)\n"), "{busy}");
    let again = store.run(&job).await;
    again.has_said_first("leasehold: skipped: k ran on ");
    let told = store.run(format!("{RUN} --ttl 3s --json -- true")).await;
    assert_eq!(events(&told.stderr)[0]["running"], json!(false));
}
