//! `leasehold ls --watch`: what is printed when locks change, and when they do not.

use crate::children::Gate;
use crate::common::pty::Terminal;
use crate::common::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;

on_each_store!(
    changes_are_tables_of_their_own,
    with_json_a_line_for_each_change
);

async fn changes_are_tables_of_their_own(store: &Store) {
    let watch = store.spawn("ls --watch=100ms");
    let lines = watch.stdout();
    lines.wait_for("no locks").await;
    let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
    lines.wait_for("KEY ").await;
    let line = lines.wait_for("orders/42").await;
    assert!(line.contains("label first)"), "{line}");
    let second = store.spawn("hold orders/42 --label second");
    let line = lines.wait_for("label first)").await;
    assert!(line.contains(" 1 "), "one waits: {line}");
    first.signal(Signal::TERM);
    lines.wait_for("label second)").await;
    second.signal(Signal::TERM);
    lines.wait_for("no locks").await;
    let ended = watch.ends_by(Signal::INT).await;
    ended.has_been_quiet(Some(0));
    let tables: Vec<_> = ended.stdout.split("\n\n").collect();
    assert_eq!(tables.len(), 5, "nothing is said twice:\n{}", ended.stdout);
    let begins_with_a_time = |table: &&str| table.starts_with("20") && table.contains("Z\n");
    assert!(tables.iter().all(begins_with_a_time), "{}", ended.stdout);
}

async fn with_json_a_line_for_each_change(store: &Store) {
    let (_other, _) = store.holder(&["other"]).await;
    let watch = printing(store, "ls --watch=100ms --json", "other").await;
    let (holder, token) = store.holder(&["k"]).await;
    let seen = &json_lines(&watch.prints("").await)[0];
    assert_eq!(seen["key"], "k");
    assert_eq!(seen["holders"][0]["token"], token);
    holder.signal(Signal::TERM);
    let seen = &json_lines(&watch.prints("").await)[0];
    includes(seen, json!({"key": "k", "holders": []}));
    let ended = watch.ends_by(Signal::TERM).await;
    ended.has_code(Some(0));
    assert_eq!(ended.stdout.lines().count(), 3, "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_terminal_the_table_is_printed_in_its_place() {
    let store = Store::local();
    let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
    let mut terminal = Terminal::spawn(store.command("ls --watch=100ms"));
    terminal.wait_screen(|shown| shown.contains("label first)"));
    first.signal(Signal::TERM);
    terminal.wait_screen(|shown| shown.trim_end() == "no locks");
    let mut holders = Vec::new();
    for n in 0..30 {
        holders.push(store.holder(format!("k{n:02}").as_str()).await);
    }
    // The rest has no room.
    let ends = |shown: &str| shown.trim_end().ends_with("and 9 more: see leasehold top");
    terminal.wait_screen(|shown| shown.starts_with("KEY ") && shown.contains("k20") && ends(shown));
    terminal.types("\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

/// What is typed there would stand in the table.
#[test]
fn in_the_background_it_does_not_clear_the_screen() {
    let store = Store::memory();
    let mut terminal = crate::terminal::shell(&store);
    let shown = terminal.enters("$L ls --watch=100ms &\n", "no locks");
    assert!(!shown.contains("\x1b[H"), "{shown:?}");
    terminal.types("kill %1; wait\n");
    crate::terminal::leave(terminal);
}

#[test]
fn at_a_terminal_what_cannot_be_read_stays_in_sight() {
    let store = Store::redis();
    let server = store.server();
    server.command(&["RPUSH", "leasehold:lock:k", "x"]);
    let watch = store.command("ls --watch=100ms");
    let mut terminal = Terminal::spawn(in_shell("exec \"$@\" 2> /dev/null", &watch));
    terminal.wait_screen(|shown| shown.starts_with("skipped k: "));
    server.command(&["DEL", "leasehold:lock:k"]);
    terminal.wait_screen(|shown| shown.trim_end() == "no locks");
    terminal.types("\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

/// Whoever starts something where a lock is free must not start it because a record is damaged.
#[tokio::test]
async fn a_lock_that_cannot_be_read_is_not_said_to_be_free() {
    let store = Store::redis();
    let (holder, _) = store.holder(&["k"]).await;
    let watch = printing(&store, "ls --watch=100ms --json", "\"k\"").await;
    holder.ends_by(Signal::KILL).await;
    let server = store.server();
    server.command(&["RPUSH", "theirs", "x"]);
    server.command(&["RENAME", "theirs", "leasehold:lock:k"]);
    watch.says("skipped k: ").await;
    let _other = store.holder(&["other"]).await;
    let seen = &json_lines(&watch.prints("").await)[0];
    assert_eq!(seen["key"], "other");
    server.command(&["DEL", "leasehold:lock:k"]);
    let seen = &json_lines(&watch.prints("").await)[0];
    includes(seen, json!({"key": "k", "holders": []}));
    watch.ends_by(Signal::TERM).await.has_code(Some(0));
}

#[tokio::test]
async fn an_outage_is_said_once_and_waited_through() {
    let server = RedisServer::start();
    let watch = printing(&server.url(), "ls --watch=100ms", "no locks").await;
    server.kill();
    watch.says("; trying again").await;
    server.start_again();
    watch.says("the store answers again").await;
    let ended = watch.ends_by(Signal::TERM).await;
    ended.has_code(Some(0));
    assert_eq!(ended.stderr.lines().count(), 2, "{ended}");
}

#[tokio::test]
async fn who_has_seen_enough_ends_it_where_nothing_changes() {
    let mut store = Store::redis();
    store.url += "?audit=1000";
    store.run("run k -- true").await.has_code(Some(0));
    for arguments in ["ls --watch", "elect --observe k", "log --follow -n 1"] {
        let shell = in_shell("\"$@\" | head -1", &store.command(arguments));
        Process::spawn(shell).ends(0).await;
    }
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    let store = Store::memory();
    store.run("ls --watch=50ms").await.has_code(Some(64));
    ends(&store, "ls --watch -S redis://127.0.0.1:1/", 69).await;
}

#[tokio::test]
async fn the_locks_are_printed_while_nobody_reads_the_warnings() {
    let store = Store::redis();
    store.server().command(&["RPUSH", "leasehold:lock:k", "x"]);
    let _errors = Gate::full(&store, "err");
    let watch = store.command("ls --watch=100ms");
    let watch = Process::spawn(in_shell("exec \"$@\" 2> err", &watch));
    watch.prints("no locks").await;
    watch.ends_by(Signal::TERM).await.has_code(Some(0));
}

/// What is written, and what is held meanwhile, does not wait for a reader. Who watches
/// leaves the store as it was.
#[tokio::test]
async fn signals_are_heard_and_leases_renewed_while_nobody_reads() {
    let store = Store::redis();
    let keys = || store.server().query::<BTreeSet<String>>(&["KEYS", "*"]);
    // A client has been there.
    store.until_free("k").await;
    let before = keys();
    let _full = Gate::full(&store, "out");
    let (serve, watch) = ("serve --listen 127.0.0.1:0", "ls --watch");
    let detach = "hold --save f --detach k";
    for arguments in [serve, watch, "elect --observe k", "hold --ttl 3s k", detach] {
        let writer = in_shell("exec \"$@\" > out", &store.command(arguments));
        let writer = Process::spawn(writer);
        writes(&writer).await;
        let holds = arguments.starts_with("hold");
        if holds && arguments != detach {
            let last = Cell::new(Some(u64::MAX));
            let left = |shown: &Value| shown["holders"][0]["expires_in_ms"].as_u64();
            let is_renewed = |shown: &Value| left(shown) > last.replace(left(shown));
            store.until("k", is_renewed).await;
        }
        let status = if arguments == detach { 74 } else { 0 };
        writer.ends_by(Signal::TERM).await.has_code(Some(status));
        assert!(!store.path("f").exists(), "a lease that is nobody's");
        match holds {
            true => store.until_free("k").await,
            false => assert_eq!(keys(), before, "{arguments} has left"),
        }
    }
}

/// As one that still measures.
#[tokio::test]
async fn a_bench_whose_table_nobody_reads_ends_by_the_signal() {
    let store = Store::memory();
    let _full = Gate::full(&store, "out");
    let bench = store.command("bench --time 1ms --rounds 1");
    let bench = Process::spawn(in_shell("exec \"$@\" > out", &bench));
    writes(&bench).await;
    let ended = bench.ends_by(Signal::TERM).await;
    ended.has_signal(Signal::TERM);
}

/// Waits until it writes to its standard output, which nobody reads.
async fn writes(process: &Process) {
    let tasks = format!("/proc/{}/task", process.pid());
    let call = format!("{} 0x1 ", libc::SYS_write);
    let writes = || {
        let mut tasks = fs::read_dir(&tasks).unwrap().flatten();
        tasks.any(|task| {
            let now = fs::read_to_string(task.path().join("syscall"));
            now.is_ok_and(|now| now.starts_with(&call))
        })
    };
    assert!(eventually(async || writes() && writes()).await, "it writes");
}
