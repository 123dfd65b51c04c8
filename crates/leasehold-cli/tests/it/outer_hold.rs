//! A run within another that asks for a key which the outer one holds: told at once, not waited for.

use leasehold_testkit::deployment::Independent;

use crate::children::Gate;
use crate::common::*;

on_each_store! {
    a_key_of_the_outer_run_is_not_waited_for,
    nor_is_one_of_several,
    nor_is_one_of_the_run_around_the_outer_one,
    what_fits_beside_the_outer_one_is_granted,
    without_waiting_it_is_busy_as_ever,
}

const NEVER: &str = "this command's own outer leasehold (pid ";

/// Leasehold with these arguments, in the command of a leasehold with those.
async fn nested(store: &Store, outer: &str, inner: &str) -> Finished {
    let mut command = store.command(outer);
    command.args(["--", env!("CARGO_BIN_EXE_leasehold")]);
    command.args(inner.words());
    Process::run(command).await
}

fn refused(ended: &Finished, status: i32, key: &str, hint: &str) {
    ended.has_code(Some(status));
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [message, advice] = lines[..] else {
        panic!("{}", ended.stderr);
    };
    let begins = format!("leasehold: {key} is held by {NEVER}");
    assert!(message.starts_with(&begins), "{message}");
    let ends = "): waiting for it would never end";
    assert!(message.ends_with(ends), "{message}");
    assert_eq!(advice, format!("leasehold: hint: {hint}"));
}

async fn a_key_of_the_outer_run_is_not_waited_for(store: &Store) {
    let again = "use --reentrant on both, or another key";
    let other = "use another key";
    let higher = "use a higher --limit, or another key";
    let of_three = "run --limit 3 --take 2 k";
    let elect = format!("elect -S {} k -- true", store.url);
    for (outer, inner, status, hint) in [
        ("run k", "run k -- true", 75, again),
        ("run k", "run -w 1h -E 9 k -- true", 9, again),
        ("run k", "run --reentrant k -- true", 75, again),
        ("run --reentrant k", "run k -- true", 75, again),
        ("run k", "hold k", 75, again),
        ("run k", "run -s k -- true", 75, other),
        ("run -s k", "run k -- true", 75, other),
        ("run k", &elect, 75, other),
        (of_three, &format!("{of_three} -- true"), 75, higher),
    ] {
        refused(&nested(store, outer, inner).await, status, "k", hint);
    }
}

async fn nor_is_one_of_several(store: &Store) {
    // Of the others, one is held by a stranger.
    let (_holder, _) = store.holder("a").await;
    let ended = nested(store, "run k", "run -k a -k k -k z -- true").await;
    refused(&ended, 75, "k", "use another key");
    let ended = nested(store, "run -k b -k k", "run k -- true").await;
    refused(&ended, 75, "k", "use --reentrant on both, or another key");
}

async fn nor_is_one_of_the_run_around_the_outer_one(store: &Store) {
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let inner = format!("run between -- {leasehold} run --json k -- true");
    let ended = nested(store, "run k", &inner).await;
    ended.has_code(Some(75));
    let error = &events(&ended.stderr)[0];
    includes(error, json!({"event": "error", "status": 75}));
    says(error["message"].as_str().unwrap(), [NEVER]);
}

async fn what_fits_beside_the_outer_one_is_granted(store: &Store) {
    for (outer, inner) in [
        ("run -s k", "run -s k -- true"),
        ("run --limit 2 k", "run --limit 2 k -- true"),
        ("run --reentrant k", "run --reentrant k -- true"),
        ("run k", "run other -- true"),
    ] {
        let ended = nested(store, outer, inner).await;
        assert_eq!((ended.code(), &*ended.stderr), (Some(0), ""), "{inner:?}");
    }
    // It waits for a stranger only.
    let (holder, _) = store.holder("--limit 2 k").await;
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let both = format!("run --limit 2 k -- {leasehold} run --limit 2 k -- true");
    let waiting = store.waiter("k", both).await;
    holder.signal(Signal::TERM);
    waiting.finish().await.has_code(Some(0));
}

async fn without_waiting_it_is_busy_as_ever(store: &Store) {
    for (inner, status) in [("run -n k -- true", 75), ("run --every 1h k -- true", 0)] {
        let ended = nested(store, "run k", inner).await;
        ended.has_code(Some(status));
        ended.has_not_said(NEVER);
    }
}

#[tokio::test]
async fn where_claims_do_not_queue_it_is_told_too() {
    let servers = Independent::start(3);
    let url = servers.url();
    let on = |arguments: &str| run_at(&url, arguments.to_owned());
    on("init").await.has_code(Some(0));
    let binary = env!("CARGO_BIN_EXE_leasehold");
    let ended = on(&format!("run k -- {binary} run k -- true")).await;
    refused(&ended, 75, "k", "use --reentrant on both, or another key");
    let ended = on(&format!("run k -- {binary} run other -- true")).await;
    ended.has_been_quiet(Some(0));
}

/// What the outer run does not wait for may wait for it, if it says so.
#[tokio::test]
async fn without_the_context_it_waits() {
    let store = Store::local();
    let script = "env -u LEASEHOLD_CONTEXT \"$L\" run k -- echo ran & read go < gate";
    let gate = Gate::new(&store, "gate");
    let process = saying(&store, ("run k -- bash -c", script), "waiting for k").await;
    gate.open().await;
    process.finish().await.has_shown("ran");
}
