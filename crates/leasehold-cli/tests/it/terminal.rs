//! The command at a terminal: whose turn it is, and what Ctrl-C and Ctrl-Z do.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::common::pty::Terminal;
use crate::common::*;

fn at_terminal(store: &Store, arguments: impl Arguments) -> Terminal {
    Terminal::spawn(store.command(arguments))
}

/// A shell with job control, in which the command is `$L`.
pub(crate) fn shell(store: &Store) -> Terminal {
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]);
    in_environment_of(&store.command(""), &mut shell);
    shell.env("PS1", "ready> ").env("HISTFILE", "");
    let mut terminal = Terminal::spawn(shell);
    terminal.wait_for("ready> ");
    terminal
}

/// Types Ctrl-Z, until the shell has the terminal.
pub(crate) fn suspend(terminal: &mut Terminal) {
    terminal.enters("\x1a", "Stopped");
    terminal.wait_for("ready> ");
}

/// The shell has the terminal again, and ends.
#[track_caller]
pub(crate) fn leave(mut terminal: Terminal) {
    terminal.types("exit 4\n");
    assert_eq!(terminal.finish().0.code(), Some(4));
}

#[test]
fn the_command_has_the_terminal() {
    let store = Store::memory();
    let script = "echo up; read line; echo \"read:$line\"; test -t 0 && test -t 1 && exit 5";
    let mut terminal = at_terminal(&store, ("run k -- sh -c", script));
    terminal.wait_for("up");
    terminal.enters("hello\n", "read:hello");
    assert_eq!(terminal.finish().0.code(), Some(5));
}

#[test]
fn ctrl_c_comes_once_and_the_status_is_the_commands() {
    let store = Store::memory();
    let script = "trap 'echo caught' INT; echo up; read line; read line; exit 6";
    let mut terminal = at_terminal(&store, ("run k -- bash -c", script));
    terminal.wait_for("up");
    terminal.enters("\x03", "caught");
    terminal.types("a\nb\n");
    let (status, rest) = terminal.finish();
    assert_eq!(status.code(), Some(6));
    assert!(!rest.contains("caught"), "{rest}");
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_both() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.types("$L run k -- sh -c 'echo u\"\"p; read line; echo \"read:$line\"; exit 3'\n");
    terminal.wait_for("up");
    suspend(&mut terminal);
    terminal.enters("fg\n", "\n");
    terminal.enters("hello\n", "read:hello");
    terminal.wait_for("ready> ");
    terminal.enters("echo \"status=$?\"\n", "status=3");
    leave(terminal);
}

/// As it does without leasehold.
#[test]
fn ctrl_z_stops_a_script_that_runs_it() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    let job = "sh -c \"printf u; echo p; read line; exit 3\"";
    terminal.types(&format!("sh -c '$L run k -- {job}; echo \"status=$?\"'\n"));
    terminal.wait_for("up");
    suspend(&mut terminal);
    terminal.enters("fg\n", "\n");
    terminal.enters("hello\n", "status=3");
    leave(terminal);
}

/// Between two terms it does what it does before the first.
#[test]
fn ctrl_z_stops_a_candidate_that_has_led() {
    let store = Store::local();
    let mut terminal = shell(&store);
    terminal.enters("$L elect k -- true\n", "candidate for k again in ");
    suspend(&mut terminal);
    terminal.enters("fg\n", "leading k");
    terminal.enters("\x03", "ready> ");
    leave(terminal);
}

#[test]
fn stopped_beyond_its_lease_the_command_is_killed_when_it_goes_on() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.types("$L run --ttl 3s k -- sh -c 'echo u\"\"p; read line; echo \"wrote\"'\n");
    terminal.wait_for("up");
    suspend(&mut terminal);
    // The time itself is what is waited for here.
    let shown = terminal.enters("sleep 3.5; fg; echo \"status=$?\"\n", "status=79");
    assert!(shown.contains("leasehold: lost k: "), "{shown}");
    terminal.types("exit\n");
    terminal.finish();
}

/// Else nothing behind it in a script could read from it.
#[test]
fn a_command_that_cannot_be_started_leaves_the_terminal() {
    let store = Store::memory();
    // A directory, which cannot be executed.
    let interpreter = store.path("").display().to_string();
    let path = store.program("job", &format!("#!{interpreter}\n"));
    let mut script = Command::new("sh");
    let lines = "\"$L\" run k -- \"$1\"; echo \"status=$?\"; read line; echo \"read:$line\"";
    script.args(["-c", lines, "sh"]).arg(path);
    in_environment_of(&store.command(""), &mut script);
    let mut terminal = Terminal::spawn(script);
    terminal.wait_for("status=126");
    terminal.enters("hello\n", "read:hello");
}

/// Ctrl-S stops what is shown, and neither the waiting nor the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_is_stopped_holds_up_nobody() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let mut terminal = at_terminal(&store, "run k -- touch ran");
    terminal.wait_for("waiting for k");
    terminal.types("\x13");
    holder.ends_by(Signal::TERM).await.has_code(Some(0));
    assert!(eventually(async || store.path("ran").exists()).await);
    assert_eq!(terminal.end().code(), Some(0));
}

/// Nor what is measured.
#[test]
fn a_terminal_that_is_stopped_holds_up_no_bench() {
    let store = Store::memory();
    let bench = store.command("bench --time 1ms --rounds 1");
    let mut terminal = Terminal::spawn(in_shell("read line; exec \"$@\" > out", &bench));
    terminal.stop_output();
    terminal.types("\n");
    assert_eq!(terminal.end().code(), Some(0));
    let found = std::fs::read_to_string(store.path("out")).unwrap();
    assert!(found.contains("UNCONTENDED"), "{found}");
}

#[test]
fn in_the_background_it_runs_and_the_shell_keeps_the_terminal() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal
        .types("$L run k -- sh -c 'echo \"in\"\"side\"; exit 8' & wait $!; echo \"status=$?\"\n");
    terminal.wait_for("inside");
    terminal.wait_for("status=8");
    leave(terminal);
}

/// As it does without leasehold: else the shell would wait for a script that waits for leasehold.
#[test]
fn a_script_in_the_background_stops_with_a_command_that_reads() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    let job = "sh -c \"read line < /dev/tty; exit 3\"";
    terminal.types(&format!(
        "set -b; sh -c '$L run k -- {job}; echo \"status=$?\"' &\n"
    ));
    // What the shell says of it ends in that text.
    terminal.wait_for("Stopped");
    terminal.wait_for("status=$?");
    terminal.enters("fg\n", "status=$?");
    terminal.enters("hello\n", "status=3");
    leave(terminal);
}

/// Nobody would renew the lease of one that runs on, or end it with that.
#[test]
fn the_other_commands_of_that_script_stop_too() {
    let store = Store::memory();
    let lines = [
        "#!/bin/sh",
        "\"$L\" run a -- sh -c 'touch up; exec sleep 600' &",
        "until test -e up; do sleep 0.02; done",
        "\"$L\" run b -- sh -c 'read line < /dev/tty'",
    ];
    let script = store.program("script", &lines.join("\n"));
    let mut terminal = shell(&store);
    terminal.types(&format!("set -b; {} &\n", script.display()));
    terminal.wait_for("Stopped");
    let sleeper = "ps -t $(tty) -o stat=,comm= | grep -q '^T.*sleep'";
    terminal.types(&format!(
        "until {sleeper}; do sleep 0.1; done; echo st\"\"opped\n"
    ));
    terminal.wait_for("stopped");
    terminal.enters("kill -KILL %1\n", "Killed");
    leave(terminal);
}

/// No shell takes over meanwhile, which could continue who stops.
#[test]
fn of_two_commands_of_a_script_the_second_has_the_terminal_after_the_first() {
    let store = Store::memory();
    let lines = [
        "#!/bin/sh",
        "\"$L\" run a -- sh -c 'touch up; read line; echo \"a:$line\"' < /dev/tty &",
        "until test -e up; do sleep 0.02; done",
        "\"$L\" run b -- sh -c 'echo b is up; read line; echo \"b:$line\"'",
    ];
    let script = store.program("script", &lines.join("\n"));
    let mut terminal = shell(&store);
    terminal.types(&format!("{}\n", script.display()));
    terminal.wait_for("b is up");
    terminal.enters("one\n", "a:one");
    terminal.enters("two\n", "b:two");
    leave(terminal);
}

/// The line would stand in what is typed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_background_no_line_lives() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let mut terminal = shell(&store);
    terminal.types("$L run k -- echo r\"\"an &\n");
    terminal.wait_screen(|shown| shown.contains("waiting for k (position 1), held by "));
    holder.ends_by(Signal::TERM).await.has_code(Some(0));
    terminal.wait_for("ran");
    leave(terminal);
}

#[test]
fn in_a_pipeline_the_others_keep_the_terminal() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    // The reader of the pipe reads from the terminal, as a pager does.
    terminal.types(
        "$L run k -- echo da\"\"ta | sh -c 'cat; read line < /dev/tty; echo \"read:$line\"'\n",
    );
    terminal.wait_for("data");
    terminal.enters("hello\n", "read:hello");
    // And a command behind a pipe gets the terminal when it asks for it.
    terminal.types(
        "echo da\"\"ta | $L run k -- sh -c 'cat; read line < /dev/tty; echo \"got:$line\"'\n",
    );
    terminal.wait_for("data");
    terminal.enters("again\n", "got:again");
    leave(terminal);
}

#[test]
fn where_nobody_could_continue_it_ctrl_z_does_not_hang() {
    // Leader of its session, as in a container: no shell is there to take over.
    let store = Store::memory();
    let script = "echo up; read line; echo \"read:$line\"";
    let mut terminal = at_terminal(&store, ("run k -- sh -c", script));
    terminal.wait_for("up");
    terminal.types("\x1a");
    terminal.enters("hello\n", "read:hello");
    assert_eq!(terminal.finish().0.code(), Some(0));
}

#[test]
fn a_program_that_was_killed_leaves_the_terminal_as_it_was() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.types(
        "$L run k -- sh -c 'stty -echo -icanon; kill -KILL $$'; stty -a | tr -d '\\n'; echo\n",
    );
    let shown = terminal.wait_for("iexten");
    let is_as_before = shown.contains(" icanon") && !shown.contains("-icanon ");
    assert!(is_as_before, "{shown}");
    terminal.types("exit\n");
    terminal.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_waits_one_line_lives_and_is_cleared() {
    for (key, label, shown) in [
        ("orders/42", "deploy", ["orders/42", "deploy"]),
        // Format characters are shown as escapes.
        ("k\u{200b}", "a\u{202e}b", ["k\\u{200b}", "a\\u{202e}b"]),
    ] {
        let store = Store::local();
        let (holder, _) = store.holder(&["--label", label, key]).await;
        let mut terminal = at_terminal(&store, ["run", key, "--", "echo", "ran"]);
        let line = terminal.wait_for(&format!("label {}) for ", shown[1]));
        let waiting = format!("leasehold: waiting for {}, position 1, ", shown[0]);
        assert!(line.contains(&waiting), "{line:?}");
        assert!(!line.contains(['\u{202e}', '\u{200b}']), "{line:?}");
        holder.signal(Signal::TERM);
        terminal.wait_for("ran");
        assert_eq!(terminal.finish().0.code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_the_waiting() {
    let store = Store::local();
    let (_holder, _) = store.holder("k").await;
    let mut terminal = at_terminal(&store, "run k -- echo ran");
    terminal.wait_for("waiting for k");
    terminal.types("\x03");
    let (status, rest) = terminal.finish();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    assert!(rest.contains("stopped waiting for k after "), "{rest}");
    assert!(!rest.contains("ran"), "{rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_asks_at_a_terminal() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    // Of the second one the terminal has deleted a byte, and not the character.
    for no in ["\n", "\u{e9}\x7f\n"] {
        let mut terminal = at_terminal(&store, "break k");
        let question = terminal.wait_for("[y/N] ");
        assert!(question.contains("k is held by "), "{question}");
        terminal.types(no);
        assert_eq!(terminal.finish().0.code(), Some(1));
    }
    let mut terminal = at_terminal(&store, "break k");
    terminal.wait_for("[y/N] ");
    terminal.types("y\n");
    assert_eq!(terminal.finish().0.code(), Some(0));
    assert_eq!(holder.wait().await.code(), Some(79));
}

#[test]
fn ls_of_nothing_says_so_at_a_terminal() {
    let (status, shown) = at_terminal(&Store::memory(), "ls").finish();
    assert_eq!(status.code(), Some(0));
    assert_eq!(shown.trim_end(), "leasehold: no locks");
}

#[test]
fn a_terminal_that_may_have_no_colours_gets_none() {
    let store = Store::memory();
    for (kind, coloured) in [("xterm", true), ("dumb", false), ("", false)] {
        let mut help = store.command("run -h");
        // These ask for colours, or for none.
        for name in ["CI", "CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR"] {
            help.env_remove(name);
        }
        help.env("TERM", kind);
        let (_, shown) = Terminal::spawn(help).finish();
        assert_eq!(shown.contains('\x1b'), coloured, "{kind:?}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_narrow_terminal_shows_position_holder_and_time() {
    let store = Store::local();
    let (_holder, _) = store.holder("orders/42 --label deploy").await;
    let mut terminal = Terminal::sized(store.command("run orders/42 -- true"), (40, 10));
    let shown = terminal.wait_screen(|shown| shown.contains("orders/42 #1: deploy, "));
    assert_eq!(shown.trim().lines().count(), 1, "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_do_not_wrap_at_80_columns() {
    let store = Store::local();
    let key = "a-key/with/many/parts/that/would/fill/half/of/the/line";
    let label = "a-label-that-would-fill-the-other-half";
    let (_holder, _) = store.holder(&[key, "--label", label]).await;
    for arguments in ["ls".to_owned(), format!("show {key}")] {
        let mut terminal = Terminal::sized(store.command(&arguments), (80, 24));
        let shown = terminal.wait_screen(|shown| shown.contains("EXPIRES IN"));
        let lines: Vec<_> = shown.trim().lines().collect();
        assert!(lines.len() <= 3, "{shown}");
        says(&shown, ["exclusive", "…"]);
        // Where there is no terminal, nothing is cut.
        says(store.run(arguments).await.stdout, [label, "EXPIRES IN"]);
    }
}

/// A question may stand there for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_asked_about_is_broken() {
    let store = Store::local();
    let (one, _) = store.holder("-s k").await;
    let (_other, _) = store.holder("-s k").await;
    let mut asks = at_terminal(&store, "break k");
    asks.wait_for("Break it? ");
    one.ends_by(Signal::TERM).await;
    asks.types("y\n");
    asks.wait_for("nothing was broken: now k is held by");
    assert_eq!(asks.finish().0.code(), Some(1));
    let shown = store.show("k").await;
    let holders = shown["holders"].as_array().map(Vec::len);
    assert_eq!(holders, Some(1), "{shown}");
}
