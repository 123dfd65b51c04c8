//! `leasehold top` at a terminal: what its screen shows, and that the terminal is as before.

use crate::common::pty::{Terminal, end_without_terminal};
use crate::common::*;
use crate::terminal::{leave, shell, suspend};
use rustix::process::{Pid, kill_process};
use std::fs;

const SIZES: [(u16, u16); 3] = [(80, 24), (40, 12), (120, 40)];

fn top(store: &Store, size: (u16, u16)) -> Terminal {
    Terminal::sized(store.command("top --interval 100ms"), size)
}

/// Whether the line of a screen that is about that key has this.
fn has_line(shown: &str, key: &str, text: &str) -> bool {
    let line = shown.lines().find(|line| line.starts_with(key));
    line.is_some_and(|line| line.contains(text))
}

#[track_caller]
fn quits(mut terminal: Terminal) {
    terminal.types("q");
    assert_eq!(terminal.end().code(), Some(0));
}

/// Waits for the end, which leaves the terminal as it was before.
fn ends_and_restores(mut terminal: Terminal, modes: &rustix::termios::Termios) {
    let status = terminal.end();
    assert_eq!(status.code(), Some(0), "{}", terminal.screen().contents());
    let screen = terminal.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
    assert_eq!(format!("{:?}", terminal.modes()), format!("{modes:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_seen_to_move_on_and_to_go() {
    for size in SIZES {
        let store = Store::local();
        let before = Terminal::sized(store.command("man"), size).modes();
        let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
        let mut terminal = top(&store, size);
        terminal.wait_screen(|shown| has_line(shown, "orders/42", "first"));
        assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());
        let second = store.spawn("hold orders/42 --label second");
        terminal.wait_screen(|shown| shown.starts_with("1 lock, 1 waiting"));
        terminal.types("\r");
        terminal.wait_screen(|shown| shown.contains("second") && shown.contains("waits, 1"));
        terminal.presses("\x1b", "HELD BY");
        first.signal(Signal::TERM);
        terminal.wait_screen(|shown| has_line(shown, "orders/42", "second"));
        second.signal(Signal::TERM);
        terminal.wait_screen(|shown| shown.contains("no locks"));
        terminal.types("q");
        ends_and_restores(terminal, &before);
    }
}

/// What its copies would take is more than there is.
#[test]
fn a_terminal_that_claims_to_be_huge_is_refused() {
    let store = Store::memory();
    let script = "ulimit -v 8000000; stty rows 65535 cols 65535; exec \"$@\"";
    let terminal = Terminal::spawn(in_shell(script, &store.command("top")));
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(74), "{shown}");
    says(
        shown,
        ["cannot use the terminal", "65535 columns and 65535 rows"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_have_the_history_and_the_status_has_deadlocks() {
    let mut store = Store::redis();
    store.url += "?audit=1000";
    ends(&store, "run --label earlier x -- true", 0).await;
    let mut terminal = top(&store, SIZES[0]);
    let both = deadlocked(&store, ["x", "y"]).await;
    terminal.wait_screen(|shown| shown.contains("deadlock: ") && shown.contains("waits for x"));
    terminal.types("\r");
    terminal.wait_screen(|shown| shown.contains("released by") && shown.contains("label earlier"));
    for process in both {
        process.ends_by(Signal::TERM).await;
    }
    terminal.wait_screen(|shown| shown.contains("x: free") && shown.contains("history"));
    quits(terminal);
}

#[test]
fn signals_and_ctrl_c_end_it_and_restore_the_terminal() {
    let store = Store::local();
    let before = Terminal::sized(store.command("man"), SIZES[0]).modes();
    let signals = [Signal::INT, Signal::TERM, Signal::HUP].map(Some);
    for signal in signals.into_iter().chain([None]) {
        let mut terminal = top(&store, SIZES[0]);
        terminal.wait_screen(|shown| shown.contains("no locks"));
        assert_ne!(format!("{:?}", terminal.modes()), format!("{before:?}"));
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.types("\x03"),
        }
        ends_and_restores(terminal, &before);
    }
}

#[test]
fn ctrl_z_stops_a_script_that_shows_it() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.presses("sh -c '$L top; exit 3'\n", "no locks");
    suspend(&mut terminal);
    terminal.presses("fg\n", "no locks");
    terminal.enters("q", "ready> ");
    leave(terminal);
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let store = Store::local();
    let status = end_without_terminal(store.command("top"), "no locks");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_signal_ends_it_where_the_terminal_takes_nothing() {
    let store = Store::local();
    // At its end a session loses the terminal, which forgets its modes: they are asked for before.
    let script = "stty -g > before; sh -c 'echo $$ > pid; exec \"$@\"' sh \"$@\"; \
                  status=$?; stty -g > after; exit $status";
    let top = store.command("top --interval 100ms");
    let mut terminal = Terminal::spawn(in_shell(script, &top));
    terminal.wait_screen(|shown| shown.contains("no locks"));
    terminal.stop_output();
    let read = |name: &str| fs::read_to_string(store.path(name)).unwrap();
    let pid = Pid::from_raw(read("pid").trim().parse().unwrap());
    kill_process(pid.unwrap(), Signal::TERM).unwrap();
    assert_eq!(terminal.end().code(), Some(0));
    assert_eq!(read("after"), read("before"));
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_it_is_continued() {
    let store = Store::local();
    let mut terminal = shell(&store);
    terminal.presses("$L top\n", "no locks");
    terminal.presses("\x1a", "Stopped");
    assert!(!terminal.screen().alternate_screen() && !terminal.screen().hide_cursor());
    terminal.presses("fg\n", "no locks");
    assert!(terminal.screen().alternate_screen());
    terminal.types("q");
    terminal.wait_screen(|shown| shown.trim_end().ends_with("ready>"));
    terminal.presses("echo \"status=$?\"\n", "status=0");
    terminal.types("exit\n");
    terminal.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_broken_after_a_yes_and_not_after_a_no() {
    let store = Store::local();
    let (holder, _) = store.holder(&["orders/42", "--label", "deploy"]).await;
    let mut terminal = top(&store, SIZES[0]);
    terminal.wait_screen(|shown| shown.contains("deploy"));
    terminal.presses("b", "Break it?");
    terminal.presses("n", "nothing was broken");
    assert_eq!(holder.status(), None);
    terminal.presses("b", "Break it?");
    terminal.presses("y", "broke orders/42, taken from its holder");
    assert_eq!(holder.wait().await.code(), Some(79));
    quits(terminal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_quits_right_after_a_yes_is_told_what_came_of_it() {
    let store = Store::local();
    let (holder, _) = store.holder(&["k", "--label", "deploy"]).await;
    let mut terminal = top(&store, SIZES[0]);
    terminal.wait_screen(|shown| shown.contains("deploy"));
    terminal.presses("b", "Break it?");
    terminal.types("yq");
    assert_eq!(terminal.end().code(), Some(0));
    assert_eq!(holder.wait().await.code(), Some(79));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_and_a_new_size() {
    let store = Store::local();
    let (_one, _) = store.holder(&["orders/42"]).await;
    let (_other, _) = store.holder(&["invoices/7"]).await;
    let mut terminal = top(&store, SIZES[2]);
    terminal.wait_screen(|shown| shown.starts_with("2 locks") && shown.contains("CHG/MIN"));
    terminal.resize(40, 12);
    terminal.wait_screen(|shown| {
        shown.contains("WAITING") && !shown.contains("CHG/MIN") && shown.contains("q quit")
    });
    // crossterm leaves what is typed in the moment of a new size unread until the next key: it handles
    // the signal of the two, and its poll tells of each once.
    terminal.types_until("a", |shown| shown.contains("by age"));
    terminal.types("/\x7forders/*\r");
    terminal.wait_screen(|shown| shown.starts_with("1 lock,") && !shown.contains("invoices"));
    quits(terminal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_a_terminal_would_obey_are_shown() {
    let store = Store::local();
    // Controls are taken out of a label before it is kept; the rest is up to us.
    let label = "\x1b]0;title\x07\u{200b}b";
    let (_holder, _) = store.holder(format!("--label {label} 'k\u{202e}'")).await;
    let mut terminal = top(&store, SIZES[2]);
    let (key, label) = (r"k\u{202e}", r"]0;title\u{200b}b");
    terminal.wait_screen(|shown| has_line(shown, key, label));
    terminal.presses("\rb", "Break it?");
    terminal.types("nq");
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(0));
    assert!(!written.contains("\x1b]"), "{written:?}");
    assert!(!written.contains('\u{202e}'), "{written:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_colour_none_is_written() {
    let store = Store::local();
    let (_holder, _) = store.holder(&["k"]).await;
    for (no_colour, colours) in [("", true), ("1", false)] {
        let mut command = store.command("top");
        command.env("NO_COLOR", no_colour);
        let mut terminal = Terminal::sized(command, SIZES[0]);
        terminal.wait_screen(|shown| shown.contains("[||||||||]"));
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let screen = terminal.screen();
        let cells = cells.filter_map(|(row, column)| screen.cell(row, column));
        let coloured = cells.filter(|cell| cell.fgcolor() != vt100::Color::Default);
        assert_eq!(coloured.count() > 0, colours);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_is_asked_once_in_an_interval_whatever_is_typed() {
    let server = RedisServer::start();
    let _holder = holder_at(&server.url(), "k").await;
    let command = leasehold(("top --interval 1h -S", &server.url()));
    let mut terminal = Terminal::sized(command, SIZES[0]);
    let scans = || server.stats().command("scan").calls;
    terminal.wait_screen(|shown| shown.starts_with("1 lock, 0 waiting, by waiters"));
    for (typed, by) in [("a", "by age"), ("r", "by rate"), ("w", "by waiters")] {
        terminal.types(typed);
        terminal.wait_screen(|shown| shown.lines().next().is_some_and(|line| line.contains(by)));
    }
    assert_eq!(scans(), 1);
    terminal.presses("/\x7fother\r", "no locks match *other*");
    assert_eq!(scans(), 2);
    quits(terminal);
}

#[test]
fn a_store_that_does_not_answer_is_said_and_asked_again() {
    let server = RedisServer::start();
    let mut terminal = Terminal::sized(at(&server.url(), "top --interval 100ms"), SIZES[0]);
    terminal.wait_screen(|shown| shown.contains("no locks"));
    server.stop();
    terminal.wait_screen(|shown| shown.contains("s old: the store has not answered for "));
    server.cont();
    terminal.wait_screen(|shown| shown.contains("no locks"));
    server.kill();
    terminal.wait_screen(|shown| shown.contains("; trying again"));
    server.start_again();
    terminal.wait_screen(|shown| shown.contains("no locks"));
    quits(terminal);
}

#[test]
fn a_store_that_cannot_be_used_ends_it_before_the_screen() {
    let (status, written) = Terminal::spawn(leasehold("top -S redis://127.0.0.1:1/")).finish();
    assert_eq!(status.code(), Some(69), "{written}");
    assert!(!written.contains("\x1b[?1049h"), "{written:?}");
}

#[tokio::test]
async fn it_needs_a_terminal_that_can_be_drawn_on() {
    let store = Store::memory();
    let refused = ends(&store, "top", 64).await;
    let said = "leasehold: not a terminal: top needs one to show its screen\n\
                leasehold: hint: use leasehold ls --watch, or ls --json for programs\n";
    assert_eq!(refused.stderr, said);
    let mut command = store.command("top");
    command.env("TERM", "dumb");
    let (status, written) = Terminal::spawn(command).finish();
    assert_eq!(status.code(), Some(64));
    assert!(written.contains("TERM is \"dumb\""), "{written}");
    ends_saying(&store, "top --interval 99ms", 64, "use 100ms or more").await;
}
