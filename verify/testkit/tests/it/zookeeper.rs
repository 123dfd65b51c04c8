//! The ZooKeeper servers of the testkit, alone and in ensembles.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_testkit::expect::says;
use leasehold_testkit::process::{PATIENCE, Process, Signal};
use leasehold_testkit::zookeeper::{Ensemble, ZooKeeper};

use crate::server::{end_of, only};

/// The directory that is there for as long as the server.
fn scratch(server: &ZooKeeper) -> PathBuf {
    let data = fs::read_link(format!("/proc/{}/cwd", server.pid())).unwrap();
    data.parent().unwrap().to_owned()
}

/// Opens a session, which is a write, and returns when it is done.
fn open_session(server: &ZooKeeper) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The protocol, the last transaction seen, the time-out, and a session that is new.
    let mut request = [0; 48];
    request[3] = 44;
    request[16..20].copy_from_slice(&60_000_i32.to_be_bytes());
    request[31] = 16;
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
}

/// The number of the last transaction.
fn zxid(server: &ZooKeeper) -> u64 {
    let answer = server.ask("srvr").unwrap();
    let zxid = answer.lines().find_map(|it| it.strip_prefix("Zxid: 0x"));
    u64::from_str_radix(zxid.unwrap(), 16).unwrap()
}

#[test]
fn it_serves_and_nothing_of_it_is_left_behind() {
    let server = ZooKeeper::start_with("maxSessionTimeout=1000");
    assert!(server.is_serving());
    says(server.ask("conf").unwrap(), ["maxSessionTimeout=1000\n"]);
    let (end, scratch) = (end_of(server.pid()), scratch(&server));
    assert!(scratch.is_dir());
    drop(server);
    assert!(end.comes_within(Duration::ZERO));
    assert!(!scratch.exists());
}

#[test]
fn a_kill_leaves_what_was_written_and_the_port() {
    let server = ZooKeeper::start();
    let url = server.url();
    open_session(&server);
    let written = zxid(&server);
    assert!(written > 0);
    let end = end_of(server.pid());
    server.kill();
    assert!(end.comes_within(Duration::ZERO));
    let refused = TcpStream::connect(server.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    server.start_again();
    assert_eq!(server.url(), url);
    assert!(zxid(&server) >= written);
}

#[test]
fn a_paused_one_keeps_silent_until_it_goes_on() {
    let server = ZooKeeper::start();
    server.pause();
    server.pause(); // Once more changes nothing.
    assert!(!server.is_serving());
    server.resume();
    open_session(&server);
    let end = end_of(server.pid());
    server.pause();
    drop(server);
    assert!(end.comes_within(Duration::ZERO));
}

#[test]
fn one_that_does_not_start_says_why() {
    let failure = thread::spawn(|| ZooKeeper::start_with("tickTime=often")).join();
    let failure = failure.unwrap_err().downcast::<String>().unwrap();
    // And the log.
    says(failure, ["it has ended", "often"]);
}

#[tokio::test]
async fn another_leads_when_the_leader_is_killed() {
    let ensemble = Ensemble::start();
    let old = ensemble.leader();
    open_session(ensemble.server(old));
    let written = zxid(ensemble.server(old));
    ensemble.server(old).kill();
    let new = ensemble.until_led().await;
    assert_ne!(new, old);
    assert_eq!(new, ensemble.leader());
    assert!(zxid(ensemble.server(new)) >= written);
    ensemble.start_again(old);
    assert_eq!(ensemble.until_led().await, new);

    ensemble.server(new).pause();
    assert_ne!(ensemble.until_led().await, new);
    ensemble.server(new).resume();
    ensemble.until_led().await;
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
