//! What the command has started, wherever it went and whoever it became: killed with it, or named.

use std::fs::{Permissions, copy, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use leasehold_testkit::process::End;
use rustix::process::{Pid, geteuid, kill_process, kill_process_group};

use crate::common::*;

/// Who has no rights.
const NOBODY: u32 = 65_534;

/// One in another session, one in another session whose parent has ended, and one in a
/// group of its own, as a shell with job control has it. All of them share the output.
const SCATTERED: &str = "\
    set -m
    setsid sh -c 'echo up; exec sleep 60' &
    (setsid sh -c 'trap \"\" TERM HUP; echo up; exec sleep 60' &)
    sh -c 'trap \"\" TERM; echo up; exec sleep 60' &
    echo up
    wait";

fn is_root(what: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("left out: {what} takes root");
    }
    root
}

async fn all_up(process: &Process) {
    for _ in 0..4 {
        process.prints("up").await;
    }
}

#[tokio::test]
async fn killed_itself_it_takes_a_command_of_another_user_along() {
    if !is_root("becoming another user") {
        return;
    }
    let run = "run k -- setpriv --reuid 65534 --regid 65534 --clear-groups sh -c";
    let process = printing(&Store::memory(), (run, "echo up; exec sleep 60"), "up").await;
    process.signal(Signal::KILL);
    // Its output ends when the command has gone: both held the same pipes.
    process.finish().await.has_code(None);
}

#[tokio::test]
async fn killed_itself_it_takes_along_all_that_the_command_has_started() {
    for kill in [Process::signal, Process::signal_group] {
        let process = Store::memory().spawn(("run k -- bash -c", SCATTERED));
        all_up(&process).await;
        kill(&process, Signal::KILL);
        // Its output ends when they have gone: all held the same pipes.
        process.finish().await.has_code(None);
    }
}

#[tokio::test]
async fn a_lost_lock_ends_all_that_the_command_has_started() {
    let store = Store::local();
    let run = ("run --grace 100ms k -- bash -c", SCATTERED);
    let process = store.spawn(run);
    all_up(&process).await;
    store.run("break --yes k").await;
    process.finish().await.has_code(Some(79));
}

#[tokio::test]
async fn a_shim_that_is_killed_ends_the_command() {
    let process = Store::memory().spawn(("run k -- sh -c", "echo $PPID; exec sleep 60"));
    let shim: i32 = process.prints("").await.parse().unwrap();
    kill_process(Pid::from_raw(shim).unwrap(), Signal::KILL).unwrap();
    process.ends_saying(71, "was killed").await;
}

/// Else nobody learns that the command has ended before somebody has it go on.
#[tokio::test]
async fn a_shim_that_is_stopped_goes_on_when_its_command_is_ended() {
    let store = Store::local();
    let script = "trap 'echo heard' USR1; echo $PPID; while :; do sleep 60 & wait; done";
    for breaks in [false, true] {
        let process = store.spawn(("run k -- sh -c", script));
        let shim: i32 = process.prints("").await.parse().unwrap();
        // What goes on to the command was read when the shim had told that it runs.
        process.signal(Signal::USR1);
        process.prints("heard").await;
        kill_process(Pid::from_raw(shim).unwrap(), Signal::STOP).unwrap();
        if breaks {
            store.run("break --yes k").await.has_code(Some(0));
            process.ends(79).await;
        } else {
            process.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
        }
    }
}

/// The only child of a process: of a leasehold that waits it is the shim.
pub(crate) fn only_child_of(process: &Process) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", process.pid());
    let children = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// Kills it, and waits for its end.
pub(crate) fn kill(pid: Pid) {
    let end = End::of(pid);
    kill_process(pid, Signal::KILL).unwrap();
    end.has_come();
}

/// It gets ready while leasehold waits, and waits for it.
#[tokio::test]
async fn a_shim_ends_with_a_leasehold_that_gets_no_lock() {
    let store = Store::local();
    let (_holder, _) = store.holder("k").await;
    let waiting = store.waiter("k", "run k -- true").await;
    let end = End::of(only_child_of(&waiting));
    waiting.ends_by(Signal::KILL).await;
    end.has_come();
}

#[tokio::test]
async fn a_shim_that_is_killed_before_it_is_needed_is_replaced() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let waiting = store.waiter("k", "run k -- echo ran").await;
    kill(only_child_of(&waiting));
    holder.signal(Signal::TERM);
    assert_eq!(waiting.finish().await.stdout, "ran\n");
}

/// Its program is known without `/proc`, too.
#[tokio::test]
async fn without_proc_it_runs_a_command() {
    if !is_root("mounting over /proc") {
        return;
    }
    let run = Store::memory().command("run k -- echo ran");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    command.env("LEASEHOLD_STORE", "memory:");
    let ended = Process::run(command).await;
    assert_eq!(ended.stdout, "ran\n", "{}", ended.stderr);
}

/// A user who has no rights, and a program that gives them root's.
struct Stranger {
    store: Store,
}

impl Stranger {
    fn new() -> Option<Self> {
        if !is_root("a program that becomes root") {
            return None;
        }
        let stranger = Self {
            store: Store::local(),
        };
        let path = |name| stranger.store.path(name);
        set_permissions(path(""), Permissions::from_mode(0o777)).unwrap();
        copy(env!("CARGO_BIN_EXE_leasehold"), path("leasehold")).unwrap();
        copy("/usr/bin/setpriv", path("become")).unwrap();
        chown(path("become"), Some(0), Some(0)).unwrap();
        set_permissions(path("become"), Permissions::from_mode(0o4755)).unwrap();
        let mut tried = stranger.command(&path("become"), "--reuid 0 id -u");
        let said = tried.output().unwrap();
        if said.stdout != b"0\n" {
            eprintln!("left out: programs keep their user here: {said:?}");
            return None;
        }
        Some(stranger)
    }

    fn command(&self, program: &std::path::Path, arguments: impl Arguments) -> Command {
        let mut command = Command::new("setpriv");
        let user = NOBODY.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(program).args(arguments.words());
        in_environment_of(&self.store.command(""), &mut command);
        command
    }

    /// Leasehold, run by the user, with a command that becomes root and ignores SIGTERM; and the
    /// process id of that.
    async fn run(&self, options: &(impl Arguments + ?Sized)) -> (Process, Pid) {
        let script = "trap '' TERM; echo $$; exec sleep 60";
        let command = ["k", "--", "./become", "--reuid", "0", "sh", "-c", script];
        let mut leasehold = self.command(&self.store.path("leasehold"), "run");
        leasehold.args(options.words()).args(command);
        let process = Process::spawn(leasehold);
        let pid = process.prints("").await.parse().unwrap();
        (process, Pid::from_raw(pid).unwrap())
    }

    /// Leasehold, run by the user.
    async fn leasehold(&self, arguments: impl Arguments) -> Finished {
        let leasehold = self.store.path("leasehold");
        Process::run(self.command(&leasehold, arguments)).await
    }

    /// Whether somebody else gets the lock.
    async fn is_free(&self) -> bool {
        let ended = self.leasehold("run -n k -- true").await;
        assert!([Some(0), Some(75)].contains(&ended.code()), "{ended:?}");
        ended.code() == Some(0)
    }

    async fn breaks(&self) {
        self.leasehold("break --yes k").await.has_code(Some(0));
    }
}

#[tokio::test]
async fn beyond_the_longest_hold_the_lock_is_kept_while_what_cannot_be_killed_runs() {
    let Some(user) = Stranger::new() else { return };
    // Which is its lease, too: on a busy machine a shorter one may not be renewed in time.
    let (process, command) = user.run("--max-hold 15s").await;
    let said = process.says("cannot kill pid ").await;
    let named = format!("cannot kill pid {} (sleep, user root)", pid(command));
    let kept = "k stays locked and is renewed until it ends";
    says(&said, [&*named, kept]);
    // Longer than its lease without renewal.
    tokio::time::sleep(std::time::Duration::from_millis(15_500)).await;
    assert!(!user.is_free().await);
    kill_process(command, Signal::KILL).unwrap();
    let ended = process.ends(79).await;
    for claimed in ["killing the command", "stopping the command", "lost k"] {
        ended.has_not_said(claimed);
    }
    assert!(user.is_free().await);
}

#[tokio::test]
async fn a_lock_that_was_kept_for_what_cannot_be_killed_and_is_taken_is_not_left_to_it() {
    let Some(user) = Stranger::new() else { return };
    let (process, command) = user.run("--max-hold 15s --json").await;
    process.says("\"then\":\"kept\"").await;
    user.breaks().await;
    process.says("\"then\":\"may_overlap\"").await;
    kill_process(command, Signal::KILL).unwrap();
    let events = events(&process.ends(79).await.stderr);
    let lost: Vec<_> = events.iter().filter(|it| it["event"] == "lost").collect();
    assert_eq!(lost.len(), 1, "{events:?}");
    assert_eq!(lost[0]["action"], "refused", "{events:?}");
}

#[tokio::test]
async fn a_lost_lock_whose_command_cannot_be_killed_says_that_another_may_begin() {
    let Some(user) = Stranger::new() else { return };
    let (process, command) = user.run("--grace 100ms --json").await;
    user.breaks().await;
    process.says("\"signal\":15").await;
    process.says("\"signal\":9").await;
    assert!(user.is_free().await);
    kill_process(command, Signal::KILL).unwrap();
    let events = events(&process.ends(79).await.stderr);
    let of = |name| events.iter().filter(move |event| event["event"] == name);
    let all_refused = of("lost").all(|lost| lost["action"] == "refused");
    assert!(all_refused, "{events:?}");
    assert_eq!(of("refused").count(), 2, "each signal once: {events:?}");
    for refused in of("refused") {
        assert_eq!(refused["then"], "may_overlap", "{refused}");
        assert_eq!(refused["processes"][0]["pid"], pid(command));
        assert_eq!(refused["processes"][0]["user"], "root");
    }
}

#[tokio::test]
async fn a_request_to_stop_that_the_command_does_not_get_is_said() {
    let Some(user) = Stranger::new() else { return };
    let (process, command) = user.run("").await;
    process.signal(Signal::TERM);
    let said = process.says("cannot stop pid ").await;
    assert!(said.contains("k stays locked"), "{said}");
    assert!(!user.is_free().await);
    kill_process_group(command, Signal::KILL).unwrap();
    process.finish().await.has_signal(Signal::KILL);
}

fn pid(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
