//! While there is patience left, a store that cannot be used is waited for.

use std::time::Duration;

use crate::common::{spawn_at as spawn, *};
use crate::failover::begin_all;
use leasehold_testkit::deployment::Independent;
use leasehold_testkit::proxy::{Direction, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Nobody listens on port 1.
const NOBODY: &str = "redis://127.0.0.1:1/";

/// How often the outage was told.
fn told(ended: &Finished) -> usize {
    ended.stderr.matches("; trying again").count()
}

#[track_caller]
fn is_told(times: usize, ended: &Finished) {
    assert_eq!(told(ended), times, "{ended}");
}

#[tokio::test]
async fn an_outage_at_the_start_is_waited_through() {
    let server = RedisServer::start();
    server.kill();
    for wait in ["", "-w 5m"] {
        let process = spawn(&server.url(), format!("run {wait} k -- echo ran"));
        let said = process.says("; trying again").await;
        assert!(said.contains("cannot connect to"), "{said}");
        server.start_again();
        let ended = process.ends_printing(0, "ran\n").await;
        is_told(1, &ended);
        ended.has_said("the store is available again after ");
        server.kill();
    }
}

#[tokio::test]
async fn an_outage_while_waiting_is_waited_through_from_the_tail() {
    let server = RedisServer::start();
    let url = server.url();
    let holder = holder_at(&url, "--ttl 5m k").await;
    let arguments = "run --json --ttl 1s -w 10m k -- echo ran";
    let waiter = saying(&url, arguments, "\"event\":\"waiting\"").await;
    server.stop();
    let said = waiter.says("\"store_unavailable\"").await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["key"], "k");
    assert!(!said["reason"].as_str().unwrap().is_empty(), "{said}");
    server.cont();
    waiter.says("\"rejoined\"").await;
    waiter.says("\"store_available\"").await;
    waiter.says("\"event\":\"waiting\"").await;
    holder.signal(Signal::TERM);
    let ended = waiter.ends_printing(0, "ran\n").await;
    // All of the waiting counts, the outage too.
    let acquired = acquired(&ended);
    let waited = acquired["waited_ms"].as_u64().unwrap();
    assert!(waited > 5_000, "{acquired}");
}

/// What answers the first `loading` connections as a server does that reads its data, and leads
/// the others to `server`.
async fn starting(server: &RedisServer, loading: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let server = server.address();
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            connections += 1;
            let loads = connections <= loading;
            tokio::spawn(async move {
                if !loads {
                    let mut there = TcpStream::connect(server).await.unwrap();
                    copy_bidirectional(&mut stream, &mut there).await.ok();
                    return;
                }
                let mut request = [0; 4096];
                while let Ok(1..) = stream.read(&mut request).await {
                    let answer = b"-LOADING Redis is loading the dataset in memory\r\n";
                    // One for each command of a pipeline, and more than enough.
                    if stream.write_all(&answer.repeat(8)).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_starts_is_waited_for() {
    let server = RedisServer::start();
    let url = starting(&server, 1).await;
    let at_once = ends_printing(&url, "run -n k -- echo ran", 69, "").await;
    is_told(0, &at_once);
    at_once.has_said("loading");
    let url = starting(&server, 2).await;
    let ended = ends_printing(&url, "run k -- echo ran", 0, "ran\n").await;
    is_told(1, &ended);
}

#[tokio::test]
async fn a_quarantine_is_waited_through() {
    let server = RedisServer::start();
    let one = format!("{}?restart=quarantine&max_ttl=2s", server.url());
    let servers = Independent::start(3);
    let several = format!("{}?max_ttl=2s", servers.url());
    for (url, why) in [(one, "grants nothing for"), (several, "cannot vote for")] {
        let lock = "--ttl 2s k -- echo ran";
        let at_once = ends_printing(&url, format!("run -n {lock}"), 69, "").await;
        is_told(0, &at_once);
        let soon = ends_printing(&url, format!("run -w 300ms {lock}"), 69, "").await;
        says(&soon.stderr, ["gave up after ", why]);
        let ended = ends_printing(&url, format!("run -w 10m {lock}"), 0, "ran\n").await;
        ended.has_said(why);
        is_told(1, &ended);
    }
}

#[tokio::test]
async fn the_end_of_patience_in_an_outage_names_the_outage() {
    for (name, rest) in [("run", "k -- true"), ("hold", "k")] {
        let ended = ends(NOBODY, format!("{name} -w 1s {rest}"), 69).await;
        is_told(1, &ended);
        let mut lines = ended.stderr.lines().rev();
        let last = lines.find(|line| !line.contains("hint: ")).unwrap();
        says(last, ["gave up after 1.", "cannot connect to"]);
        let at_once = ends(NOBODY, format!("{name} -n {rest}"), 69).await;
        is_told(0, &at_once);
        at_once.has_not_said("gave up");
    }
    // In the middle of it, and shorter than what a request may take.
    let server = RedisServer::start();
    let url = server.url();
    let _holder = holder_at(&url, "--ttl 5m k").await;
    let waiter = saying(&url, "run -w 3s k -- true", "waiting for k").await;
    server.stop();
    let ended = waiter.ends_saying(69, "gave up after ").await;
    ended.has_not_said("is held");
    server.cont();
}

#[tokio::test]
async fn what_waiting_cannot_mend_ends_at_once() {
    let server = RedisServer::builder().password("hunter2").start();
    let wrong = format!("redis://:hunter3@{}/", server.address());
    let plain = format!("redis://{}/", server.address());
    let builder = || RedisServer::builder().password("hunter2");
    let others = [builder().start(), builder().start()];
    let [one, two] = [others[0].address(), others[1].address()];
    let quorum = format!("redlock://:hunter3@{},{one},{two}/", server.address());
    for (url, why) in [
        (quorum, "password"),
        (wrong, "password"),
        (plain, "password"),
    ] {
        let all = "run k -- true | run -w 1h k -- true | hold k | elect k -- true";
        for command in all.split(" | ") {
            let ended = ends(&url, command, 69).await;
            is_told(0, &ended);
            ended.has_said(why);
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_waited_for() {
    let server = RedisServer::start();
    let takes_writes = |takes: bool| {
        let replicas = if takes { "0" } else { "1" };
        server.command(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    };
    let url = server.url();
    let spawn = |arguments: &str| spawn(&url, arguments);
    let leader = "elect boss -- sh -c 'echo up; exec sleep 600'";
    let (leads, holder) = (spawn(leader), spawn("hold held"));
    leads.prints("up").await;
    holder.prints("").await;
    let follower = saying(&url, leader, "waiting for boss").await;
    let waiter = saying(&url, "run held -- echo up", "waiting for held").await;
    let observer = printing(&url, "elect boss --observe", "").await;
    takes_writes(false);

    let mut begun = begin_all(&url, "way");
    begun.push(spawn("run --key one --key other -- echo up"));
    let freed = saying(&url, "wait held", "waiting until").await;
    for process in begun.iter().chain([&waiter, &follower]) {
        let said = process.says("; trying again").await;
        assert!(said.contains("too few replicas"), "{said}");
    }
    let at_once = ends(&url, "run -n k -- true", 69).await;
    is_told(0, &at_once);
    at_once.has_said("min-replicas");
    for limit in ["-w 1s", "--retry-for 1s"] {
        let after = ends(&url, format!("run {limit} k -- true"), 69).await;
        is_told(1, &after);
        after.has_said("gave up after ");
    }

    takes_writes(true);
    for process in &begun {
        process.prints("").await;
        process.signal(Signal::TERM);
    }
    leads.signal(Signal::TERM);
    holder.signal(Signal::TERM);
    for waited in [&follower, &waiter] {
        waited.prints("up").await;
    }
    follower.signal(Signal::TERM);
    observer.signal(Signal::TERM);
    for process in begun.into_iter().chain([waiter, freed]) {
        let ended = process.finish().await;
        assert!(matches!(ended.shown(), Some(0 | 143)), "{}", ended.stderr);
        assert!(told(&ended) <= 1, "{}", ended.stderr);
    }
    for process in [leads, follower] {
        let ended = process.finish().await;
        assert_eq!(ended.shown(), Some(143), "{ended}");
    }
    observer.finish().await.has_code(Some(0));
}

/// What stays is not asked for again without end.
#[tokio::test]
async fn an_observer_ends_when_it_may_not_look() {
    let rights = "on >secret ~* &* +@all";
    let server = RedisServer::builder().user("bob", rights).start();
    let url = server.url_as("bob", "secret");
    let observer = printing(&url, "elect boss --observe", "nobody leads").await;
    server.command(&["ACL", "SETUSER", "bob", "-@all", "+ping"]);
    let leads = spawn(&server.url(), "elect boss -- sleep 600");
    observer.ends_saying(69, "may not do this").await;
    leads.ends_by(Signal::TERM).await;
}

#[tokio::test]
async fn a_signal_ends_the_waiting_for_the_store() {
    let process = saying(NOBODY, "run k -- true", "; trying again").await;
    let ended = process.ends_by(Signal::INT).await;
    ended.has_signal(Signal::INT);
    ended.has_said("stopped waiting for k after ");
}

#[tokio::test]
async fn a_candidate_keeps_trying_when_the_store_is_down_at_its_start() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url();
    let observer = spawn(&url, "elect --observe k");
    let script = "echo $LEASEHOLD_TERM; exec sleep 60";
    let candidate = saying(&url, ("elect k -- sh -c", script), "; trying again").await;
    observer.says("; trying again").await;
    server.start_again();
    let term = candidate.prints("").await;
    observer.prints(&format!("term {term}")).await;
    let ended = candidate.ends_by(Signal::TERM).await;
    ended.has_signal(Signal::TERM);
    observer.ends_by(Signal::TERM).await.has_code(Some(0));
}

#[tokio::test]
async fn a_free_key_is_got_however_short_the_patience() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    proxy.delay(Direction::ToClient, Duration::from_millis(20));
    let url = proxy.through(&server.url());
    for wait in ["0s", "1ms", "30ms"] {
        let ended = ends_printing(&url, format!("run -w {wait} k -- echo ran"), 0, "ran\n").await;
        ended.has_been_quiet(Some(0));
    }
    let holder = holder_at(&server.url(), "k").await;
    for wait in ["1ms", "150ms"] {
        let ended = ends(&url, format!("run -w {wait} k -- echo ran"), 75).await;
        let of_holder = |end: &str| format!("pid {}{end}", holder.pid());
        let blamed = [",", ")"].map(|end| ended.stderr.contains(&of_holder(end)));
        assert!(blamed.contains(&true), "{ended}");
    }
}

#[tokio::test]
async fn a_free_key_is_got_although_its_first_answer_comes_after_the_end_of_the_patience() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    // So that what is held begins with the answer to the claim.
    proxy.delay(Direction::ToClient, Duration::from_millis(20));
    let [claimed, asked_again] = [1, 2].map(|n| proxy.request(|sent| sent.has("orders-42"), n));
    let url = proxy.through(&server.url());
    let process = spawn(&url, "run -w 3s orders-42 -- echo ran");
    claimed.wait().await;
    proxy.hold(Direction::ToClient);
    // The claim is given up: it is released, or another is made.
    asked_again.wait().await;
    proxy.resume(Direction::ToClient);
    process.finish().await.has_printed(Some(0), "ran\n");
}

#[tokio::test]
async fn an_outage_is_waited_through_for_as_long_as_was_said() {
    let server = RedisServer::start();
    let url = server.url();
    is_told(0, &ends(NOBODY, "run -n k -- true", 69).await);
    let after = ends(NOBODY, "run -n --retry-for 300ms k -- true", 69).await;
    is_told(1, &after);
    after.has_said("gave up after ");

    server.kill();
    let arguments = "run -n --retry-for 5m k -- echo ran";
    let process = saying(&url, arguments, "; trying again for ").await;
    server.start_again();
    process.finish().await.has_printed(Some(0), "ran\n");
    // Another who holds the lock is not waited for.
    let _holder = holder_at(&url, "k").await;
    ends(&url, arguments, 75).await;

    ends(NOBODY, "elect --retry-for 300ms k -- true", 69).await;
}

#[tokio::test]
async fn the_first_try_takes_no_longer_than_the_time_for_retries() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let ended = ends(&url, "run -n --retry-for 300ms k -- true", 69).await;
    is_told(1, &ended);
    ended.has_said("the store did not answer in the time limit of 300 ms; trying again");
    ended.has_not_said("no answer within");
}

/// A store that does not answer would be waited for as long as a connection may take.
#[tokio::test]
async fn the_last_try_ends_with_the_time_for_retries() {
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let process = saying(&url, "run -n --retry-for 1s k -- true", "; trying again").await;
    let _listener = silent.listen(8).unwrap();
    let ended = process.finish().await;
    ended.has_ended_saying(Some(69), "gave up after ");
    ended.has_not_said("no answer");
}

/// The same for one who claims again, and does not wait for the key.
#[tokio::test]
async fn the_last_claim_ends_with_the_time_for_retries() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let arguments = "run -n --retry-for 2s k -- true";
    let process = saying(&server.url(), arguments, "; trying again").await;
    server.stop();
    let ended = process.finish().await;
    ended.has_ended_saying(Some(69), "gave up after ");
    // Of the server that is silent by now nothing is known in that time.
    ended.has_said("refuses writes\n");
}

/// The same for one who looks again after a failure.
#[tokio::test]
async fn the_last_look_ends_with_the_time_for_retries() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let _swallowed = proxy.swallow_reply_of(|sent| sent.has("orders-42"), 1);
    let _held = proxy.hold_request(|sent| sent.has("orders-42"), 2);
    let url = proxy.through(&server.url());
    let ended = ends(&url, "wait --retry-for 1s orders-42", 69).await;
    is_told(1, &ended);
    ended.has_said("gave up after ");
    ended.has_not_said("did not answer");
}
