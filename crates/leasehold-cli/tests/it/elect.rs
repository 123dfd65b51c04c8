//! Candidates as processes: who leads, what becomes of a leader's command, and who watches.

use std::fs;

use crate::common::*;

on_each_store!(
    a_leader_that_stands_still_is_followed_and_stops_its_command,
    a_command_that_ends_makes_room_for_another,
    once_ends_with_the_commands_status,
    signals_go_on_to_the_command_and_end_the_candidate,
    those_who_observe_are_told_each_change,
);

/// Writes its term, where the file takes no lower one than it has seen.
const WORK: &str = "echo up; while :; do \
    flock guard sh -c '[ \"$LEASEHOLD_TERM\" -ge \"$(cat seen)\" ] || exit 1
        echo $LEASEHOLD_TERM > seen; echo $LEASEHOLD_TERM $NOTE >> log' || echo refused; \
    sleep 0.02; done";

fn candidate(store: &Store, note: &str) -> Process {
    let mut command = store.command((&format!("elect --ttl 3s --note {note} k -- sh -c"), WORK));
    command.env("NOTE", note);
    Process::spawn(command)
}

/// The term with which it leads, the `nth` time.
async fn leads(process: &Process) -> u64 {
    let said = process.says("leading k, term ").await;
    said.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn a_leader_that_stands_still_is_followed_and_stops_its_command(store: &Store) {
    fs::write(store.path("seen"), "0\n").unwrap();
    let observer = printing(store, "elect --observe --json k", "\"term\":null").await;
    let a = candidate(store, "a");
    let first = leads(&a).await;
    let b = candidate(store, "b");
    b.says("waiting for k (position 1)").await;
    a.signal(Signal::STOP);
    let second = leads(&b).await;
    assert!(second > first);
    b.prints("up").await;
    // Its command runs on, stopped by nobody: the term in the file keeps it from doing harm.
    a.prints("refused").await;
    a.signal(Signal::CONT);
    let said = a.says("leasehold: lost k: ").await;
    assert!(said.ends_with("; killing the command"), "{said}");
    a.says("candidate for k again in 1.0 s").await;
    a.says("waiting for k (position 1)").await;
    b.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
    let third = leads(&a).await;
    assert!(third > second);
    observer.prints(&format!("\"term\":{third}")).await;
    a.ends_by(Signal::TERM).await.has_signal(Signal::TERM);

    let seen = observer.ends_by(Signal::TERM).await;
    seen.has_code(Some(0));
    let seen = json_lines(&seen.stdout).into_iter();
    let leaders = seen.filter_map(|seen| Some((seen["term"].as_u64()?, seen["note"].clone())));
    let expected = [(first, "a"), (second, "b"), (third, "a")];
    let expected = expected.map(|(term, note)| (term, json!(note)));
    assert_eq!(leaders.collect::<Vec<_>>(), expected);
    let log = fs::read_to_string(store.path("log")).unwrap();
    let term = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
    let mut terms: Vec<u64> = log.lines().map(term).collect();
    assert!(terms.is_sorted(), "{log}");
    terms.retain(|term| ![first, second, third].contains(term));
    assert!(terms.is_empty(), "{log}");
}

async fn a_command_that_ends_makes_room_for_another(store: &Store) {
    let script = "until test -e go; do sleep 0.02; done; exit 3";
    let one = store.spawn(("elect k -- sh -c", script));
    let first = leads(&one).await;
    let two = store.spawn(("elect k -- sh -c", "echo up; exec sleep 60"));
    two.says("waiting for k (position 1)").await;
    fs::write(store.path("go"), "").unwrap();
    one.says("leasehold: the command ended with status 3; candidate for k again in 1.0 s")
        .await;
    two.prints("up").await;
    assert!(leads(&two).await > first);
    one.says("waiting for k (position 1)").await;
    one.ends_by(Signal::INT).await.has_signal(Signal::INT);
}

async fn once_ends_with_the_commands_status(store: &Store) {
    let script = "echo $LEASEHOLD_KEY $LEASEHOLD_TERM $LEASEHOLD_TOKEN; exit 3";
    let ended = ends(store, &("elect --once k -- sh -c", script), 3).await;
    let words: Vec<_> = ended.stdout.split_whitespace().collect();
    assert_eq!((words[0], words[1]), ("k", words[2]));
    ends(store, "elect k -- no-such-command", 127).await;
    assert_eq!(store.show("k").await["holders"], json!([]));
}

async fn signals_go_on_to_the_command_and_end_the_candidate(store: &Store) {
    let script = "trap 'echo told; exit 5' TERM; trap 'echo again' HUP; echo up; \
        while :; do sleep 0.02; done";
    let leader = store.up(("elect k -- sh -c", script)).await;
    let waits = saying(store, "elect k -- true", "waiting for k (position 1)").await;
    waits.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
    leader.signal(Signal::HUP);
    leader.prints("again").await;
    let ended = leader.ends_by(Signal::TERM).await;
    ended.has_printed(Some(5), "up\nagain\ntold\n");
    assert_eq!(store.show("k").await["holders"], json!([]));
}

async fn those_who_observe_are_told_each_change(store: &Store) {
    let observer = printing(store, "elect --observe k", "nobody leads").await;
    let elect = "elect --once --label blue --note '10.0.0.7:80\nx' k -- sh -c";
    let leader = store.spawn((elect, "echo up; until test -e go; do sleep 0.02; done"));
    let term = leads(&leader).await;
    let said = observer.prints("term ").await;
    let who = format!("(pid {}, label blue) since 2", leader.pid());
    let begins = format!(r"term {term}, 10.0.0.7:80\nx, ");
    assert!(said.starts_with(&begins), "{said}");
    assert!(said.contains(&who), "{said}");
    let holder = &store.show("k").await["holders"][0];
    assert_eq!(holder["note"], "10.0.0.7:80\nx");
    let late = store.spawn("elect --observe --json k");
    let now: Value = serde_json::from_str(&late.prints("").await).unwrap();
    assert_eq!(now["term"], term);
    assert_eq!(now["owner"]["label"], "blue");
    fs::write(store.path("go"), "").unwrap();
    late.prints("null").await;
    for observer in [observer, late] {
        observer.ends_by(Signal::INT).await.has_been_quiet(Some(0));
    }
}

/// The command of each term has it so, and not only that of the first.
#[tokio::test]
async fn a_signal_that_was_ignored_stays_ignored_in_each_term() {
    let store = Store::local();
    let elect = store.command(("elect k -- sh -c", "kill -TSTP $$; echo on"));
    let elect = Process::spawn(in_shell("trap '' TSTP; exec \"$@\"", &elect));
    for _ in 0..2 {
        elect.prints("on").await;
    }
    elect.ends_by(Signal::TERM).await;
}
