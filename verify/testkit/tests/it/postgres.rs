//! The PostgreSQL servers of the testkit, and PgBouncer in front of them.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use leasehold_testkit::expect::says;
use leasehold_testkit::postgres::{PgBouncer, Postgres, psql, sql_at};
use leasehold_testkit::process::{End, PATIENCE, Process, Signal};
use tokio::time::timeout;

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

fn ends(server: &Postgres) -> Vec<End> {
    let pids = processes(server).into_iter();
    pids.map(|pid| end_of(pid.parse().unwrap())).collect()
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
    let (ends, traces) = (ends(&server), traces(&server));
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

#[tokio::test]
async fn a_kill_leaves_what_was_committed_and_the_port() {
    let server = Postgres::start();
    let url = server.url();
    server.sql("create table kept as select 7 as n");
    let lost = "begin; insert into kept values (8) returning 'inserted'";
    let mut session = psql(&url, lost);
    session.args(["-c", "select pg_sleep(600)"]);
    let session = Process::spawn(session);
    session.prints("inserted").await;
    let ends = ends(&server);
    server.kill();
    assert!(ends.iter().all(|end| end.comes_within(Duration::ZERO)));
    let ended = session.finish().await;
    ended.has_said("server closed the connection");
    let refused = TcpStream::connect(("127.0.0.1", server.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    server.start_again();
    assert_eq!(server.url(), url);
    assert_eq!(server.sql("select n from kept"), "7");
    server.stop();
    server.start_again();
    assert_eq!(server.sql("select n from kept"), "7");
}

#[tokio::test]
async fn a_paused_one_keeps_silent_until_it_goes_on() {
    let server = Postgres::start();
    let ends = ends(&server);
    server.pause();
    server.pause(); // Once more changes nothing.
    let asked = Process::spawn(psql(&server.url(), "select 'at last'"));
    let silence = timeout(Duration::from_millis(100), asked.wait()).await;
    assert!(silence.is_err());
    server.resume();
    asked.finish().await.has_printed(Some(0), "at last\n");
    server.pause();
    drop(server);
    assert!(ends.iter().all(|end| end.comes_within(Duration::ZERO)));
}

#[test]
fn databases_of_a_shared_server_are_apart() {
    let server = Postgres::shared();
    let [one, other] = [(); 2].map(|()| server.url_of(&server.database()));
    sql_at(&one, "create table t ()");
    sql_at(&other, "create table t ()");
}

#[test]
fn a_replica_follows_until_it_is_promoted() {
    let primary = Postgres::start_with("synchronous_standby_names = '*'");
    let replica = Postgres::replica_of(&primary);
    primary.sql("set synchronous_commit = remote_apply; create table t as select 1 as n");
    assert_eq!(replica.sql("select n from t"), "1");
    assert_eq!(replica.sql("select pg_is_in_recovery()"), "t");
    primary.kill();
    replica.promote();
    replica.sql("set synchronous_commit = local; insert into t values (2)");
}

#[test]
fn pgbouncer_gives_a_connection_to_each_transaction() {
    let server = Postgres::start();
    let pool = PgBouncer::start_with(&server, "default_pool_size = 1\nmax_client_conn = 50");
    assert_eq!(pool.sql("select 1"), "1");
    let backend = pool.sql("select pg_backend_pid()");
    assert_eq!(pool.sql("select pg_backend_pid()"), backend);
    let name = server.database();
    let url = pool.url_of(&name);
    assert_eq!(sql_at(&url, "select current_database()"), name);
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
