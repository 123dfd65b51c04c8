//! Deadlocks of nested runs: shown, told and ended.

use std::path::PathBuf;

use futures_util::future::join_all;
use leasehold_testkit::process::{Finished, Process};

use crate::common::{Store, on_each_store};

on_each_store! {
    of_two_nested_runs_the_younger_gives_up,
    three_of_all_kinds_are_found_and_shown,
    a_reader_behind_a_writer_tells_that_it_waits_for_itself,
    what_can_go_on_is_no_deadlock,
}

/// A run that holds, and runs another within it once it is told to.
struct Nested {
    process: Process,
    gate: PathBuf,
}

impl Nested {
    /// Answers once the outer one holds.
    async fn start(store: &Store, name: &str, outer: &[&str], inner: &[&str]) -> Self {
        let gate = store.path(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).unwrap();
        let script = "echo holds; read go <\"$0\"; exec \"$@\"";
        let leasehold = env!("CARGO_BIN_EXE_leasehold");
        let guarded = [
            "--",
            "sh",
            "-c",
            script,
            gate.to_str().unwrap(),
            leasehold,
            "run",
        ];
        let arguments = [&["run", "--label", name], outer, &guarded, inner];
        let arguments = [&arguments.concat(), &["--", "echo", "done"][..]].concat();
        let process = store.spawn(&arguments);
        process.stdout().wait_for("holds").await;
        Self { process, gate }
    }

    /// Has the inner one ask.
    async fn ask(&self) {
        let gate = self.gate.clone();
        let opened = tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n"));
        opened.await.unwrap().unwrap();
    }

    async fn finish(self) -> Finished {
        self.process.finish().await
    }
}

async fn waits(store: &Store, key: &str) {
    let waits = |seen: &serde_json::Value| !seen["waiters"].as_array().unwrap().is_empty();
    store.until(key, waits).await;
}

async fn of_two_nested_runs_the_younger_gives_up(store: &Store) {
    let older = Nested::start(store, "a", &["x"], &["y"]).await;
    let gives_up = ["--deadlock-timeout", "200ms", "x"];
    let younger = Nested::start(store, "b", &["y"], &gives_up).await;
    older.ask().await;
    waits(store, "y").await;
    younger.ask().await;

    let younger = younger.finish().await;
    assert_eq!(younger.code(), Some(75), "{}", younger.stderr);
    let sentence = "holds x and waits for y";
    assert!(younger.stderr.contains(sentence), "{}", younger.stderr);
    assert!(younger.stderr.contains("deadlock"), "{}", younger.stderr);
    let older = older.finish().await;
    assert_eq!(older.code(), Some(0), "{}", older.stderr);
    assert!(older.stdout.contains("done"), "{}", older.stdout);
}

async fn three_of_all_kinds_are_found_and_shown(store: &Store) {
    let a = Nested::start(store, "a", &["-s", "doc"], &["job"]).await;
    let b = Nested::start(store, "b", &["--limit", "1", "pool"], &["doc"]).await;
    let c = Nested::start(store, "c", &["job"], &["--limit", "1", "pool"]).await;
    for nested in [&a, &b, &c] {
        nested.ask().await;
    }
    for key in ["doc", "pool", "job"] {
        waits(store, key).await;
    }

    // All three say so by themselves.
    let said = [&a, &b, &c].map(|nested| nested.process.stderr());
    join_all(said.iter().map(|said| said.wait_for("is a deadlock"))).await;
    let found = store.run(&["deadlocks"]).await;
    assert_eq!(found.code(), Some(1), "{}", found.stderr);
    for holds in [
        "holds doc and waits for job",
        "holds pool and waits for doc",
        "holds job and waits for pool",
    ] {
        assert!(found.stdout.contains(holds), "{}", found.stdout);
    }
    assert_eq!(found.stdout.lines().count(), 1, "{}", found.stdout);
    assert!(found.stdout.contains(", for "), "{}", found.stdout);

    let found = store.run(&["deadlocks", "--json"]).await;
    let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let claims = found["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3, "{found}");
    assert!(found["for_ms"].is_u64() && found["since"].is_string());
    for claim in claims {
        assert_eq!(claim["holds"].as_array().unwrap().len(), 1, "{claim}");
    }

    let shown = store.show("doc").await;
    assert_eq!(shown["holders"][0]["waits_for"], serde_json::json!(["job"]));
    let shown = store.run(&["show", "doc"]).await;
    assert!(shown.stdout.contains("WAITS FOR"), "{}", shown.stdout);

    let hint = "leasehold: hint: end one of them";
    a.process.stderr().wait_for(hint).await;
    // Whoever ends one of them lets the others go on.
    a.process.signal(rustix::process::Signal::TERM);
    a.finish().await;
    for ended in [b.finish().await, c.finish().await] {
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    }
    let none = store.run(&["deadlocks"]).await;
    assert_eq!(
        (none.code(), &*none.stdout),
        (Some(0), ""),
        "{}",
        none.stderr
    );
}

/// It would fit beside its own outer run, and the writer between them may give up: it is no wait
/// that cannot end.
async fn a_reader_behind_a_writer_tells_that_it_waits_for_itself(store: &Store) {
    let inner = ["--deadlock-timeout", "100ms", "-E", "9", "-s", "k"];
    let nested = Nested::start(store, "a", &["-s", "k"], &inner).await;
    let writer = store.spawn(&["run", "k", "--", "true"]);
    waits(store, "k").await;
    nested.ask().await;
    let ended = nested.finish().await;
    assert_eq!(ended.code(), Some(9), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("holds k and waits for k"),
        "{}",
        ended.stderr
    );
    assert_eq!(writer.finish().await.code(), Some(0));
}

async fn what_can_go_on_is_no_deadlock(store: &Store) {
    let (_holder, _) = store.holder(&["job"]).await;
    let inner = ["--deadlock-timeout", "100ms", "-w", "2s", "job"];
    let waiting = Nested::start(store, "a", &["x"], &inner).await;
    waiting.ask().await;
    waits(store, "job").await;
    let none = store.run(&["deadlocks"]).await;
    assert_eq!(none.code(), Some(0), "{}", none.stdout);
    let ended = waiting.finish().await;
    assert_eq!(ended.code(), Some(75), "{}", ended.stderr);
    assert!(!ended.stderr.contains("deadlock"), "{}", ended.stderr);
}

#[tokio::test]
async fn what_is_no_context_is_refused() {
    let store = Store::memory();
    let mut command = store.command(&["run", "k", "--", "true"]);
    command.env("LEASEHOLD_CONTEXT", "x");
    let refused = Process::run(command).await;
    assert_eq!(refused.code(), Some(64), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("LEASEHOLD_CONTEXT"),
        "{}",
        refused.stderr
    );
}
