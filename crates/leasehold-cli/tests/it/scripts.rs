//! Locks of shell scripts: `hold` bound to a script, a saved lease, `wait`, and `run -c`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::children::{Gate, pid};
use crate::common::*;
use rustix::fs::{FlockOperation, flock};
use rustix::process::kill_process;

on_each_store!(
    a_hold_ends_with_the_script_that_was_killed,
    a_script_is_told_that_its_lock_is_lost,
    a_hold_in_the_background_ends_with_its_script,
    a_hold_that_does_not_get_to_the_background_leaves_the_queue,
    a_hold_ends_with_a_descriptor,
    a_saved_lease_is_renewed_and_released_by_others,
    a_lock_is_released_when_its_saved_lease_is_removed,
    a_key_is_waited_for_and_not_taken,
    show_tells_held_from_free_by_its_status,
    ls_lists_what_is_held_or_waited_for,
);

/// A script of bash, with the command as `$L`.
fn script(store: &Store, lines: &str) -> Process {
    Process::spawn(bash(store, lines))
}

fn bash(store: &Store, lines: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", lines]);
    in_environment_of(&store.command(""), &mut bash);
    bash
}

const HOLD: &str = r#"exec 3< <(exec "$L" hold --while-parent k); read -r token <&3 || exit
echo "token $token""#;

fn is_free(shown: &Value) -> bool {
    shown["holders"] == json!([])
}

/// A script that has the lock says so.
async fn says_its_token(script: &Process, store: &Store) {
    let said = script.prints("token ").await;
    let token = said.strip_prefix("token ").unwrap().parse::<u64>().unwrap();
    assert_eq!(store.show("k").await["holders"][0]["token"], token);
}

async fn a_hold_ends_with_the_script_that_was_killed(store: &Store) {
    let script = script(store, &format!("{HOLD}; sleep 60"));
    says_its_token(&script, store).await;
    script.signal(Signal::KILL);
    store.until_free("k").await;
}

async fn a_script_is_told_that_its_lock_is_lost(store: &Store) {
    let lines = "trap 'kill $s; echo told; exit 3' TERM; sleep 60 & s=$!; echo up; wait";
    let script = script(store, &format!("{HOLD}\n{lines}"));
    script.prints("up").await;
    store.run("break --yes k").await.has_code(Some(0));
    script.finish().await.has_ended_saying(Some(3), "lost k: ");
}

async fn a_hold_in_the_background_ends_with_its_script(store: &Store) {
    // The script itself is watched, and not the subshell that starts leasehold.
    for hold in [
        "$(\"$L\" hold --background --while-parent k)",
        "$(\"$L\" hold --background --while-parent k 2>&1 && :)",
        "$(cd .; \"$L\" hold --background --while-parent=$$ k && :)",
    ] {
        for shell in ["sh", "bash"] {
            let lines = format!("T={hold}; echo \"token $T\"; sleep 600 > /dev/null 2>&1; echo on");
            let script = script(store, &format!("exec {shell} -c '{lines}'"));
            says_its_token(&script, store).await;
            script.signal_group(Signal::INT);
            script.wait().await;
            store.until_free("k").await;
        }
    }
    let lines = "trap 'echo told; exit 3' TERM; T=$(\"$L\" hold --background --while-parent k); \
        \"$L\" break -q --yes k; while :; do sleep 0.05; done";
    script(store, lines).ends_printing(3, "told\n").await;
    let endless = script(store, "\"$L\" hold --background --json k");
    let said = json_lines(&endless.ends(64).await.stderr);
    assert_eq!(said[0]["status"], 64);
}

async fn a_hold_that_does_not_get_to_the_background_leaves_the_queue(store: &Store) {
    let hold = "hold --background --while-parent k";
    let (_holder, _) = store.holder("k").await;
    for (options, status) in [("-n", 75), ("-n -E 0", 0)] {
        ends_printing(store, format!("{hold} {options}"), status, "").await;
    }
    // As of a caller that does not wait for what it starts.
    let lines = format!("trap '' CHLD; exec \"$L\" {hold} -n");
    Process::run(bash(store, &lines)).await.has_code(Some(75));
    for signal in [Signal::TERM, Signal::KILL] {
        let ended = store.waiter("k", hold).await.ends_by(signal).await;
        ended.has_signal(signal);
        assert_eq!(ended.stdout, "");
        assert_eq!(store.show("k").await["waiters"], json!([]));
    }
}

/// Where there is no `/dev/null`, say: the script would go on without the lock.
#[tokio::test]
async fn a_hold_that_cannot_stay_in_the_background_is_no_success() {
    let store = Store::local();
    let lines = "mount -t tmpfs none /dev || exit; : > none; export LEASEHOLD_CONFIG=none; \
        T=$(\"$L\" hold --background --while-parent k); echo \"ended $?\"";
    let ended = Process::run(with_own_mounts(&bash(&store, lines))).await;
    ended.has_printed(Some(0), "ended 71\n");
    ended.has_said("cannot go to the background: ");
    assert!(is_free(&store.show("k").await));
}

/// Here by a signal, which `hold` ends well by.
#[tokio::test]
async fn a_hold_that_ends_before_it_is_in_the_background_is_no_success() {
    let store = Store::local();
    let _full = Gate::full(&store, "out");
    let hold = store.command("hold --background --save f k");
    let front = Process::spawn(in_shell("exec \"$@\" > out", &hold));
    // Before that it may still take itself for waiting.
    assert!(eventually(async || store.path("f").exists()).await);
    let holder = &store.show("k").await["holders"][0]["owner"]["pid"];
    kill_process(pid(&holder.to_string()), Signal::TERM).unwrap();
    let why = "cannot go to the background: ";
    front.ends_saying(71, why).await;
    assert!(is_free(&store.show("k").await));
}

#[tokio::test]
async fn a_process_that_is_no_parent_is_named() {
    let store = Store::local();
    let lines = "sleep 600 & for p in 2147483647 $!; do \
        \"$L\" hold --while-parent=$p k 2>&1; echo $?; done; kill $!";
    let ended = script(&store, lines).finish().await;
    let said: Vec<_> = ended.stdout.lines().collect();
    assert_eq!((said.len(), said[2], said[5]), (6, "64", "64"), "{said:?}");
    assert!(said[0].starts_with("leasehold: process 2147483647 is none"));
    assert!(said[3].ends_with("parents, or it has ended"), "{said:?}");
}

/// The parent is gone before leasehold begins: whoever is its parent then has not started it.
#[tokio::test]
async fn a_hold_whose_parent_ended_before_it_looked_ends() {
    let store = Store::local();
    for hold in [
        "hold --while-parent k",
        "hold --while-parent=$P k",
        "hold --background --while-parent k",
        "hold --background --while-parent=$P k",
    ] {
        let orphan = format!("while [ -e /proc/$P ]; do sleep 0.01; done; exec \"$L\" {hold}");
        let parent = "export P=$$; sh -c \"$ORPHAN\" > out & exit 0";
        let lines = format!("rm -f out; mkfifo out; sh -c '{parent}'; cat out; echo over");
        // Orphans go to the first process of the system, or to the shim.
        for above in ["exec setsid -w", "exec \"$L\" run above --"] {
            let quoted = lines.replace('\'', "'\\''");
            let lines = format!("export ORPHAN='{orphan}' LINES='{quoted}'");
            let script = script(&store, &format!("{lines}; {above} sh -c \"$LINES\""));
            script.prints("over").await;
            assert_eq!(script.stdout().so_far(), ["over"], "{hold} below {above}");
            assert!(is_free(&store.show("k").await));
        }
    }
}

async fn a_hold_ends_with_a_descriptor(store: &Store) {
    let until = |file: &str| format!("until test -e {file}; do sleep 0.02; done");
    let [close, end] = ["close", "end"].map(until);
    let lines = format!(r#"exec 4> >(exec "$L" hold --fd 0 k); {close}; exec 4>&-; {end}"#);
    let script = script(store, &lines);
    script.prints("").await;
    assert!(!is_free(&store.show("k").await));
    fs::write(store.path("close"), "").unwrap();
    store.until_free("k").await;
    fs::write(store.path("end"), "").unwrap();
    script.finish().await.has_code(Some(0));
}

/// Another process that has the descriptor, too, may have set it so.
#[tokio::test]
async fn a_hold_waits_for_the_end_of_a_descriptor_that_does_not_block() {
    let store = Store::local();
    let (holder, _) = store.holder("k").await;
    let lines = "dd iflag=nonblock count=0 status=none; exec \"$L\" hold --fd 0 k";
    let (waits, input) = Process::spawn_to_feed(bash(&store, lines));
    waits.says("waiting for k").await;
    holder.signal(Signal::TERM);
    waits.prints("").await;
    drop(input);
    waits.finish().await.has_code(Some(0));
}

async fn a_saved_lease_is_renewed_and_released_by_others(store: &Store) {
    let (holder, token) = store.holder("--save k.lease k").await;
    let mode = fs::metadata(store.path("k.lease")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let renewed = ends(store, "renew --ttl 10m k.lease", 0).await;
    assert_eq!(renewed.stderr, "leasehold: renewed k for 10 min\n");
    let holds = &store.show("k").await["holders"][0];
    let left = holds["expires_in_ms"].as_u64().unwrap();
    assert!(left > 500_000, "{holds}");
    assert_eq!(holds["token"], token, "its holder is the same");
    let released = ends(store, "release --json k.lease", 0).await;
    assert_eq!(released.json(), json!({"key": "k", "held": true}));
    assert!(is_free(&store.show("k").await));
    holder.finish().await.has_been_quiet(Some(0));
    assert!(!store.path("k.lease").exists());
    ends_saying(store, "release k.lease", 64, "cannot read k.lease").await;
}

/// A step that has failed has no lock: the next try would wait for it.
#[tokio::test]
async fn a_saved_lease_whose_token_cannot_be_written_is_released() {
    let store = Store::redis();
    for hold in ["hold --save f --detach k", "hold --save f k"] {
        let shell = in_shell("exec \"$@\" > /dev/full", &store.command(hold));
        let ended = Process::run(shell).await;
        ended.has_ended_saying(Some(74), "cannot write the output");
        assert!(is_free(&store.show("k").await));
        assert!(!store.path("f").exists(), "{hold}");
    }
}

#[tokio::test]
async fn output_that_cannot_be_written_keeps_no_saved_lease_from_its_turn() {
    let store = Store::redis();
    ends(&store, "hold --save f --detach -k a -k b", 0).await;
    let after = async |arguments: &str| {
        let shell = in_shell("exec \"$@\" > /dev/full", &store.command(arguments));
        let ended = Process::run(shell).await;
        ended.has_ended_saying(Some(74), "cannot write the output");
        [store.show("a").await, store.show("b").await]
    };
    for shown in after("renew --json --ttl 10m f").await {
        let left = shown["holders"][0]["expires_in_ms"].as_u64();
        assert!(left > Some(500_000), "{shown}");
    }
    assert!(after("release --json f").await.iter().all(is_free));
    assert!(!store.path("f").exists());
}

/// Each later release would fail in the same way.
#[tokio::test]
async fn a_damaged_record_keeps_no_saved_lease_from_its_turn() {
    let store = Store::redis();
    ends(&store, "hold --save f --detach -k a -k b", 0).await;
    store.server().command(&["SET", "leasehold:lock:a", "junk"]);
    let renewed = ends(&store, "renew --ttl 10m f", 65).await;
    renewed.has_said("renewed b for 10 min");
    let released = ends(&store, "release f", 65).await;
    released.has_said("released b");
    assert!(is_free(&store.show("b").await));
    assert!(store.path("f").exists());
}

#[tokio::test]
async fn output_that_nobody_reads_keeps_no_saved_lease_from_its_turn() {
    let store = Store::redis();
    ends(&store, "hold --save f --detach -k a -k b", 0).await;
    let _full = Gate::full(&store, "out");
    let release = in_shell("exec \"$@\" > out", &store.command("release --json f"));
    let release = Process::spawn(release);
    for key in ["a", "b"] {
        store.until_free(key).await;
    }
    assert!(eventually(async || !store.path("f").exists()).await);
    release.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
}

/// As of a machine that has slept: another may have held it, and the script goes on as if not.
#[tokio::test]
async fn a_hold_that_is_ended_after_its_lease_says_so() {
    let store = Store::redis();
    let mut hold = store.command("hold k");
    hold.env("LEASEHOLD_LOG", "leasehold::observe=trace");
    let holder = Process::spawn(hold);
    // The renewal right after the grant would find the loss otherwise.
    holder.says("renewed").await;
    store.server().command(&["DEL", "leasehold:lock:k"]);
    holder.signal(Signal::TERM);
    let why = "lost k: the lease had ended before it was released";
    holder.ends_saying(79, why).await;
}

/// A hold that renews just then is not to tell its script that the lock is lost.
#[tokio::test]
async fn a_lease_is_not_lost_while_another_process_releases_it() {
    let store = Store::redis();
    let mut hold = store.command("hold --ttl 3s --save f k");
    hold.env("LEASEHOLD_LOG", "leasehold::observe=warn");
    let holder = Process::spawn(hold);
    holder.prints("").await;
    // As `release` does it, but for the time that it takes.
    let file = fs::File::open(store.path("f")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    fs::copy(store.path("f"), store.path("copy")).unwrap();
    store.run("release copy").await.has_code(Some(0));
    holder.says("warning: lost: ").await;
    assert!(is_free(&store.show("k").await));
    fs::remove_file(store.path("f")).unwrap();
    drop(file);
    holder.ends(0).await.has_not_said("lost k");
}

async fn a_lock_is_released_when_its_saved_lease_is_removed(store: &Store) {
    let (holder, _) = store.holder("--save k.lease k").await;
    fs::remove_file(store.path("k.lease")).unwrap();
    holder.finish().await.has_been_quiet(Some(0));
    assert!(is_free(&store.show("k").await));
}

async fn a_key_is_waited_for_and_not_taken(store: &Store) {
    store.run("wait k").await.has_been_quiet(Some(0));
    let (one, _) = store.holder("-s k").await;
    let (two, _) = store.holder("-s k").await;
    ends_saying(store, "wait -w 50ms k", 75, ": k is held by ").await;
    let waiting = store.spawn("wait k");
    let said = waiting.says("waiting until k is free").await;
    assert!(said.contains(": held by "), "{said}");
    one.ends_by(Signal::TERM).await;
    let shown = store.show("k").await;
    assert_eq!(shown["waiters"], json!([]), "it claims nothing");
    two.signal(Signal::TERM);
    waiting.ends_saying(0, "k is free, after ").await;
    // One that has died is not waited for longer than its lease.
    let (dead, _) = store.holder("--ttl 1s k").await;
    dead.signal(Signal::KILL);
    assert_eq!(store.run("wait k").await.code(), Some(0));
}

async fn show_tells_held_from_free_by_its_status(store: &Store) {
    let status = async |arguments: &str| {
        let shown = store.run(format!("show k {arguments}")).await;
        (shown.code(), shown.stdout.is_empty())
    };
    assert_eq!(status("--exit-code").await, (Some(0), false));
    let (_holder, _) = store.holder("k").await;
    assert_eq!(status("--exit-code").await, (Some(1), false));
    assert_eq!(status("--exit-code -q").await, (Some(1), true));
    assert_eq!(status("").await, (Some(0), false));
}

async fn ls_lists_what_is_held_or_waited_for(store: &Store) {
    let (_holder, _) = store.holder("a").await;
    let (_other, _) = store.holder("b").await;
    let _waiter = store.waiter("b", "run b -- true").await;
    let keys = async |arguments: &str| {
        let listed = store.run(format!("ls --json {arguments}")).await;
        let locks = json_lines(&listed.stdout).into_iter();
        locks.map(|lock| lock["key"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys("--held").await, ["a", "b"]);
    assert_eq!(keys("--waiting").await, ["b"]);
    assert_eq!(keys("--held --waiting").await, ["b"]);
}

#[tokio::test]
async fn a_lease_can_be_left_to_later_jobs_where_no_process_keeps_it() {
    let store = Store::redis();
    let left = ends(&store, "hold --ttl 1m --save k.lease --detach k", 0).await;
    let token = left.stdout.trim().parse::<u64>().unwrap();
    assert_eq!(store.show("k").await["holders"][0]["token"], token);
    store.run("run -n k -- true").await.has_code(Some(75));
    let renewed = store.run("renew k.lease").await;
    renewed.has_said("renewed k for 1 min");
    store.run("release k.lease").await.has_code(Some(0));
    assert!(is_free(&store.show("k").await));

    // A lease that cannot be saved would be nobody's.
    ends(&store, "hold --save k.lease/ --detach k", 74).await;
    assert!(is_free(&store.show("k").await));

    let local = Store::local();
    ends(&local, "hold --save f --detach k", 64).await;
    assert!(is_free(&local.show("k").await));
}

#[tokio::test]
async fn a_saved_lease_that_was_lost_is_said() {
    let store = Store::redis();
    for succeeds in ["hold --save k.lease --detach k", "break --yes k"] {
        store.run(succeeds).await.has_code(Some(0));
    }
    let why = "it was released or broken, or it has expired";
    ends_saying(&store, "renew -q k.lease", 79, why).await;
    ends_saying(&store, "release -q k.lease", 79, "k was not held").await;
}

#[tokio::test]
async fn a_descriptor_that_cannot_be_waited_for_is_refused() {
    let store = Store::memory();
    let _gate = Gate::new(&store, "both");
    let other_end = "has the other end of the pipe open";
    for (arguments, why) in [
        ("hold --fd 3 k 3<>both", other_end),
        ("hold --fd 77 k", "it is not open"),
        ("hold --fd 0 k </dev/null", "it does not stay open"),
        ("hold --fd x k", "name it by its number"),
    ] {
        let lines = format!("\"$L\" {arguments}");
        script(&store, &lines).ends_saying(64, why).await;
    }
}

#[tokio::test]
async fn a_line_of_a_shell_is_run() {
    let store = Store::memory();
    let line = "echo \"$LEASEHOLD_KEY\"; exit 4";
    ends_printing(&store, ("run k -c", line), 4, "k\n").await;
    for wrong in ["-c true -- true", "-c ''"] {
        store.run(format!("run k {wrong}")).await.has_code(Some(64));
    }
    let hint = "hint: to run a line of a shell, use -c";
    ends_saying(&store, &("run k --", "echo hello"), 127, hint).await;
}
