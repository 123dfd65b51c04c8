//! Deadlocks of nested runs: shown, told and ended.

use futures_util::future::join_all;

use crate::children::Gate;
use crate::common::*;

on_each_store! {
    of_two_nested_runs_the_younger_gives_up,
    three_of_all_kinds_are_found_and_shown,
    a_reader_behind_a_writer_tells_that_it_waits_for_itself,
    what_can_go_on_is_no_deadlock,
}

/// A run that holds, and runs another within it once it is told to.
struct Nested {
    process: Process,
    gate: Gate,
}

impl Nested {
    /// Answers once the outer one holds.
    async fn start(store: &Store, name: &str, outer: &str, inner: &str) -> Self {
        let gate = Gate::new(store, name);
        let script = "echo holds; read go <\"$0\"; exec \"$@\"";
        let mut command = store.command((format!("run --label {name} {outer} -- sh -c"), script));
        command.args([name, env!("CARGO_BIN_EXE_leasehold")]);
        command.args(format!("run {inner} -- echo done").words());
        let process = Process::spawn(command);
        process.prints("holds").await;
        Self { process, gate }
    }

    /// Has the inner one ask.
    async fn ask(&self) {
        self.gate.open().await;
    }
}

async fn waits(store: &Store, key: &str) {
    let waits = |seen: &Value| !seen["waiters"].as_array().unwrap().is_empty();
    store.until(key, waits).await;
}

async fn of_two_nested_runs_the_younger_gives_up(store: &Store) {
    let older = Nested::start(store, "a", "x", "y").await;
    let younger = Nested::start(store, "b", "y", "--deadlock-timeout 200ms x").await;
    older.ask().await;
    waits(store, "y").await;
    younger.ask().await;

    let waits = "holds x and waits for y";
    let younger = younger.process.ends_saying(75, waits).await;
    younger.has_said("deadlock");
    older.process.ends(0).await.has_shown("done");
}

async fn three_of_all_kinds_are_found_and_shown(store: &Store) {
    let a = Nested::start(store, "a", "-s doc", "job").await;
    let b = Nested::start(store, "b", "--limit 1 pool", "doc").await;
    let c = Nested::start(store, "c", "job", "--limit 1 pool").await;
    for nested in [&a, &b, &c] {
        nested.ask().await;
    }
    for key in ["doc", "pool", "job"] {
        waits(store, key).await;
    }

    // All three say so by themselves.
    let said = [&a, &b, &c].map(|nested| nested.process.stderr());
    join_all(said.iter().map(|said| said.wait_for("is a deadlock"))).await;
    let found = ends(store, "deadlocks", 1).await;
    for holds in [
        "holds doc and waits for job",
        "holds pool and waits for doc",
        "holds job and waits for pool",
    ] {
        found.has_shown(holds);
    }
    assert_eq!(found.stdout.lines().count(), 1, "{}", found.stdout);
    found.has_shown(", for ");

    let found = store.run("deadlocks --json").await.json();
    let claims = found["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3, "{found}");
    assert!(found["for_ms"].is_u64() && found["since"].is_string());
    for claim in claims {
        assert_eq!(claim["holds"].as_array().unwrap().len(), 1, "{claim}");
    }

    let shown = store.show("doc").await;
    assert_eq!(shown["holders"][0]["waits_for"], json!(["job"]));
    store.run("show doc").await.has_shown("WAITS FOR");

    a.process.says("leasehold: hint: end one of them").await;
    // Whoever ends one of them lets the others go on.
    a.process.ends_by(Signal::TERM).await;
    for nested in [b, c] {
        nested.process.ends(0).await;
    }
    store.run("deadlocks").await.has_printed(Some(0), "");
}

/// It would fit beside its own outer run, and the writer between them may give up: it is no wait
/// that cannot end.
async fn a_reader_behind_a_writer_tells_that_it_waits_for_itself(store: &Store) {
    let nested = Nested::start(store, "a", "-s k", "--deadlock-timeout 100ms -E 9 -s k").await;
    let writer = store.spawn("run k -- true");
    waits(store, "k").await;
    nested.ask().await;
    let waits = "holds k and waits for k";
    nested.process.ends_saying(9, waits).await;
    writer.finish().await.has_code(Some(0));
}

async fn what_can_go_on_is_no_deadlock(store: &Store) {
    let (_holder, _) = store.holder("job").await;
    let waiting = Nested::start(store, "a", "x", "--deadlock-timeout 100ms -w 2s job").await;
    waiting.ask().await;
    waits(store, "job").await;
    store.run("deadlocks").await.has_code(Some(0));
    let ended = waiting.process.ends(75).await;
    ended.has_not_said("deadlock");
}

#[tokio::test]
async fn what_is_no_context_is_refused() {
    let context = [("LEASEHOLD_CONTEXT", "x")];
    let refused = Store::memory().run_with(&context, "run k -- true").await;
    refused.has_ended_saying(Some(64), "LEASEHOLD_CONTEXT");
}
