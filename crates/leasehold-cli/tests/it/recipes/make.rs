//! The Makefile of the recipes, with the real `make`. `pages.rs` makes all its targets.

use leasehold_testkit::process::{Finished, Process};

use super::{Fleet, Machine, program};
use crate::pages::Servers;

fn makefile() -> String {
    program("make.md", "Makefile")
}

/// A directory with the Makefile and what its rules start.
fn machine(fleet: &Fleet) -> Machine<'_> {
    let machine = fleet.machine();
    for name in ["deploy.sh", "migrate", "seed", "generate"] {
        machine.install(name, &format!("#!/bin/sh\necho {name} $1\n"));
    }
    machine.install("Makefile", &makefile());
    machine
}

async fn make(machine: &Machine<'_>, arguments: &str) -> Finished {
    let words = ["make"].into_iter().chain(arguments.split(' '));
    let words: Vec<_> = words.map(str::to_owned).collect();
    let home = machine.place.path("home").display().to_string();
    Process::run(machine.command(&words, &[("HOME".to_owned(), home)])).await
}

#[tokio::test]
async fn a_busy_target_fails_with_75() {
    let fleet = Fleet(Servers::named_in(&makefile()));
    let machine = machine(&fleet);
    let held = Process::spawn(machine.leasehold("hold migrate/production"));
    held.prints("").await;
    let busy = make(&machine, "migrate").await;
    busy.has_ended_saying(Some(2), "Error 75");
    assert!(!busy.stdout.contains("migrate\n"), "{busy:?}");
}

#[tokio::test]
async fn all_commands_of_a_rule_are_under_its_lock_and_have_the_token() {
    let fleet = Fleet(Servers::named_in(&makefile()));
    let made = make(&machine(&fleet), "-s migrate").await;
    made.has_code(Some(0));
    let mut lines = made.stdout.lines();
    assert_eq!(lines.next(), Some("migrate"), "{made:?}");
    let token = lines.next().and_then(|line| line.strip_prefix("seed "));
    let is_number = token.is_some_and(|token| token.parse::<u64>().is_ok());
    assert!(is_number, "{made:?}");
}

#[tokio::test]
async fn the_jobs_of_make_go_on_under_the_lock() {
    let fleet = Fleet(Servers::named_in(&makefile()));
    let made = make(&machine(&fleet), "-j4 generate").await;
    made.has_code(Some(0));
    made.has_shown("generate\n");
    made.has_not_said("jobserver");
}
