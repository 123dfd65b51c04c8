//! The short form of the faults on real servers, which every change has to pass.

use crate::leasehold_proof;

fn is_well(arguments: &str) {
    let output = leasehold_proof(arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
}

#[test]
fn within_what_is_assumed_no_promise_is_broken() {
    is_well("faults --schedules 1 --seed 7 --at-once 4 --assumptions within");
}

#[test]
fn locks_that_are_broken_are_found_out_and_ours_is_not_blamed() {
    // A seed as long as those of the time of day, which the long form takes.
    is_well("power --schedules 80 --until-found --at-once 4 --seed 1700000000");
}
