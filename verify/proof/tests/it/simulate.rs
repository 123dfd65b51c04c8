//! The simulation by its command: fixed seeds hold, a seed repeats to the byte, and one
//! that fails says how to run it again.

use std::fs;
use std::process::{Command, Output};

use leasehold_testkit::process::{End, PATIENCE, Process, Signal};
use rustix::process::Pid;

use crate::leasehold_proof;

fn simulate(arguments: &str) -> Output {
    leasehold_proof(&format!("simulate {arguments}"))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn fixed_seeds_hold() {
    let output = simulate("--seeds 12");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let all = text.contains("12 seeds in ") && text.contains(" 0 of them failed");
    assert!(all, "{text}");
}

/// A client that had lost its pushes with a connection was passed in every queue.
#[test]
fn a_seed_that_has_failed_holds() {
    let output = simulate("--seed 73 --store redis");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_seed_ends_with_the_program_that_runs_many() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-proof"));
    command.args("simulate --seeds 1 --clients 200 --store redis --jobs 1".split(' '));
    let many = Process::spawn(command);
    let tasks = format!("/proc/{}/task", many.pid());
    let child = || {
        let tasks = fs::read_dir(&tasks).unwrap().flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")));
        children.flatten().find_map(|all| all.trim().parse().ok())
    };
    let child = loop {
        assert_eq!(many.status(), None, "{many}");
        if let Some(child) = child() {
            break Pid::from_raw(child).unwrap();
        }
    };
    let end = End::of(child);
    many.signal(Signal::KILL);
    assert!(end.comes_within(PATIENCE / 6), "it goes on alone");
}

#[test]
fn the_last_seed_is_one() {
    let output = simulate("--seed 18446744073709551615 --seeds 1 --store memory");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn many_clients_hold() {
    let output = simulate("--seed 7 --store redis --clients 30");
    assert!(output.status.success(), "{}", text(&output));
}

/// In two processes: in one, tokio would number the seeds of the second run on.
#[test]
fn a_seed_repeats_to_the_byte_in_another_process() {
    for store in ["memory", "redis", "redlock"] {
        let run = |seed| simulate(&format!("--seed {seed} --store {store} --trace")).stdout;
        let first = run(11);
        assert!(first.len() > 1_000, "the trace of {store} is there");
        assert_eq!(first, run(11), "{store}");
        assert_ne!(first, run(12), "{store}");
    }
}

/// A server that loses its data grants twice: `SAFETY.md` says so. Held to the promise
/// that it does not make, it has to fail.
#[test]
fn what_is_not_promised_is_found_and_can_be_run_again() {
    let output = simulate("--seeds 40 --seed 1 --store redis --overclaim --first");
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let mut lines = told.lines();
    let again = lines.find_map(|line| line.strip_prefix("again: ")).unwrap();
    let before = told.lines().take_while(|it| !it.starts_with("again: "));
    let found = before.last().unwrap();
    let (_, arguments) = again.split_once(" -- simulate ").unwrap();
    let repeated = simulate(arguments);
    assert_eq!(repeated.status.code(), Some(1));
    let repeated = text(&repeated);
    assert!(repeated.contains(found), "{found} is not in {repeated}");
}

/// What is broken, by what that must be found, and from which seed on to look.
const FLAWS: [(&str, &str, &str); 13] = [
    ("leases-end-early", "exclusion", "17"),
    ("anyone-fits", "exclusion", "1"),
    ("newcomers-pass", "order", "1"),
    ("tokens-stand-still", "tokens", "1"),
    ("push-before-grant", "exclusion", "1"),
    ("release-does-nothing", "nothing is left behind", "2"),
    ("no-quarantine", "exclusion", "1"),
    ("open-gate", "exclusion", "1"),
    ("any-token-wins", "tokens", "6"),
    ("votes-twice", "exclusion", "1"),
    ("stale-writes-pass", "fencing", "63"),
    ("wild-clocks", "exclusion", "32"),
    ("clock-sleeps", "exclusion", "38"),
];

/// A simulation that finds nothing when something is broken proves nothing.
#[test]
fn every_flaw_is_found() {
    for (flaw, invariant, seed) in FLAWS {
        let output = simulate(&format!("--seed {seed} --seeds 100 --first --flaw {flaw}"));
        let told = text(&output);
        let code = output.status.code();
        assert_eq!(code, Some(1), "{flaw} was not found: {told}");
        let by_it = told.contains(&format!(": {invariant}: "));
        assert!(by_it, "{flaw} was not found by {invariant}: {told}");
    }
}
