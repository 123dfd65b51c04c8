//! The short form of the faults on real servers, which every change has to pass.

use crate::leasehold_proof;

#[test]
fn within_what_is_assumed_no_promise_is_broken() {
    let output = leasehold_proof("faults --schedules 1 --seed 7 --at-once 4 --assumptions within");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
}
