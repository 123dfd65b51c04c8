//! What the command leaves running: without the lock, or with `--with-children` under it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, kill_process};

use crate::common::*;
use crate::terminal::{leave, shell, suspend};

on_each_store! {
    the_lock_is_released_when_the_command_ends,
    with_children_the_lock_is_held_until_all_are_gone,
    what_is_left_by_what_was_left_counts_too,
    a_lost_lock_ends_what_was_left,
    killed_itself_it_takes_along_what_was_left,
    a_restart_goes_on_after_both_were_killed,
}

/// A daemon that waits at the gate, in a session of its own, with no parent and no output. The
/// command goes on once it runs.
const DAEMON: &str = "mkfifo up; \
    (setsid sh -c 'echo up > up; read go < gate' > /dev/null 2>&1 &); read up < up";

/// Makes nine orphans, whose process ids are `pids` then.
pub(crate) const ORPHANS: &str = "for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'echo $$ >> pids' &); done; \
    while [ $(cat pids | wc -l) -lt 9 ]; do :; done 2> /dev/null; pids=$(cat pids);";

/// Waits until those processes are gone, zombies too; says what is left of them after 30 s.
pub(crate) const GONE: &str = "n=0; for p in $pids; do \
    while [ -e /proc/$p ] && [ $n -lt 300 ]; do n=$((n+1)); sleep 0.1; done; \
    [ ! -e /proc/$p ] || grep State /proc/$p/status; done; echo looked";

/// Where processes of the command wait until they are let go.
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn new(store: &Store, name: &str) -> Self {
        let gate = store.path(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &gate, Mode::RWXU).unwrap();
        Self(gate)
    }

    /// One that is full, and that nobody reads, as long as the answer is open.
    pub(crate) fn full(store: &Store, name: &str) -> (Self, OwnedFd) {
        let gate = Self::new(store, name);
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let out = rustix::fs::open(&gate.0, flags, Mode::empty()).unwrap();
        for chunk in [4096, 1] {
            while rustix::io::write(&out, &vec![b'x'; chunk]).is_ok() {}
        }
        (gate, out)
    }

    /// Lets one go that waits or will.
    pub(crate) async fn open(&self) {
        let gate = self.0.clone();
        let opened = tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n"));
        opened.await.unwrap().unwrap();
    }
}

fn start(store: &Store, options: &str, script: &str) -> Process {
    store.spawn((format!("run --with-children {options} k -- sh -c"), script))
}

/// The same, once the command has ended.
async fn left(store: &Store, options: &str, script: &str) -> Process {
    let process = start(store, options, script);
    process.says("holding k until").await;
    process
}

/// Whether nobody holds the key.
async fn is_free(store: &Store) -> bool {
    let next = store.run("run -n k -- true").await;
    assert!([Some(0), Some(75)].contains(&next.code()), "{next:?}");
    next.code() == Some(0)
}

pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

async fn the_lock_is_released_when_the_command_ends(store: &Store) {
    for left in ["sleep 600", "setsid sleep 600"] {
        let script = format!("{left} > /dev/null 2>&1 & echo $!");
        let ended = store.run(&("run k -- sh -c", script)).await;
        ended.has_been_quiet(Some(0));
        assert!(is_free(store).await);
        kill_process(pid(ended.stdout.trim()), Signal::KILL).expect("it runs on");
    }
}

async fn with_children_the_lock_is_held_until_all_are_gone(store: &Store) {
    let gate = Gate::new(store, "gate");
    let process = start(store, "", &format!("{DAEMON}; exit 3"));
    let said = process.says("the command has ended").await;
    let begins = "leasehold: the command has ended with status 3; holding k until a process that it \
                  left is gone: sh (pid ";
    assert!(said.starts_with(begins), "{said}");
    assert!(!is_free(store).await);
    gate.open().await;
    process.finish().await.has_code(Some(3));
    assert!(is_free(store).await);
}

async fn what_is_left_by_what_was_left_counts_too(store: &Store) {
    let (first, second) = (Gate::new(store, "first"), Gate::new(store, "second"));
    // The last one has a parent until the first gate opens, and is an orphan then.
    let script = "(sh -c 'sh -c \"echo up; read go < second\" & read go < first; echo over' &)";
    let process = left(store, "", script).await;
    process.prints("up").await;
    first.open().await;
    process.prints("over").await;
    assert!(!is_free(store).await);
    second.open().await;
    process.finish().await.has_code(Some(0));
    assert!(is_free(store).await);
}

async fn a_lost_lock_ends_what_was_left(store: &Store) {
    let deaf = "trap \"\" TERM; echo up; exec sleep 600";
    let script = format!("(setsid sh -c '{deaf}' &) ; (sh -c '{deaf}' &)");
    let process = left(store, "--grace 100ms", &script).await;
    for _ in 0..2 {
        process.prints("up").await;
    }
    store.run("break --yes k").await;
    // Its output ends with them.
    process.ends_saying(79, "lost k: ").await;
}

async fn killed_itself_it_takes_along_what_was_left(store: &Store) {
    let script = "(setsid sh -c 'trap \"\" TERM; echo up; exec sleep 600' &)";
    let process = left(store, "", script).await;
    process.prints("up").await;
    process.signal_group(Signal::KILL);
    process.finish().await.has_code(None);
}

async fn a_restart_goes_on_after_both_were_killed(store: &Store) {
    let script = "(sh -c 'echo up; exec sleep 600' &)";
    let process = left(store, "--recover-as svc", script).await;
    process.prints("up").await;
    process.ends_by(Signal::KILL).await;
    let next = start(store, "--recover-as svc -n", "echo on");
    next.finish().await.has_printed(Some(0), "on\n");
}

#[tokio::test]
async fn where_nothing_is_left_nothing_is_said() {
    let store = Store::local();
    for (script, status) in [
        ("exit 0", Some(0)),
        ("true & wait; exit 5", Some(5)),
        ("kill $$", None),
    ] {
        let ended = start(&store, "", script).finish().await;
        assert_eq!((ended.code(), &*ended.stderr), (status, ""), "{script}");
    }
}

#[tokio::test]
async fn the_lock_is_renewed_meanwhile() {
    let store = Store::local();
    let gate = Gate::new(&store, "gate");
    let process = left(&store, "--ttl 3s", DAEMON).await;
    // Longer than its lease without renewal.
    tokio::time::sleep(std::time::Duration::from_millis(3_500)).await;
    assert!(!is_free(&store).await);
    gate.open().await;
    process.finish().await.has_code(Some(0));
}

#[tokio::test]
async fn signals_go_on_to_what_was_left() {
    let store = Store::memory();
    // A shell starts its background with SIGINT and SIGQUIT ignored.
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP] {
        let script = "(setsid sh -c 'echo up; exec sleep 600' &) ; sleep 600 & exit 3";
        let process = start(&store, "", script);
        process.says("2 processes that it left").await;
        process.prints("up").await;
        let ended = process.ends_by(signal).await;
        assert_eq!(ended.code(), Some(3), "{signal:?}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn the_longest_hold_ends_what_was_left() {
    let store = Store::memory();
    let script = "(setsid sh -c 'trap \"\" TERM; exec sleep 600' &) ; exit 0";
    let process = left(&store, "--max-hold 4s", script).await;
    process.finish().await.has_code(Some(79));
}

/// While the command is not reaped, the system names it first of all who have ended.
#[tokio::test]
async fn what_ends_meanwhile_is_reaped() {
    let store = Store::memory();
    let gate = Gate::new(&store, "gate");
    let meanwhile = format!("{ORPHANS} cat /proc/$PPID/comm; {GONE}");
    std::fs::write(store.path("meanwhile.sh"), meanwhile).unwrap();
    let script = "(sh -c 'read go < gate; exec sh meanwhile.sh' &)";
    let process = left(&store, "", script).await;
    gate.open().await;
    process.ends_printing(0, "leasehold-shim\nlooked\n").await;
}

#[tokio::test]
async fn who_is_left_is_told_in_json() {
    let store = Store::local();
    let gate = Gate::new(&store, "gate");
    let script = format!("{DAEMON}; kill -KILL $$");
    let process = store.spawn(("run --json --with-children -k b -k a -- sh -c", &script));
    process.says("left_running").await;
    gate.open().await;
    let ended = process.finish().await;
    ended.has_signal(Signal::KILL);
    let events = events(&ended.stderr);
    let expected = ["acquired", "left_running", "released", "exit"];
    assert_eq!(names(&events), expected);
    let left = &events[1];
    includes(left, json!({"status": 137, "signal": 9}));
    assert_eq!(left["keys"].as_array().unwrap().len(), 2, "{left}");
    let processes = left["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1, "{left}");
    assert_eq!(processes[0]["program"], "sh");
    assert!(processes[0]["pid"].is_u64(), "{left}");
}

#[tokio::test]
async fn a_term_lasts_until_all_are_gone() {
    let store = Store::local();
    let gate = Gate::new(&store, "gate");
    let script = format!("{DAEMON}; exit 4");
    let process = store.spawn((
        format!("elect -S {} --with-children --once k -- sh -c", store.url),
        &script,
    ));
    process.says("holding k until").await;
    assert!(!is_free(&store).await);
    gate.open().await;
    process.finish().await.has_code(Some(4));
    assert!(is_free(&store).await);
}

#[tokio::test]
async fn what_is_done_once_in_a_period_is_still_being_done() {
    let store = Store::local();
    let gate = Gate::new(&store, "gate");
    let process = left(&store, "--every 1h", DAEMON).await;
    let skipped = &events(&store.run("run --every 1h --json k -- true").await.stderr)[0];
    includes(skipped, json!({"event": "skipped", "running": true}));
    gate.open().await;
    process.finish().await.has_code(Some(0));
}

#[tokio::test]
async fn a_shim_that_is_killed_meanwhile_is_said() {
    let store = Store::memory();
    let script = "echo $PPID; sleep 600 > /dev/null 2>&1 & echo $!";
    let process = start(&store, "", script);
    let shim = pid(&process.prints("").await);
    let left = pid(&process.prints("").await);
    process.says("holding k until").await;
    kill_process(shim, Signal::KILL).unwrap();
    let ended = process.finish().await;
    let _ = kill_process(left, Signal::KILL);
    ended.has_ended_saying(Some(71), "was killed");
}

#[test]
fn ctrl_c_ends_what_was_left() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.types("$L run --with-children k -- sh -c 'sleep 600 & exit 6'\n");
    terminal.wait_for("holding k until");
    terminal.enters("\x03", "ready> ");
    terminal.enters("echo \"status=$?\"\n", "status=6");
    leave(terminal);
}

#[test]
fn ctrl_z_stops_what_was_left_too() {
    let store = Store::memory();
    let mut terminal = shell(&store);
    terminal.types("$L run --with-children k -- sh -c 'sleep 600 & exit 6'\n");
    terminal.wait_for("holding k until");
    suspend(&mut terminal);
    terminal.types("echo stopped=$(ps -t $(tty) -o stat=,comm= | grep -c '^T.*sleep')\n");
    terminal.wait_for("stopped=1");
    terminal.wait_for("ready> ");
    terminal.types("bg; kill -TERM %1; wait %1; echo \"status=$?\"\n");
    terminal.wait_for("status=6");
    leave(terminal);
}
