//! Forked processes: what a child has inherited is closed in it, and stays its parent's.
#![cfg(all(unix, feature = "local", feature = "redis"))]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold::{ClaimIds, LeaseParts, Loss, LossSignal, blocking};
use leasehold_testkit::process::Process;
use leasehold_testkit::server::RedisServer;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::runtime::Builder;

use crate::local_support::Place;
use crate::outside_runtime::{CASES, Came, Made};
use crate::steps::*;

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
fn outcome<T>(result: Result<T, Error>) -> String {
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

impl Parent {
    fn mutex(&self, key: &str) -> blocking::Mutex {
        self.client.mutex(key).unwrap()
    }
}

type Deed = fn(Parent) -> String;

/// What a child may not do to it: there the client is closed.
const REFUSED: &[(&str, Deed)] = &[
    ("release", |it| outcome(it.lease.release())),
    ("release several", |it| outcome(it.both.release())),
    ("resign", |it| outcome(it.leadership.resign())),
    ("renew", |it| outcome(it.lease.renew())),
    ("renew several", |it| outcome(it.both.renew())),
    ("rotate", |it| outcome(it.lease.rotate())),
    ("hand over", |it| outcome(it.lease.into_parts())),
    ("proclaim", |it| outcome(it.leadership.proclaim("me"))),
    ("lock", |it| outcome(it.mutex("other").lock())),
    ("lock several", |it| {
        outcome(it.client.multi(["o", "p"]).unwrap().try_lock())
    }),
    ("is_locked", |it| outcome(it.mutex(KEY).is_locked())),
    ("list", |it| outcome(it.client.list("*"))),
    ("break", |it| outcome(it.client.break_key(KEY))),
    ("deadlocks", |it| outcome(it.client.deadlocks())),
    ("wait", |it| outcome(it.client.wait_until_free(KEY))),
    ("observe", |it| {
        outcome(it.client.election("e").unwrap().observe().next().unwrap())
    }),
    ("parts", |it| outcome(it.lease.parts())),
    ("by parts", |it| {
        outcome(it.client.release_by_parts(&it.parts))
    }),
    ("audit log", |it| {
        outcome(it.client.audit_log(None, std::time::UNIX_EPOCH))
    }),
    ("in a runtime of its own", |it| {
        let mutex = it.client.as_async().mutex("other").unwrap();
        outcome(runtime().block_on(mutex.lock()))
    }),
];

/// What else a child may do to it, and what comes of that.
const OTHERS: &[(&str, Deed, &str)] = &[
    ("is_valid", |it| it.lease.is_valid().to_string(), "false"),
    ("lost", |it| it.lease.lost().name().to_owned(), "forked"),
    (
        "signal",
        |it| it.signal.reason().map_or("", Loss::name).to_owned(),
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
    let [mutex, other] = [KEY, "busy"].map(|key| client.mutex(key).unwrap());
    let election = client.election("e").unwrap();
    runtime().block_on(async {
        while !stop.load(Ordering::Relaxed) {
            assert!(signals.iter().all(|signal| signal.reason().is_none()));
            assert!(mutex.try_lock().await.unwrap().is_none());
            drop((other.try_lock().await.unwrap(), election.observe()));
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

fn only(said: &str) -> BTreeSet<String> {
    BTreeSet::from([said.to_owned()])
}

/// A parent that holds keys, and forks children for each deed, while another thread uses its client.
fn fork_for_each_deed(url: &str) {
    let probe = connect(url);
    let refused = REFUSED.iter();
    let refused = refused.map(|(deed, child)| (*deed, *child, "Closed"));
    for (deed, child, expected) in refused.chain(OTHERS.iter().copied()) {
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
        assert_eq!(said, only(expected), "{deed} on {url}");
        let Parent {
            lease,
            both,
            leadership,
            ..
        } = parent.expect("the child had a copy");
        let held = lease.is_valid() && both.is_valid() && leadership.is_leader();
        assert!(held, "{deed}");
        for key in [KEY, "x", "y", "e"] {
            let taken = probe.mutex(key).unwrap().try_lock().unwrap();
            assert!(taken.is_none(), "{deed} on {url} has freed {key}");
        }
        // And it is all that the parent says it is.
        assert_eq!(outcome(lease.renew()), "done", "{deed} on {url}");
        for released in [lease.release(), both.release(), leadership.resign()] {
            assert_eq!(released.unwrap(), Released::Held, "{deed} on {url}");
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
        assert_eq!(said, only("as expected"), "{name} on {url}");
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
    let Some((role, url)) = my_role() else { return };
    match role.as_str() {
        "deeds" => fork_for_each_deed(&url),
        "calls" => fork_for_each_call(&url),
        "draw" => draw_after_forking(),
        "keep" => keep(&url),
        other => panic!("no role {other}"),
    }
}

const ROLE: &str = "forked::role";

async fn succeeds(role: &str, url: &str) {
    Process::spawn(in_role(ROLE, role, url)).ends(0).await;
}

async fn a_child_can_do_nothing(url: &str) {
    succeeds("deeds", url).await;
    succeeds("calls", url).await;
}

tests! {
    #[tokio::test]
    fn a_forked_child_can_do_nothing_with_what_it_inherits_in_memory() {
        a_child_can_do_nothing("memory:forked")
    }
    fn a_forked_child_can_do_nothing_with_what_it_inherits_on_one_machine() {
        a_child_can_do_nothing(&Place::new().1)
    }
    fn a_forked_child_can_do_nothing_with_what_it_inherits_on_a_server() {
        a_child_can_do_nothing(&RedisServer::start().url())
    }
    fn no_two_forked_processes_draw_the_same_ids() { succeeds("draw", "") }
}

/// A parent in the role `keep`, and its child.
async fn parent_and_child(url: &str) -> (Process, Pid) {
    let parent = Process::spawn(in_role(ROLE, "keep", url));
    let line = parent.says("forked").await;
    let child = line.split(' ').nth(1).and_then(|pid| pid.parse().ok());
    (parent, child.and_then(Pid::from_raw).expect("its number"))
}

/// A server would keep what it has for connections that nobody uses.
#[tokio::test]
async fn a_forked_child_keeps_no_connection_of_its_parent() {
    let server = RedisServer::start();
    let clients = || {
        let clients: String = server.query(&["CLIENT", "LIST"]);
        clients.lines().count()
    };
    let (parent, child) = parent_and_child(&server.url()).await;
    assert!(clients() > 1, "the parent is one");
    parent.signal(Signal::KILL);
    parent.wait().await;
    until("only this test is connected", async || clients() == 1).await;
    kill_process(child, Signal::KILL).expect("the child lives");
}

#[tokio::test]
async fn a_forked_child_does_not_live_for_its_parent() {
    let place = Place::new();
    let (parent, child) = parent_and_child(&place.1).await;
    parent.signal(Signal::KILL);
    parent.wait().await;
    let client = place.connect().await;
    let granted = timeout(LIMIT, client.mutex(KEY).unwrap().lock()).await;
    let lives = kill_process(child, Signal::KILL);
    drop(granted.expect("the parent has died").unwrap());
    lives.expect("the child lives");
}
