//! Units of systemd: checked, and started and stopped as systemd would.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use leasehold_testkit::process::{Finished, Process, Signal};

use super::unit::Unit;
use super::{Fleet, Machine, blocks, started};

fn units() -> Vec<Unit> {
    let blocks = blocks("ini").into_iter();
    blocks.map(|block| Unit::parse(&block.text)).collect()
}

/// The services that run for ever, or those of timers.
fn services(of_timers: bool) -> Vec<Unit> {
    let mut units = units();
    units.retain(|unit| unit.is_service() && unit.is_oneshot() == of_timers);
    assert!(!units.is_empty());
    units
}

/// The name of the program that a service runs under its lock.
fn program(unit: &Unit) -> String {
    let exec = unit.exec();
    let last = exec.last().expect("a command");
    let program = last.strip_prefix(super::PROGRAMS);
    let program = program.expect("a program of ours");
    program.trim_matches('/').to_owned()
}

/// Starts it as systemd does: without a shell, with few variables.
fn start(unit: &Unit, machine: &Machine<'_>) -> Process {
    let exec: Vec<_> = unit.exec().iter().map(|word| machine.real(word)).collect();
    Process::spawn(machine.command(&exec, &unit.variables(machine)))
}

/// Whether systemd takes this end for a success.
fn is_success(ended: &Finished) -> bool {
    ended.code() == Some(0) || ended.signal() == Some(Signal::TERM)
}

/// `1m 30s` without the minutes: what the recipes use.
fn seconds(text: &str) -> u64 {
    let number = text.strip_suffix('s');
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("seconds: {text:?}"))
}

#[test]
fn the_units_are_what_systemd_takes() {
    let units = units();
    assert!(units.iter().any(|unit| unit.is_oneshot()) && units.len() > 2);
    let fleet = Fleet::of("");
    let machine = fleet.machine();
    let files = units.iter().map(|unit| {
        if unit.is_service() {
            machine.install(&program(unit), "#!/bin/sh\n");
        }
        let file = machine.place.path("work").join(&unit.name);
        fs::write(&file, machine.real(&unit.text)).unwrap();
        file
    });
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    verify.args(files.collect::<Vec<_>>());
    match verify.output() {
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stderr);
            let ours = |line: &&str| units.iter().any(|unit| line.contains(&unit.name));
            let complaints: Vec<_> = text.lines().filter(ours).collect();
            assert!(said.status.success() && complaints.is_empty(), "{text}");
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("left out: systemd-analyze is not there; our own reader has read the units");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn times_to_stop_fit_each_other() {
    for unit in units().iter().filter(|unit| unit.is_service()) {
        assert_eq!(unit.get("KillMode"), "mixed", "{}", unit.name);
        let grace = unit.option("--grace").map_or(5, |grace| seconds(&grace));
        assert!(seconds(unit.get("TimeoutStopSec")) > grace, "{}", unit.name);
        if unit.option("--recover-as").is_some() {
            let ttl = unit.option("--ttl").map_or(30, |ttl| seconds(&ttl));
            assert!(seconds(unit.get("RestartSec")) < ttl, "{}", unit.name);
            assert_eq!(unit.get("Restart"), "always");
        }
    }
}

#[tokio::test]
async fn a_service_runs_on_one_machine_and_the_next_one_takes_over() {
    for unit in &services(false) {
        let (fleet, name) = (Fleet::of(&unit.text), program(unit));
        let machines = fleet.two_with_job(&name);
        let first = start(unit, &machines[0]);
        let token = started(&first, &name).await;
        let second = start(unit, &machines[1]);
        second.says("(position 1)").await;

        // `systemctl stop`: the main process alone.
        first.signal(Signal::TERM);
        assert!(started(&second, &name).await > token);
        let ended = first.finish().await;
        assert!(is_success(&ended), "{ended:?}");

        // One that waits is stopped at once.
        let waits = start(unit, &machines[0]);
        waits.says("(position 1)").await;
        let ended = waits.ends_by(Signal::TERM).await;
        assert!(is_success(&ended), "{ended:?}");
        machines[1].release(&name).await;
        second.finish().await.has_code(Some(0));
    }
}

#[tokio::test]
async fn a_service_that_was_killed_goes_on_before_those_who_wait() {
    for unit in &services(false) {
        let (fleet, name) = (Fleet::of(&unit.text), program(unit));
        let machines = fleet.two_with_job(&name);
        let first = start(unit, &machines[0]);
        let token = started(&first, &name).await;
        let second = start(unit, &machines[1]);
        second.says("(position 1)").await;

        super::crash(first).await;
        let again = start(unit, &machines[0]);
        assert!(started(&again, &name).await > token);
        assert_eq!(second.stdout().so_far(), [""; 0]);
    }
}

#[tokio::test]
async fn a_timer_s_job_runs_on_one_machine_and_is_skipped_on_the_others() {
    for unit in &services(true) {
        let (fleet, name) = (Fleet::of(&unit.text), program(unit));
        let machines = fleet.two_with_job(&name);
        let runs = start(unit, &machines[0]);
        started(&runs, &name).await;
        let skipped = start(unit, &machines[1]).ends_printing(0, "").await;
        skipped.has_said(" running on ");
        machines[0].release(&name).await;
        runs.finish().await.has_code(Some(0));
        let skipped = start(unit, &machines[1]).ends_printing(0, "").await;
        skipped.has_said(" ran on ");
        let timer = unit.name.replace(".service", ".timer");
        assert!(units().iter().any(|unit| unit.name == timer), "{timer}");
    }
}
