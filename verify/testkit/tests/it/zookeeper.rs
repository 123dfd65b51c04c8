//! The ZooKeeper servers of the testkit: what they say, and what is left of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_testkit::expect::says;
use leasehold_testkit::process::{PATIENCE, Process, Signal};
use leasehold_testkit::zookeeper::ZooKeeper;

use crate::server::{end_of, only};

/// The directory that is there for as long as the server.
fn scratch(server: &ZooKeeper) -> PathBuf {
    let data = fs::read_link(format!("/proc/{}/cwd", server.pid())).unwrap();
    data.parent().unwrap().to_owned()
}

#[test]
fn it_serves_and_nothing_of_it_is_left_behind() {
    let server = ZooKeeper::start_with("maxSessionTimeout=1000");
    says(server.ask("conf").unwrap(), ["maxSessionTimeout=1000\n"]);
    let (end, scratch) = (end_of(server.pid()), scratch(&server));
    assert!(scratch.is_dir());
    server.pause();
    server.ask("conf").unwrap_err();
    drop(server);
    assert!(end.comes_within(Duration::ZERO));
    assert!(!scratch.exists());
}

#[test]
fn one_that_does_not_start_says_why() {
    let failure = thread::spawn(|| ZooKeeper::start_with("tickTime=often")).join();
    let failure = failure.unwrap_err().downcast::<String>().unwrap();
    // And the log.
    says(failure, ["it has ended", "often"]);
}

/// The body of the process that the next test runs and kills; by itself it does nothing.
#[test]
fn a_process_with_a_paused_server() {
    if std::env::var_os("WITH_ZOOKEEPER").is_none() {
        return;
    }
    let server = ZooKeeper::shared();
    let scratch = scratch(server);
    server.pause();
    println!("\nserver {} {}", server.pid(), scratch.display());
    thread::park_timeout(PATIENCE);
}

#[tokio::test]
async fn a_killed_test_leaves_nothing_of_a_paused_server() {
    let body = "zookeeper::a_process_with_a_paused_server";
    let test = Process::spawn(only(body, "WITH_ZOOKEEPER", "1"));
    let line = test.prints("server ").await;
    let mut words = line.split(' ').skip(1);
    let end = end_of(words.next().unwrap().parse().unwrap());
    let scratch = Path::new(words.next().unwrap());
    test.signal(Signal::KILL);
    // What cleans up holds its standard error until the end.
    test.finish().await;
    assert!(end.comes_within(PATIENCE));
    assert!(!scratch.exists());
}
