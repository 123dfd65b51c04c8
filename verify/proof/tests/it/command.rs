//! Evidence that was not gathered must not look like evidence that holds.

use crate::leasehold_proof;

#[test]
fn what_checks_nothing_does_not_pass() {
    for arguments in [
        "faults --schedules 0",
        "faults local --for 0s",
        "faults local --at-once 0",
        "power --schedules 0",
        "simulate --seeds 0",
        "simulate --for 0s",
        "simulate --seeds 1 --jobs 0",
        "model queue/mutexes",
        "model queue/mutex queue/mutexes",
        "model --short queue/mutex --for 1s",
        "mutants nobody",
    ] {
        let output = leasehold_proof(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(!said.is_empty(), "{arguments}");
    }
}
