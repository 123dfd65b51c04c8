//! Leasehold as the first process of a container: here of a process namespace.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, geteuid, kill_process};

use crate::children::{GONE, Gate, ORPHANS};
use crate::common::pty::Terminal;
use crate::common::*;
use crate::descendants::only_child_of;

/// In a namespace, of which it is the first process. Whoever is not root makes one of users, too.
fn in_container(store: &Store, arguments: impl Arguments) -> Command {
    let leasehold = store.command(arguments);
    let mut command = Command::new("unshare");
    command.args(["--kill-child", "--pid", "--mount-proc"]);
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg(leasehold.get_program());
    command.args(leasehold.get_args());
    in_environment_of(&leasehold, &mut command);
    command
}

async fn run(store: &Store, script: &str) -> Finished {
    Process::run(in_container(store, ("run k -- sh -c", script))).await
}

fn is_leasehold(pid: Pid) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    program.file_name() == Path::new(env!("CARGO_BIN_EXE_leasehold")).file_name()
}

/// A shell in the namespace of that process, which did not start it, and in its directory: as
/// `docker exec` does it.
fn exec(first: Pid, script: &str) -> Command {
    let mut command = Command::new("nsenter");
    let first = first.as_raw_nonzero().to_string();
    command.args(["--target", &first, "--pid", "--mount", "--wd"]);
    if !geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    let arguments: [&OsStr; 3] = ["sh".as_ref(), "-c".as_ref(), script.as_ref()];
    command.args(arguments);
    command
}

#[tokio::test]
async fn the_exit_status_is_the_commands_own() {
    let ended = run(&Store::memory(), "(sleep 0.2 &) ; exit 3").await;
    ended.has_code(Some(3));
    let ended = run(&Store::memory(), "cat /proc/1/comm").await;
    assert_eq!(ended.stdout, "leasehold\n", "it is the first");
}

/// Its group, and that in front of the terminal, have no numbers there.
#[test]
fn at_a_terminal_from_outside_the_command_runs() {
    let store = Store::memory();
    let mut terminal = Terminal::spawn(in_container(&store, "run k -- echo ran"));
    terminal.wait_for("ran");
    assert_eq!(terminal.finish().0.code(), Some(0));
}

#[tokio::test]
async fn what_the_command_leaves_behind_is_reaped() {
    let ended = run(&Store::memory(), &format!("{ORPHANS} {GONE}; exit 3")).await;
    ended.has_code(Some(3));
    assert_eq!(ended.stdout, "looked\n");
}

#[tokio::test]
async fn what_others_leave_behind_is_reaped() {
    let store = Store::local();
    let (holder, _) = store.holder("waited-for").await;
    let running = in_container(&store, "run k -- sh -c 'echo up; exec sleep 600'");
    let running = Process::spawn(running);
    running.prints("up").await;
    let waiting = Process::spawn(in_container(&store, "hold waited-for"));
    waiting.says("waiting for").await;
    for (process, name) in [(&running, "first"), (&waiting, "second")] {
        let (first, gate) = (only_child_of(process), Gate::new(&store, name));
        assert!(is_leasehold(first));
        // The orphan says whose it is now, and ends.
        let orphan = format!("echo $$; read go < {name}; grep PPid /proc/$$/status");
        let left = Process::spawn(exec(first, &format!("(sh -c '{orphan}' &)")));
        let pid = left.prints("").await;
        left.wait().await;
        gate.open().await;
        assert_eq!(left.prints("PPid").await, "PPid:\t1");
        let looked = Process::run(exec(first, &format!("pids={pid}; {GONE}"))).await;
        assert_eq!(looked.stdout, "looked\n");
    }
    drop(holder);
}

#[tokio::test]
async fn signals_go_on_to_the_command() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let number = signal.as_raw();
        // Of what it begins in front a bash could take over that it has survived a SIGINT.
        let waits = "exec 3<> <(:); echo up; while :; do read -r -t 1 <&3; done";
        let script = format!("trap 'exit 9' {number}; {waits}");
        let store = Store::memory();
        let process = in_container(&store, ("run k -- bash -c", &script));
        let process = Process::spawn(process);
        process.prints("up").await;
        kill_process(only_child_of(&process), signal).unwrap();
        process.ends(9).await;
    }
}

#[tokio::test]
async fn a_signal_ends_the_waiting() {
    let store = Store::local();
    let (_holder, _) = store.holder("k").await;
    let process = Process::spawn(in_container(&store, "run k -- true"));
    process.says("waiting for k").await;
    kill_process(only_child_of(&process), Signal::TERM).unwrap();
    process.finish().await.has_code(Some(143));
}

/// Containers may share the name of their host, and each has a process 1.
#[tokio::test]
async fn the_first_process_of_another_container_is_another() {
    let store = Store::redis();
    let holder = Process::spawn(in_container(&store, "hold k"));
    holder.prints("").await;
    let busy = Process::run(in_container(&store, "run -n k -- true")).await;
    busy.has_ended_saying(Some(75), "(pid 1)");
}

#[tokio::test]
async fn with_children_it_ends_after_them() {
    let store = Store::memory();
    let script = "(setsid sh -c 'echo up; sleep 0.2; echo over' &) ; exit 3";
    let run = ("run --with-children k -- sh -c", script);
    let ended = Process::spawn(in_container(&store, run)).ends(3).await;
    // Without, the system ends them with the first process.
    assert_eq!(ended.stdout, "up\nover\n");
}
