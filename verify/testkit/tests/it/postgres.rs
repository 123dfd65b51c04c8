//! The PostgreSQL servers of the testkit: what is left of them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use leasehold_testkit::expect::says;
use leasehold_testkit::postgres::Postgres;
use leasehold_testkit::process::{PATIENCE, Process, Signal};

use crate::server::{end_of, only};

/// The process ids of a server.
fn processes(server: &Postgres) -> Vec<String> {
    // But for those that come and go.
    let others = "select pid from pg_stat_activity where pid <> pg_backend_pid() \
        and backend_type <> 'autovacuum worker'";
    let pids = format!("{}\n{}", server.pid(), server.sql(others));
    let pids: Vec<_> = pids.lines().map(str::to_owned).collect();
    assert!(pids.len() > 3, "it has children: {pids:?}");
    pids
}

/// What a server has outside of its processes: a directory, and a segment of shared memory.
fn traces(server: &Postgres) -> (String, String) {
    let directory = server.sql("show data_directory");
    let file = fs::read_to_string(format!("{directory}/postmaster.pid")).unwrap();
    let memory = file.lines().nth(6).unwrap().trim();
    let (_, segment) = memory.rsplit_once(' ').unwrap();
    assert!(has_segment(segment));
    (directory, segment.to_owned())
}

fn are_gone((directory, segment): &(String, String)) -> bool {
    let scratch = Path::new(directory).parent().unwrap();
    !scratch.exists() && !has_segment(segment)
}

fn has_segment(id: &str) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let mut ids = segments.lines().map(|line| line.split_whitespace().nth(1));
    ids.any(|it| it == Some(id))
}

#[test]
fn it_answers_and_nothing_of_it_is_left_behind() {
    let server = Postgres::start_with("max_connections = 33");
    assert_eq!(server.sql("select 1"), "1");
    assert_eq!(server.sql("show max_connections"), "33");
    assert_eq!(server.sql("show synchronous_commit"), "on");
    let pids = processes(&server).into_iter();
    let ends: Vec<_> = pids.map(|pid| end_of(pid.parse().unwrap())).collect();
    let traces = traces(&server);
    drop(server);
    assert!(ends.iter().all(|end| end.comes_within(Duration::ZERO)));
    assert!(are_gone(&traces), "{traces:?}");
}

#[test]
fn sql_that_fails_fails_the_test_with_the_reason() {
    let failure = thread::spawn(|| Postgres::shared().sql("select 1/0")).join();
    let failure = failure.unwrap_err().downcast::<String>().unwrap();
    says(failure, ["select 1/0", "division by zero"]);
}

/// The body of the process that the next test runs and kills; by itself it does nothing.
#[test]
fn a_process_with_a_paused_server() {
    if std::env::var_os("WITH_POSTGRES").is_none() {
        return;
    }
    let server = Postgres::shared();
    let pids = processes(server).join(" ");
    let (directory, segment) = traces(server);
    server.pause();
    println!("\nserver {directory} {segment} {pids}");
    thread::park_timeout(PATIENCE);
}

#[tokio::test]
async fn a_killed_test_leaves_nothing_of_a_paused_server() {
    let body = "postgres::a_process_with_a_paused_server";
    let test = Process::spawn(only(body, "WITH_POSTGRES", "1"));
    let line = test.prints("server ").await;
    let mut words = line.split(' ').skip(1).map(str::to_owned);
    let traces = (words.next().unwrap(), words.next().unwrap());
    let ends: Vec<_> = words.map(|pid| end_of(pid.parse().unwrap())).collect();
    test.signal(Signal::KILL);
    // What cleans up holds its standard error until the end.
    test.finish().await;
    assert!(ends.iter().all(|end| end.comes_within(PATIENCE)));
    assert!(are_gone(&traces), "{traces:?}");
}
