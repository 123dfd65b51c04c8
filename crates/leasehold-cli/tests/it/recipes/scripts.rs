//! Scripts of the recipes, where several run at once. `pages.rs` runs each alone.

use std::fs;

use leasehold_testkit::process::{Finished, Process, Signal};

use super::{Fleet, Machine, program, started};
use crate::pages::pages;

const STORE: &str = "redis://host/";

/// A line of a shell, on the store of the fleet.
fn shell(machine: &Machine<'_>, line: &str) -> Process {
    let words = ["sh", "-c", line].map(str::to_owned);
    let store = ("LEASEHOLD_STORE".to_owned(), STORE.to_owned());
    Process::spawn(machine.command(&words, &[store]))
}

async fn run(machine: &Machine<'_>, line: &str) -> Finished {
    shell(machine, line).finish().await
}

/// A machine with these programs of a page; the others say their names.
fn machine<'a>(fleet: &'a Fleet, page: &str, given: &[&str], others: &[&str]) -> Machine<'a> {
    let machine = fleet.machine();
    for name in given {
        machine.install(name, &program(page, name));
    }
    for name in others {
        machine.install(name, &format!("#!/bin/sh\necho {name} $*\n"));
    }
    machine
}

#[tokio::test]
async fn a_script_has_its_lock_from_its_first_command_to_its_last() {
    let fleet = Fleet::of(STORE);
    let made = || machine(&fleet, "shell.md", &["backup.sh"], &["dump", "copy"]);
    let machines = [made(), made()];
    machines
        .iter()
        .for_each(|machine| machine.install_job("prune"));
    let first = shell(&machines[0], "./backup.sh --all 'two words'");
    let token = started(&first, "prune").await;
    // Not by its path, nor by the shell of its first line.
    let second = shell(&machines[1], "sh backup.sh");
    second.says("(position 1)").await;
    machines[0].release("prune").await;
    let ended = first.finish().await;
    let lines = format!("dump --all two words\ncopy\nprune started {token}\nprune done\n");
    ended.has_printed(Some(0), &lines);
    assert!(started(&second, "prune").await > token);
}

#[tokio::test]
async fn a_script_takes_its_lock_under_another_one_too() {
    let fleet = Fleet::of(STORE);
    let machine = machine(&fleet, "shell.md", &["backup.sh"], &["copy", "prune"]);
    machine.install_job("dump");
    let runs = shell(&machine, "leasehold run other -- ./backup.sh");
    started(&runs, "dump").await;
    let busy = run(&machine, "leasehold run -n backup -- true").await;
    busy.has_code(Some(75));
    machine.release("dump").await;
    runs.finish().await.has_code(Some(0));
}

#[tokio::test]
async fn a_stale_deploy_switches_nothing() {
    let fleet = Fleet::of("");
    let machine = machine(&fleet, "deploy.md", &["switch"], &[]);
    for (line, status) in [
        ("./switch 17 v2", 0),
        ("./switch 16 v1", 1),
        ("./switch 17 v3", 0),
        ("./switch 9 v1", 1),
    ] {
        let ended = run(&machine, line).await;
        ended.has_code(Some(status));
        assert_eq!(ended.stderr.contains("is stale"), status == 1, "{ended:?}");
    }
    let current = fs::read_link(machine.place.path("work/current")).unwrap();
    assert_eq!(current.to_str(), Some("releases/v3"));
}

#[tokio::test]
async fn a_deploy_needs_a_token_and_hands_it_on() {
    let fleet = Fleet::of(STORE);
    let machine = machine(&fleet, "deploy.md", &["deploy.sh"], &["upload", "switch"]);
    let without = run(&machine, "CI_COMMIT=v2 ./deploy.sh").await;
    without.has_ended_saying(Some(2), "start this with leasehold run");
    let line = "CI_COMMIT=v2 leasehold run deploy/production -- ./deploy.sh";
    let with = run(&machine, line).await;
    with.has_code(Some(0));
    let last = with.stdout.lines().last();
    let switched = last.and_then(|line| line.strip_prefix("switch "));
    let (token, commit) = switched.unwrap().split_once(' ').unwrap();
    assert!(token.parse::<u64>().unwrap() > 0, "{with:?}");
    assert_eq!(commit, "v2", "{with:?}");
}

#[tokio::test]
async fn the_jobs_of_a_pipeline_have_one_lock() {
    let fleet = Fleet::of(STORE);
    let machine = machine(&fleet, "deploy.md", &[], &["upload"]);
    let mut pages = pages().into_iter();
    let page = pages.find(|page| page.name == "docs/recipes/deploy.md");
    let blocks = page.unwrap().blocks();
    let jobs = blocks.iter().find(|it| it.text.contains("--detach"));
    let jobs: Vec<_> = jobs.unwrap().text.lines().skip(1).collect();
    let [hold, renew, work, release] = &*jobs else {
        panic!("{jobs:?}")
    };
    let try_it = "leasehold run -n deploy/production -- true";
    for broken in [false, true] {
        for job in [hold, renew, work] {
            run(&machine, job).await.has_code(Some(0));
            run(&machine, try_it).await.has_code(Some(75));
        }
        let status = if broken { 79 } else { 0 };
        if broken {
            let line = "leasehold break --yes deploy/production";
            run(&machine, line).await.has_code(Some(0));
            run(&machine, renew).await.has_code(Some(status));
        }
        run(&machine, release).await.has_code(Some(status));
        run(&machine, try_it).await.has_code(Some(0));
    }
}

#[tokio::test]
async fn a_script_holds_its_lock_from_a_line_on_until_it_is_killed() {
    let fleet = Fleet::of(STORE);
    let given = ["report.sh"];
    let machine = machine(&fleet, "shell.md", &given, &["collect", "write"]);
    machine.install_job("publish");
    let script = shell(&machine, "exec ./report.sh");
    assert!(started(&script, "publish").await > 0);
    let try_it = "leasehold run -n report -- true";
    assert_eq!(run(&machine, try_it).await.code(), Some(75));
    script.signal(Signal::KILL);
    // Sooner than its TTL is over.
    let next = run(&machine, "leasehold run -w 15s report -- true").await;
    next.has_code(Some(0));
}

#[tokio::test]
async fn replicas_migrate_one_after_the_other_and_then_serve() {
    let fleet = Fleet::of(STORE);
    let made = || machine(&fleet, "migrations.md", &["entrypoint.sh"], &["server"]);
    let replicas = [made(), made()];
    replicas
        .iter()
        .for_each(|replica| replica.install_job("migrate"));
    let first = shell(&replicas[0], "./entrypoint.sh --port 80");
    let token = started(&first, "migrate").await;
    let second = shell(&replicas[1], "./entrypoint.sh --port 81");
    second.says("(position 1)").await;
    replicas[0].release("migrate").await;
    first.prints("server --port 80").await;
    assert!(started(&second, "migrate").await > token);
    replicas[1].release("migrate").await;
    second.prints("server --port 81").await;
}

#[tokio::test]
async fn a_replica_whose_migration_fails_does_not_serve() {
    let fleet = Fleet::of(STORE);
    let replica = machine(&fleet, "migrations.md", &["entrypoint.sh"], &["server"]);
    replica.install("migrate", "#!/bin/sh\nexit 5\n");
    let ended = run(&replica, "./entrypoint.sh").await;
    ended.has_printed(Some(5), "");
}
