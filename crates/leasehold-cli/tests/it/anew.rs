//! Leasehold started anew by leasehold: from whatever became of its program, with whatever it has
//! itself, and never to stay behind.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::process::End;
use rustix::process::{
    Pid, Resource, Rlimit, WaitId, WaitIdOptions, kill_process, prlimit, waitid,
};
use tokio::time::sleep;

use crate::common::*;
use crate::descendants::{kill, only_child_of};

/// What a user may try with them, and what `ps` shows of them.
const OF_A_USER: &str = "__shim | __shim --help | __shim true | __shim true echo ran | \
    __probe | __probe 1 | __probe -1";

#[tokio::test]
async fn only_leasehold_starts_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    for typed in OF_A_USER.split(" | ") {
        let role = typed.split(' ').next().unwrap();
        let stranger = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let all = [null.into(), accepted.into(), caller.into(), stranger.into()];
        let all = all.map(|stdin: OwnedFd| Some(stdin)).into_iter();
        for stdin in all.chain([None]) {
            let mut command = leasehold(typed);
            match stdin {
                Some(stdin) => {
                    command.stdin(stdin);
                }
                None => command = in_shell("exec \"$@\" <&-", &command),
            }
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(64), "{typed}: {said}");
            assert!(output.stdout.is_empty(), "{typed}");
            let expected = format!("leasehold: only leasehold itself starts leasehold {role}\n");
            assert!(said.starts_with(&expected), "{typed}: {said}");
            assert!(said.contains("hint: "), "{typed}: {said}");
        }
    }
    for shown in "--help | help run | man | completions bash | completions zsh".split(" | ") {
        let said = String::from_utf8(leasehold(shown).output().unwrap().stdout).unwrap();
        let named = said.contains("__shim") || said.contains("__probe");
        assert!(!said.is_empty() && !named, "{shown}");
    }
}

/// One that runs from a file of its own, and waits for `k`; its shim is killed.
async fn waits_without_shim(store: &Store) -> (PathBuf, Process) {
    let program = store.path("program");
    // By another process: what this one writes may be open in a child that another test starts, and
    // cannot be started meanwhile.
    let mut copy = Command::new("cp");
    copy.arg(leasehold("").get_program()).arg(&program);
    assert!(copy.status().unwrap().success());
    let run = store.command("run k -- echo ran");
    let mut command = Command::new(&program);
    command.args(run.get_args()).current_dir(store.path(""));
    command.env("LEASEHOLD_CONFIG", "/dev/null");
    command.env("LEASEHOLD_STORE", &store.url);
    let waiting = Process::spawn(command);
    waiting.says("waiting for k").await;
    kill(only_child_of(&waiting));
    (program, waiting)
}

/// As an upgrade does it.
#[tokio::test]
async fn a_program_that_was_removed_or_replaced_goes_on_by_itself() {
    const OTHER: &str = "#!/bin/sh\necho another version; exit 9\n";
    let remove: fn(PathBuf) = |program| fs::remove_file(program).unwrap();
    let replace: fn(PathBuf) = |program| {
        let new = program.with_extension("new");
        fs::write(&new, OTHER).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, program).unwrap();
    };
    for change in [remove, replace] {
        let store = Store::local();
        let (holder, _) = store.holder("k").await;
        let (program, waiting) = waits_without_shim(&store).await;
        change(program);
        holder.signal(Signal::TERM);
        waiting.finish().await.has_printed(Some(0), "ran\n");
    }
}

/// As on a file system that was mounted `noexec` meanwhile: the error is the same.
#[tokio::test]
async fn a_program_that_may_not_be_started_again_says_so() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let (program, waiting) = waits_without_shim(&store).await;
    fs::set_permissions(program, Permissions::from_mode(0o644)).unwrap();
    holder.signal(Signal::TERM);
    let ended = waiting.ends_printing(71, "").await;
    ended.has_said("cannot start echo: leasehold may not start its own program");
    store.run("run -n k -- true").await.has_code(Some(0));
}

#[tokio::test]
async fn it_starts_with_what_leasehold_has() {
    let store = Store::memory();
    let libc =
        "ls /proc/self/exe > /dev/null && grep -o '/.*libc.so.6' /proc/self/maps | head -n 1";
    let libc = Command::new("sh").args(["-c", libc]).output().unwrap();
    let libc = String::from_utf8(libc.stdout).unwrap();
    for [with, job, printed] in table::<3>(
        r#"
        exec "$@" <&-                       | cat; echo ran            | ran\n
        exec "$@" 2>&-                      | echo ran; echo said >&2  | ran\n
        exec "$@" 2> /dev/full              | echo ran; echo said >&2  | ran\n
        exec "$@" >&-                       | echo ran                 |
        exec "$@" <&- >&- 2>&-              | echo ran                 |
        exec "$@" 3<&- 9< /dev/null         | ls /dev/fd/9 && echo ran | /dev/fd/9\nran\n
        LD_PRELOAD=$LIBC exec "$@"          | echo ${LD_PRELOAD:+ran}  | ran\n
        cd gone && rmdir ../gone; exec "$@" | echo ran                 | ran\n
    "#,
    ) {
        fs::create_dir_all(store.path("gone")).unwrap();
        let run = store.command(&("run k -- sh -c", format!("{job}; exit 3")));
        let mut shell = in_shell(&with, &run);
        shell.env("LIBC", libc.trim());
        Process::run(shell).await.has_printed(Some(3), &printed);
    }
}

/// Whether a process has that in its arguments.
fn is_there(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut all = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    let is_it = |it: &[u8]| it == argument.as_bytes();
    all.any(|arguments| arguments.split(|byte| *byte == 0).any(is_it))
}

#[tokio::test]
async fn killed_at_any_instant_it_leaves_no_process() {
    let store = Store::local();
    // Nobody else sleeps so long.
    let long = format!("61.{:06}", std::process::id());
    for instant in 0..50 {
        let process = store.spawn(("run k -- sleep", &*long));
        sleep(Duration::from_micros(1_500 * instant)).await;
        process.signal(Signal::KILL);
        // All of them have its output, until there is only the command's.
        process.finish().await;
        let is_gone = async || !is_there(&long);
        assert!(eventually(is_gone).await, "it runs for ever");
    }
}

/// A machine that was frozen, say: the lock may be another's by now.
#[tokio::test]
async fn a_shim_that_was_stopped_begins_nothing_for_a_leasehold_that_was_killed() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let waiting = store.waiter("k", "run -v k -- touch ran").await;
    let shim = only_child_of(&waiting);
    let end = End::of(shim);
    kill_process(shim, Signal::STOP).unwrap();
    holder.signal(Signal::TERM);
    // It waits for the shim, and for no event.
    let waits = format!("/proc/{}/syscall", waiting.pid());
    let waits = || {
        let call = fs::read_to_string(&waits).unwrap();
        call.split(' ').next().map(str::to_owned)
    };
    let for_events = waits();
    let pid = waiting.pid();
    let is_held = |seen: &Value| seen["holders"][0]["owner"]["pid"] == pid;
    store.until("k", is_held).await;
    let asks = async || waits() != for_events && waits() != Some("running\n".to_owned());
    assert!(eventually(asks).await, "it asks the shim");
    waiting.signal(Signal::KILL);
    waiting.wait().await;
    kill_process(shim, Signal::CONT).unwrap();
    end.has_come();
    waiting.finish().await;
    assert!(!store.path("ran").exists());
}

/// The command would be taken for dead, and the lock be another's.
#[tokio::test]
async fn a_shim_that_cannot_take_all_descriptors_starts_nothing() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let waiting = store.waiter("k", "run k -- touch ran").await;
    // Those that it has, and one more.
    let few = Rlimit {
        current: Some(4),
        maximum: Some(4),
    };
    prlimit(Some(only_child_of(&waiting)), Resource::Nofile, few).unwrap();
    holder.signal(Signal::TERM);
    waiting.ends_saying(71, "cannot start touch: ").await;
    assert!(!store.path("ran").exists());
}

/// Else a Ctrl-C behind that would end the command, and not the loop that has started it.
#[tokio::test]
async fn a_probe_that_was_stopped_goes_on() {
    let mut probe = leasehold(format!("__probe {}", std::process::id()));
    let mut probe = probe.stdout(Stdio::piped()).spawn().unwrap();
    let (pid, mut says) = (Pid::from_child(&probe), probe.stdout.take().unwrap());
    says.read_exact(&mut [0]).unwrap();
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let waits = async || stat().contains(") S ");
    assert!(eventually(waits).await, "it waits");
    kill_process(pid, Signal::STOP).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    // By another one: what its parent has sent is known there.
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -INT {pid}")]);
    assert!(kill.status().unwrap().success());
    let mut said = Vec::new();
    says.read_to_end(&mut said).unwrap();
    probe.wait().unwrap();
    let said: Vec<i32> = said.into_iter().map(i32::from).collect();
    assert_eq!(said, [Signal::INT.as_raw()]);
}
