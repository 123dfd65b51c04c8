//! The short form of the faults on real servers, which every change has to pass.

use std::process::{Command, Output, Stdio};

use leasehold_testkit::process::spawn_tied;

fn leasehold_proof(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-proof"));
    command
        .args(arguments.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = spawn_tied(command).expect("the program starts");
    child.wait_with_output().expect("the program ends")
}

fn is_well(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
}

#[test]
fn within_what_is_assumed_no_promise_is_broken() {
    is_well(&leasehold_proof(
        "faults --schedules 1 --seed 7 --at-once 4 --assumptions within",
    ));
}

#[test]
fn locks_that_are_broken_are_found_out_and_ours_is_not_blamed() {
    is_well(&leasehold_proof(
        // A seed as long as those of the time of day, which the long form takes.
        "power --schedules 80 --until-found --at-once 4 --seed 1700000000",
    ));
}
