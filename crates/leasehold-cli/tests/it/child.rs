//! The guarded command as a process, where nobody else wants the lock.

use std::os::fd::OwnedFd;

use crate::children::Gate;
use crate::common::*;

/// Says its process id, then waits.
const WAITER: &str = "echo up $$; exec sleep 60";

/// Also one that is a failure, of which the command itself has told.
#[tokio::test]
async fn the_exit_status_is_the_commands_own() {
    let run = ("run k -- sh -c", "exit 255");
    Store::local().run(run).await.has_been_quiet(Some(255));
}

#[tokio::test]
async fn what_cannot_run_is_126_or_127() {
    let store = Store::memory();
    let script = store.path("script");
    std::fs::write(&script, "exit 3").unwrap();
    for (program, status) in [
        ("no-such-command", 127),
        ("/no/such", 127),
        (script.to_str().unwrap(), 126),
        ("/", 126),
    ] {
        let ended = store.run(&("run k --", program)).await;
        assert_eq!(ended.code(), Some(status), "{program}: {}", ended.stderr);
        ended.has_said(program);
    }
}

/// The system only says that the script is not found.
#[tokio::test]
async fn a_script_that_has_no_interpreter_says_so() {
    let store = Store::memory();
    let crlf = "its first line ends in a carriage return (CRLF)";
    let none = "there is no /no/such/python, which its first line names";
    for (line, said) in [
        ("#!/bin/sh\r\n", crlf),
        ("#!/usr/bin/env sh\r\n", crlf),
        ("#! /no/such/python -u\n", none),
    ] {
        store.program("script.sh", &format!("{line}exit 0\n"));
        let ended = ends(&store, "run k -- ./script.sh", 126).await;
        says(&ended.stderr, [said, "cannot run ./script.sh: ", "hint: "]);
    }
}

#[tokio::test]
async fn the_command_knows_its_key_token_and_store() {
    let store = Store::memory();
    let script = "echo \"$LEASEHOLD_KEY|$LEASEHOLD_TOKEN|$LEASEHOLD_STORE|$LEASEHOLD_PASSWORD\"";
    let mut command = store.command(("run 'orders/42 {ö}' -- sh -c", script));
    command.env("LEASEHOLD_PASSWORD", "hunter2");
    let ended = Process::run(command).await;
    let parts: Vec<_> = ended.stdout.trim_end().split('|').collect();
    assert_eq!(parts[0], "orders/42 {ö}");
    let token: u64 = parts[1].parse().unwrap();
    assert!(token > 1_700_000_000_000_000, "{token}");
    assert_eq!(&parts[2..], ["memory:", ""]);
}

#[tokio::test]
async fn input_and_output_are_the_commands_own() {
    let store = Store::local();
    let command = store.command(("run k -- sh -c", "cat; echo err >&2"));
    let process = Process::spawn_with_input(command, "in\0put\n");
    let ended = process.finish().await;
    assert_eq!((&*ended.stdout, &*ended.stderr), ("in\0put\n", "err\n"));
}

#[tokio::test]
async fn arguments_are_passed_as_they_are() {
    let store = Store::memory();
    let ended = store.run("run k -- printf '%s|\\n' -n -- -w 'a b'").await;
    assert_eq!(ended.stdout, "-n|\n--|\n-w|\na b|\n");
}

#[tokio::test]
async fn the_command_leads_a_group_and_begins_with_no_signal_blocked() {
    let script = "ps -o pgid= -p $$; echo $$; grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let ended = Store::memory().run(&("run k -- sh -c", script)).await;
    let lines: Vec<_> = ended.stdout.lines().map(str::trim).collect();
    assert_eq!(lines[0], lines[1]);
    assert_eq!(lines[2], "SigBlk:\t0000000000000000");
    let ours = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut ours = ours.lines();
    let ours = ours.find(|line| line.starts_with("SigIgn")).unwrap();
    // The testing program ignores SIGPIPE, as Rust programs do; what it starts does not.
    let mask =
        |line: &str| u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
    let pipe = 1_u64 << (Signal::PIPE.as_raw() - 1);
    assert_eq!(mask(lines[3]), mask(ours) & !pipe);
}

#[tokio::test]
async fn signals_that_were_blocked_at_its_start_are_heard() {
    let store = Store::memory();
    let run = store.command(("run k -- sh -c", WAITER));
    let process = Process::spawn(in_shell("exec env --block-signal \"$@\"", &run));
    process.prints("up").await;
    process.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
}

#[tokio::test]
async fn signals_go_on_to_the_command_and_all_that_it_started() {
    let store = Store::memory();
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ] {
        let number = signal.as_raw();
        // A shell starts its background with SIGINT and SIGQUIT ignored. What it begins in front could
        // take the signal between fork and exec, and a SIGINT is then lost on the shell: it reads.
        let ignored = [Signal::INT, Signal::QUIT].contains(&signal);
        let waits = match ignored {
            true => "exec 3<> <(:); echo up; while :; do read -r -t 1 <&3; done",
            false => "sh -c 'echo up; exec sleep 60' & wait",
        };
        let script = format!("trap 'exit 9' {number}; {waits}");
        let process = store.up(("run k -- bash -c", &script)).await;
        process.signal(signal);
        // The output ends when the sleeper has gone, too.
        process.ends(9).await;
    }
}

#[tokio::test]
async fn a_command_that_is_stopped_ends_by_the_signal() {
    let store = Store::memory();
    let script = "sh -c 'kill -STOP $PPID; echo stopped' & exec sleep 60";
    let process = printing(&store, ("run k -- sh -c", script), "stopped").await;
    process.ends_by(Signal::TERM).await.has_code(None);
}

/// As a scheduler suspends a job, and lets it go on.
#[tokio::test]
async fn a_command_stops_and_goes_on_with_leasehold() {
    let process = Store::memory().spawn(("run k -- sh -c", WAITER));
    let up = process.prints("up ").await;
    let stat = format!("/proc/{}/stat", &up["up ".len()..]);
    let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
    process.signal(Signal::TSTP);
    assert!(eventually(async || is_stopped()).await, "it stops");
    process.signal(Signal::CONT);
    assert!(eventually(async || !is_stopped()).await, "it goes on");
    process.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
}

#[tokio::test]
async fn what_was_ignored_stays_ignored() {
    let store = Store::memory();
    let inner = store.command(("run k -- sh -c", "echo up; read x; exit 4"));
    let process = Process::spawn_with_input(in_shell("trap '' HUP; exec \"$@\"", &inner), "");
    process.prints("up").await;
    process.signal_group(Signal::HUP);
    assert_eq!(process.wait().await.code(), Some(4));
}

#[tokio::test]
async fn events_in_json() {
    let (store, run) = (Store::local(), ("run --json k -- sh -c", "exit 3"));
    let ended = ends(&store, run, 3).await;
    let events = events(&ended.stderr);
    assert_eq!(names(&events), ["acquired", "released", "exit"]);
    assert_eq!(events[0]["key"], "k");
    assert!(events[0]["token"].is_u64());
    assert_eq!(events[1]["still_ours"], true);
    assert_eq!(events[2]["status"], 3);
    assert!(events[2]["signal"].is_null());

    let ended = store.run("run --json k -- no-such-command").await;
    let events = crate::common::events(&ended.stderr);
    includes(&events[0], json!({"event": "error", "status": 127}));
    includes(&events[1], json!({"event": "exit", "status": 127}));
}

#[tokio::test]
async fn what_systemd_has_meant_for_leasehold_is_the_commands() {
    let store = Store::memory();
    let says = "echo $LISTEN_PID $WATCHDOG_PID $$ ${LISTEN_PIDFDID-none}";
    let run = store.command(("run k -- sh -c", says));
    let under = async |variables: &str| {
        let ended = Process::run(in_shell(&format!("{variables} exec \"$@\""), &run)).await;
        let words: Vec<_> = ended.stdout.split_whitespace().map(str::to_owned).collect();
        <[String; 4]>::try_from(words).unwrap()
    };
    let [listens, watched, pid, inode] =
        under("LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_PIDFDID=7").await;
    assert_eq!((&listens, &watched, &*inode), (&pid, &pid, "none"));
    // What is meant for another stays so.
    let [listens, watched, _, inode] = under("LISTEN_PID=1 WATCHDOG_PID=1 LISTEN_PIDFDID=7").await;
    assert_eq!([&*listens, &*watched, &*inode], ["1", "1", "7"]);
}

#[tokio::test]
async fn a_limit_of_file_size_fails_the_write_and_not_the_job() {
    let store = Store::memory();
    let job = "echo up; sh -c 'echo x > f'; exit 3";
    let run = store.command(("run --metrics-file m.prom k -- sh -c", job));
    let ended = Process::run(in_shell("ulimit -f 0; exec \"$@\"", &run)).await;
    ended.has_printed(Some(3), "up\n");
    ended.has_said("File too large");
    // The signal is the system's for the job: what was ignored here would be ignored there.
    let mask = "ulimit -f 0; grep SigIgn /proc/self/status";
    let ended = store.run(&("run k -- sh -c", mask)).await;
    let ignored = ended.stdout.split_whitespace().last().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored >> (Signal::XFSZ.as_raw() - 1) & 1, 0);
}

#[tokio::test]
async fn nothing_that_is_left_to_do_keeps_it_from_ending() {
    let store = Store::memory();
    let job = "echo up; until test -e go; do sleep 0.02; done; kill -TERM $$";
    let (process, _said) = unread(&store, &store.command(("run -v k -- sh -c", job))).await;
    std::fs::write(store.path("go"), "").unwrap();
    process.finish().await.has_signal(Signal::TERM);
}

#[tokio::test]
async fn whoever_does_not_read_what_it_says_saves_no_command() {
    let (files, server) = (Store::memory(), RedisServer::start());
    let job = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let run = at(&server.url(), ("run --ttl 2s k -- sh -c", job));
    let (process, _said) = unread(&files, &run).await;
    // Its lines are that it stops the command, and that it kills it.
    server.stop();
    process.finish().await.has_code(Some(79));
}

/// Begins a run of which nobody reads what it says; its command is up.
async fn unread(files: &Store, run: &std::process::Command) -> (Process, (Gate, OwnedFd)) {
    let said = Gate::full(files, "said");
    let mut shell = in_shell("exec \"$@\" 2> said", run);
    shell.current_dir(files.path(""));
    let process = Process::spawn(shell);
    process.prints("up").await;
    (process, said)
}
