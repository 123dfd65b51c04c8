//! A job that is killed and started again goes on at once, if its process is provably gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::children::pid;
use crate::common::*;
use rustix::process::kill_process;
use tokio::time::Instant;

on_each_store!(
    a_restart_after_a_crash_goes_on_at_once,
    a_restart_waits_while_the_old_one_runs,
    a_restart_waits_while_what_the_command_started_runs,
    a_file_of_this_machine_is_gone_on_with,
    a_file_of_another_machine_is_not,
    a_torn_file_is_ignored,
    a_clean_end_empties_the_file,
    a_file_that_others_can_read_is_refused,
);

/// Says its token, then waits.
const JOB: &str = "run --recover-as svc k -- sh -c";
const WAIT: &str = "echo $LEASEHOLD_TOKEN; exec sleep 600";

/// What is said of the file of another machine.
const ELSEWHERE: &str = "is ignored: it was written on another machine, elsewhere";

fn start(store: &Store) -> Process {
    store.spawn((JOB, WAIT))
}

async fn token(process: &Process) -> u64 {
    process.prints("").await.parse().unwrap()
}

/// Kills it and waits until all that had its output are gone.
async fn crash(process: Process) {
    process.ends_by(Signal::KILL).await;
}

/// One that has held the key, with this token, and has crashed.
async fn crashed(store: &Store) -> u64 {
    let process = start(store);
    let token = token(&process).await;
    crash(process).await;
    token
}

fn file(store: &Store) -> PathBuf {
    let files = fs::read_dir(store.path("state/leasehold")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn edit(store: &Store, change: impl FnOnce(&mut Value)) {
    let file = file(store);
    let mut state = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut state);
    fs::write(file, state.to_string()).unwrap();
}

async fn a_restart_after_a_crash_goes_on_at_once(store: &Store) {
    let mut job = start(store);
    let mut last = token(&job).await;
    for _ in 0..3 {
        crash(job).await;
        let begun = Instant::now();
        job = start(store);
        let next = token(&job).await;
        let took = begun.elapsed();
        println!("{}: went on {took:?} after the crash", store.url);
        assert!(took < Duration::from_secs(5), "{took:?}");
        if store.is_remote() {
            job.says("leasehold: recovered k after ").await;
        }
        assert!(next > last);
        last = next;
    }
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(file(store)), 0o600);
    assert_eq!(mode(store.path("state/leasehold")), 0o700);
}

async fn a_restart_waits_while_the_old_one_runs(store: &Store) {
    let old = start(store);
    let first = token(&old).await;
    let new = start(store);
    let why = "the previous \"svc\", or a child of it, is still running";
    new.says(why).await;
    new.says("waiting for k (position 1)").await;
    old.signal(Signal::TERM);
    let second = token(&new).await;
    assert!(second > first);
    old.finish().await.has_signal(Signal::TERM);
    // It has taken over the file: what comes after it goes on where it was killed.
    crash(new).await;
    let third = start(store);
    assert!(token(&third).await > second);
    assert_eq!(third.status(), None);
}

async fn a_restart_waits_while_what_the_command_started_runs(store: &Store) {
    let script = "sleep 600 > /dev/null 2>&1 & echo $!; echo shim $PPID; wait";
    let old = store.spawn((JOB, script));
    let left = pid(&old.prints("").await);
    let shim = pid(&old.prints("shim ").await["shim ".len()..]);
    // As if both had been killed at once: then nobody ends what the command has started. It is not the
    // shim that is stopped meanwhile: the system continues what stands still when its parent ends.
    old.stop();
    kill_process(shim, Signal::KILL).unwrap();
    old.ends_by(Signal::KILL).await;
    let new = start(store);
    let why = "or a child of it, is still running: no lease is recovered";
    new.says(why).await;
    new.says("waiting for k (position 1)").await;
    new.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
    kill_process(left, Signal::KILL).unwrap();
    // Nobody reports that the last one has gone, but the next start finds out.
    let begun = Instant::now();
    loop {
        let next = store.run("run -n --recover-as svc k -- true").await;
        if next.code() == Some(0) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", next.stderr);
    }
}

/// It may have been started again since, or be called otherwise by now.
async fn a_file_of_this_machine_is_gone_on_with(store: &Store) {
    for (what, then) in [("boot", "another"), ("host", "elsewhere")] {
        let first = crashed(store).await;
        edit(store, |state| state[what] = json!(then));
        let next = start(store);
        assert!(token(&next).await > first);
        crash(next).await;
    }
}

async fn a_file_of_another_machine_is_not(store: &Store) {
    crashed(store).await;
    edit(store, |state| {
        state["boot"] = json!("another");
        state["host"] = json!("elsewhere");
    });
    let new = start(store);
    new.says(ELSEWHERE).await;
    if store.is_remote() {
        new.says("waiting for k (position 1)").await;
    }
}

/// As with `ProcSubset=pid` of systemd: both machines have no id of their start, and so the same.
#[tokio::test]
async fn a_file_of_another_machine_is_not_where_the_system_does_not_say_which_start_it_is() {
    let store = Store::redis();
    crashed(&store).await;
    edit(&store, |state| {
        state["boot"] = json!("");
        state["host"] = json!("elsewhere");
    });
    let hidden = "mount --bind /dev/null /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let new = in_shell(hidden, &store.command((JOB, WAIT)));
    let new = Process::spawn(with_own_mounts(&new));
    new.says(ELSEWHERE).await;
}

async fn a_torn_file_is_ignored(store: &Store) {
    let old = start(store);
    token(&old).await;
    old.ends_by(Signal::TERM).await;
    fs::write(file(store), "{\"name\":\"sv").unwrap();
    let new = start(store);
    new.says("is ignored: it is damaged, or not leasehold's")
        .await;
    token(&new).await;
    crash(new).await;
    // It was replaced by a whole one.
    token(&start(store)).await;
}

async fn a_clean_end_empties_the_file(store: &Store) {
    store.run((JOB, "exit 4")).await.has_been_quiet(Some(4));
    assert_eq!(fs::read_to_string(file(store)).unwrap(), "");
    store.run((JOB, "exit 0")).await.has_been_quiet(Some(0));
}

async fn a_file_that_others_can_read_is_refused(store: &Store) {
    let allow = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    store.run((JOB, "exit 0")).await;
    for (path, wide, narrow) in [
        (file(store), 0o644, 0o600),
        (store.path("state/leasehold"), 0o750, 0o700),
    ] {
        allow(path.clone(), wide);
        let refused = ends_saying(store, (JOB, "exit 0"), 71, "other users can access").await;
        // A group may share locks in that directory.
        refused.has_not_said("chmod");
        allow(path, narrow);
    }
    assert_eq!(store.show("k").await["holders"], json!([]));
}
