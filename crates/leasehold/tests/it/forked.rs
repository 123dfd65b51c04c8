//! Forked processes: what a child has inherited is closed in it, and stays its parent's.
#![cfg(all(unix, feature = "local", feature = "redis"))]

use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ClaimIds, Client, LeaseParts, LossSignal, Settings, blocking};
use leasehold_testkit::process::Process;
use leasehold_testkit::server::RedisServer;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::outside_runtime::{CASES, Came, Made};
use crate::support::until;

const KEY: &str = "k";

/// Far longer than any of these tests: nothing here is free because it has expired.
const TTL: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(60);
/// So many for each deed, that one of them meets a thread with a lock.
const FORKS: usize = 10;

#[allow(unsafe_code, reason = "no safe interface forks")]
mod system {
    // SAFETY: the declarations are those of POSIX. A child here does what a child of a process with
    // threads may do on the systems on which these tests run: their libraries see to it that
    // memory can be allocated in it.
    unsafe extern "C" {
        pub(super) safe fn fork() -> i32;
        pub(super) safe fn _exit(status: i32) -> !;
        pub(super) safe fn alarm(seconds: u32) -> u32;
    }
}

/// Runs `work` in a forked child, and returns what it says.
fn in_child(work: impl FnOnce() -> String) -> String {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let child = match system::fork() {
        0 => {
            // One that hangs is a failure, and nobody has to end it.
            system::alarm(30);
            let said = catch_unwind(AssertUnwindSafe(work));
            let said = said.unwrap_or_else(|_| "it panicked".to_owned());
            there.write_all(said.as_bytes()).ok();
            system::_exit(0);
        }
        forked => Pid::from_raw(forked).expect("it forks"),
    };
    drop(there);
    let mut said = String::new();
    here.read_to_string(&mut said).unwrap();
    waitpid(Some(child), WaitOptions::empty()).unwrap();
    if said.is_empty() {
        said.push_str("it hung");
    }
    said
}

fn connect(url: &str) -> blocking::Client {
    let settings = Settings::default().with_ttl(TTL);
    let client = blocking::Client::builder().store(url).settings(settings);
    client.connect().unwrap()
}

/// The kind of an error, or that there was none.
fn outcome<T>(result: Result<T, leasehold::Error>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// What a parent has when it forks.
struct Parent {
    client: blocking::Client,
    lease: blocking::Lease,
    parts: LeaseParts,
    both: blocking::MultiLease,
    leadership: blocking::Leadership,
    signal: LossSignal,
    url: String,
}

type Deed = (&'static str, fn(Parent) -> String, &'static str);

/// What a child may do to it, and what comes of that.
const DEEDS: &[Deed] = &[
    ("release", |it| outcome(it.lease.release()), "Closed"),
    ("release several", |it| outcome(it.both.release()), "Closed"),
    ("resign", |it| outcome(it.leadership.resign()), "Closed"),
    ("renew", |it| outcome(it.lease.renew()), "Closed"),
    ("renew several", |it| outcome(it.both.renew()), "Closed"),
    ("rotate", |it| outcome(it.lease.rotate()), "Closed"),
    ("hand over", |it| outcome(it.lease.into_parts()), "Closed"),
    (
        "proclaim",
        |it| outcome(it.leadership.proclaim("me")),
        "Closed",
    ),
    (
        "lock",
        |it| outcome(it.client.mutex("other").unwrap().lock()),
        "Closed",
    ),
    (
        "lock several",
        |it| outcome(it.client.multi(["o", "p"]).unwrap().try_lock()),
        "Closed",
    ),
    (
        "is_locked",
        |it| outcome(it.client.mutex(KEY).unwrap().is_locked()),
        "Closed",
    ),
    ("list", |it| outcome(it.client.list("*")), "Closed"),
    ("break", |it| outcome(it.client.break_key(KEY)), "Closed"),
    ("deadlocks", |it| outcome(it.client.deadlocks()), "Closed"),
    (
        "wait",
        |it| outcome(it.client.wait_until_free(KEY)),
        "Closed",
    ),
    (
        "observe",
        |it| outcome(it.client.election("e").unwrap().observe().next().unwrap()),
        "Closed",
    ),
    ("parts", |it| outcome(it.lease.parts()), "Closed"),
    (
        "by parts",
        |it| outcome(it.client.release_by_parts(&it.parts)),
        "Closed",
    ),
    (
        "audit log",
        |it| outcome(it.client.audit_log(None, std::time::UNIX_EPOCH)),
        "Closed",
    ),
    ("is_valid", |it| it.lease.is_valid().to_string(), "false"),
    ("lost", |it| it.lease.lost().name().to_owned(), "forked"),
    (
        "signal",
        |it| {
            it.signal
                .reason()
                .map_or("", leasehold::Loss::name)
                .to_owned()
        },
        "forked",
    ),
    (
        "drop",
        |it| {
            drop(it);
            "done".to_owned()
        },
        "done",
    ),
    (
        "shutdown",
        |it| {
            let done = it.client.shutdown(Duration::from_secs(5));
            format!("{} {}", done.released, done.unconfirmed)
        },
        "0 0",
    ),
    (
        "in a runtime of its own",
        |it| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let mutex = it.client.as_async().mutex("other").unwrap();
            outcome(runtime.block_on(mutex.lock()))
        },
        "Closed",
    ),
    (
        "connect anew",
        |it| {
            let client = connect(&it.url);
            // Another process has another memory.
            let is_held = client.mutex(KEY).unwrap().is_locked().unwrap();
            assert_eq!(is_held, !it.url.starts_with("memory:"), "{}", it.url);
            let lease = client.mutex("anew").unwrap().lock().unwrap();
            outcome(lease.release())
        },
        "done",
    ),
];

/// Takes the locks of a client, of its store and of its claims again and again, until it is told to
/// stop: children inherit them as they are at that moment.
fn keep_busy(client: &Client, signals: &[LossSignal], stop: &AtomicBool) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let [mutex, other] = [KEY, "busy"].map(|key| client.mutex(key).unwrap());
    let election = client.election("e").unwrap();
    runtime.block_on(async {
        while !stop.load(Ordering::Relaxed) {
            assert!(signals.iter().all(|signal| signal.reason().is_none()));
            assert!(mutex.try_lock().await.unwrap().is_none());
            let lease = other.try_lock().await.unwrap();
            drop((lease, election.observe()));
            client.list("*").await.unwrap();
        }
    });
}

/// What children say to whom this is done while another thread keeps their parent's client busy.
fn fork_while_busy(
    client: &Client,
    signals: &[LossSignal],
    mut child: impl FnMut() -> String,
) -> BTreeSet<String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_busy(client, signals, &stop));
        let said = (0..FORKS).map(|_| in_child(&mut child)).collect();
        stop.store(true, Ordering::Relaxed);
        said
    })
}

/// A parent that holds keys, and forks children for each deed, while another thread uses its client.
fn fork_for_each_deed(url: &str) {
    let probe = connect(url);
    for (deed, child, expected) in DEEDS {
        let client = connect(url);
        let noted = client.mutex("s").unwrap().lock().unwrap();
        let lease = client.mutex(KEY).unwrap().lock().unwrap();
        let parent = Parent {
            parts: lease.parts().unwrap(),
            lease,
            both: client.multi(["x", "y"]).unwrap().lock().unwrap(),
            leadership: client.election("e").unwrap().campaign("").unwrap(),
            signal: noted.as_async().loss_signal(),
            client: client.clone(),
            url: url.to_owned(),
        };
        let signals = [parent.lease.as_async().loss_signal(), parent.signal.clone()];
        let mut parent = Some(parent);
        let said = fork_while_busy(client.as_async(), &signals, || {
            child(parent.take().unwrap())
        });
        let only = BTreeSet::from([(*expected).to_owned()]);
        assert_eq!(said, only, "{deed} on {url}");
        let Parent {
            lease,
            both,
            leadership,
            ..
        } = parent.expect("the child had a copy");
        assert!(
            lease.is_valid() && both.is_valid() && leadership.is_leader(),
            "{deed}"
        );
        for key in [KEY, "x", "y", "e"] {
            let taken = probe.mutex(key).unwrap().try_lock().unwrap();
            assert!(taken.is_none(), "{deed} on {url} has freed {key}");
        }
        // And it is all that the parent says it is.
        assert_eq!(outcome(lease.renew()), "done", "{deed} on {url}");
        for released in [lease.release(), both.release(), leadership.resign()] {
            assert_eq!(
                released.unwrap(),
                leasehold::Released::Held,
                "{deed} on {url}"
            );
        }
    }
}

/// Each future of the API is polled in children, while another thread of their parent uses what
/// they inherit.
fn fork_for_each_call(url: &str) {
    let runtime = Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    for (name, call, expected) in CASES {
        let made = runtime.block_on(Made::new(url));
        let client = made.client.clone();
        let signals = [made.lease.loss_signal(), made.lease.loss_signal()];
        let mut made = Some(made);
        let said = fork_while_busy(&client, &signals, || match call(made.take().unwrap()) {
            Came::Other(said) if said.contains("forked") => "as expected".to_owned(),
            came if came == *expected => "as expected".to_owned(),
            came => format!("{came:?}"),
        });
        assert_eq!(
            said,
            BTreeSet::from(["as expected".to_owned()]),
            "{name} on {url}"
        );
        drop(made);
        let done = runtime.block_on(client.shutdown(LIMIT));
        assert_eq!(done.unconfirmed, 0, "{name} on {url}");
    }
}

/// Two children and their parent draw one after the other: each something else.
fn draw_after_forking() {
    let draw = || {
        let random = ClaimIds::random().next().unwrap();
        let readable = ClaimIds::host_process_time().next().unwrap();
        let readable = readable.expose().to_owned();
        let (_, end) = readable.rsplit_once('-').unwrap();
        format!("{} {end}", random.expose())
    };
    draw(); // the generator of this thread has begun
    let drawn = [in_child(draw), in_child(draw), draw()];
    for part in 0..2 {
        let part = |both: &String| both.split(' ').nth(part).map(str::to_owned);
        let different: BTreeSet<_> = drawn.iter().map(part).collect();
        assert_eq!(different.len(), drawn.len(), "{drawn:?}");
    }
}

/// A parent that holds the key, and has a child that does nothing.
fn keep(url: &str) -> ! {
    let lease = connect(url).mutex(KEY).unwrap().lock().unwrap();
    let child = system::fork();
    if child == 0 {
        system::alarm(u32::try_from(2 * LIMIT.as_secs()).unwrap());
        loop {
            std::thread::park();
        }
    }
    eprintln!("forked {child} {}", lease.token());
    loop {
        std::thread::park();
    }
}

/// Not a test by itself: what the other processes do. They fork, which only a process may do whose
/// other threads are known.
#[test]
fn role() {
    let Ok(role) = env::var("LEASEHOLD_TEST_ROLE") else {
        return;
    };
    let url = env::var("LEASEHOLD_TEST_URL").unwrap();
    match role.as_str() {
        "deeds" => fork_for_each_deed(&url),
        "calls" => fork_for_each_call(&url),
        "draw" => draw_after_forking(),
        "keep" => keep(&url),
        other => panic!("no role {other}"),
    }
}

fn in_role(role: &str, url: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program
        .args(["forked::role", "--exact", "--nocapture"])
        .env("LEASEHOLD_TEST_ROLE", role)
        .env("LEASEHOLD_TEST_URL", url);
    program
}

async fn succeeds(role: &str, url: &str) {
    let ended = Process::run(in_role(role, url)).await;
    assert_eq!(ended.code(), Some(0), "{role} on {url}: {ended:?}");
}

#[tokio::test]
async fn a_forked_child_can_do_nothing_with_what_it_inherits_in_memory() {
    succeeds("deeds", "memory:forked").await;
    succeeds("calls", "memory:forked").await;
}

#[tokio::test]
async fn a_forked_child_can_do_nothing_with_what_it_inherits_on_one_machine() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("local:{}", place.path().join("locks").display());
    succeeds("deeds", &url).await;
    succeeds("calls", &url).await;
}

#[tokio::test]
async fn a_forked_child_can_do_nothing_with_what_it_inherits_on_a_server() {
    let server = RedisServer::start();
    succeeds("deeds", &server.url()).await;
    succeeds("calls", &server.url()).await;
}

#[tokio::test]
async fn no_two_forked_processes_draw_the_same_ids() {
    succeeds("draw", "").await;
}

/// The number of the child, as the role `keep` says it.
fn child_in(line: &str) -> Pid {
    let child = line.split(' ').nth(1).and_then(|pid| pid.parse().ok());
    child.and_then(Pid::from_raw).expect("its number")
}

/// A server would keep what it has for connections that nobody uses.
#[tokio::test]
async fn a_forked_child_keeps_no_connection_of_its_parent() {
    let server = RedisServer::start();
    let clients = || {
        let clients: String = server.query(&["CLIENT", "LIST"]);
        clients.lines().count()
    };
    let parent = Process::spawn(in_role("keep", &server.url()));
    let child = child_in(&parent.stderr().wait_for("forked").await);
    assert!(clients() > 1, "the parent is one");
    parent.signal(Signal::KILL);
    parent.wait().await;
    until("only this test is connected", async || clients() == 1).await;
    kill_process(child, Signal::KILL).expect("the child lives");
}

#[tokio::test]
async fn a_forked_child_does_not_live_for_its_parent() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("local:{}", place.path().join("locks").display());
    let parent = Process::spawn(in_role("keep", &url));
    let child = child_in(&parent.stderr().wait_for("forked").await);
    parent.signal(Signal::KILL);
    parent.wait().await;
    let client = leasehold::connect(&url).await.unwrap();
    let mutex = client.mutex(KEY).unwrap();
    let granted = timeout(LIMIT, mutex.lock()).await;
    let lives = kill_process(child, Signal::KILL);
    drop(granted.expect("the parent has died").unwrap());
    lives.expect("the child lives");
}
