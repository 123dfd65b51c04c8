//! The directory of the local store: owner and permissions, full disks, long paths, files that
//! remain.
#![cfg(all(unix, feature = "local"))]

use std::os::unix::fs::PermissionsExt;

use crate::local_support::{self, *};
use leasehold::Access;
use leasehold::doctor::examine;
use leasehold::store::Push;
use tokio::sync::mpsc::UnboundedReceiver;

async fn open(directory: &Path) -> LocalStore {
    local_support::open(&format!("local:{}", directory.display())).await
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Until such a push comes.
async fn heard(pushes: &mut UnboundedReceiver<Push>, enough: impl Fn(&Push) -> bool) {
    let heard = async { while !enough(&pushes.recv().await.expect("an open inbox")) {} };
    timeout(LIMIT, heard).await.expect("the push in time");
}

async fn grant(pushes: &mut UnboundedReceiver<Push>, of: Arrival) {
    let granted = |push: &Push| matches!(push, Push::Granted { arrival, .. } if *arrival == of);
    heard(pushes, granted).await;
}

#[tokio::test]
async fn only_the_user_can_look_inside() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("made for us");
    let store = open(&directory).await;
    claimed(&store, &key("k"), 1).await;
    assert_eq!(mode(directory.clone()), 0o700);
    assert_eq!(mode(directory.join("records")), 0o700);
    assert_eq!(mode(directory.join("records/k.rec")), 0o600);
    assert!(!format!("{store:?}").contains("0001"), "no claim id");
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused() {
    let place = TempDir::new().unwrap();
    // Only root can give a directory away; for others, root's will do.
    let foreign = if std::os::unix::fs::chown(place.path(), Some(4_242), None).is_ok() {
        place.path()
    } else {
        Path::new("/usr")
    };
    let error = refusal(foreign).await;
    assert!(error.to_string().contains("belongs to user"), "{error}");
}

#[tokio::test]
async fn what_is_no_directory_is_refused() {
    let place = TempDir::new().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "kept").unwrap();
    refusal(&file).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[tokio::test]
async fn a_removed_directory_is_an_error_and_not_a_lock() {
    let place = Place::new();
    let store = place.open().await;
    fs::remove_dir_all(place.at("")).unwrap();
    let refused = store.claim(&key("k"), &claim(&store, 1)).await;
    fails(refused, ErrorKind::Refused, &[]);
}

/// As whatever tidies up old files does. What was locked then may be lost; what
/// begins afterwards is not.
#[tokio::test]
async fn clients_whose_files_were_removed_go_on() {
    let place = Place::new();
    let (a, b) = (place.open().await, place.open().await);
    let (sink, mut pushes) = sink();
    let _inbox = b.listen(sink).await.unwrap();
    let key = key("k");
    for time in 1..=3 {
        remove_files(&place);
        while pushes.try_recv().is_ok() {}
        assert!(claimed(&a, &key, time).await.token.is_some());
        let waiting = claimed(&b, &key, 100 + time).await;
        assert_eq!((waiting.token, waiting.position), (None, 1), "a lives");
        released(&a, &key, time).await;
        grant(&mut pushes, waiting.arrival).await;
        released(&b, &key, 100 + time).await;
    }
}

/// It sees its place and asks, and others that it lives.
#[tokio::test]
async fn who_waits_while_its_files_are_removed_is_served() {
    let place = Place::new();
    let (a, b) = (place.connect().await, place.connect().await);
    let (held, waiting) = contended(&a, &b, "k").await;
    remove_files(&place);
    let served = granted(waiting).await;
    assert!(served.token() > held.token());
    let third = place.connect().await;
    assert!(try_lock(&third, "k").await.is_none(), "the second lives");
}

/// Neither its tasks nor its files wait for a timer: a program may connect again and again.
#[tokio::test]
async fn nothing_of_a_client_that_was_shut_down_stays() {
    let place = Place::new();
    let (client, lease) = held(&place.1).await;
    let _ = lease.release().await.unwrap();
    let _ = client.shutdown(LIMIT).await;
    drop(client);
    let tasks = tokio::runtime::Handle::current().metrics();
    let ended = async {
        while tasks.num_alive_tasks() > 0 {
            yield_now().await;
        }
    };
    // A client that may be used again keeps its task for longer than a second.
    let at_once = timeout(Duration::from_millis(900), ended).await;
    at_once.expect("no task is left");
    assert_eq!(place.files("sessions"), 0);
}

fn remove_files(place: &Place) {
    for sub in ["records", "sessions", "inbox"] {
        for file in fs::read_dir(place.at(sub)).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn grants_are_pushed_in_a_long_directory() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("long/".repeat(60));
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    handed_on(&directory).await;
}

#[tokio::test]
async fn without_a_socket_waiters_ask() {
    let place = Place::new();
    let store = place.open().await;
    fs::remove_dir(place.at("inbox")).unwrap();
    fs::write(place.at("inbox"), "in the way").unwrap();
    let key = key("k");
    claimed(&store, &key, 1).await;
    let _inbox = store.listen(sink().0).await.unwrap();
    let answer = store.claim(&key, &claim(&store, 2)).await.unwrap();
    assert!(matches!(answer.reply, ClaimReply::Standing(standing)
        if standing.blocked_until.unwrap().since(answer.at) <= Duration::from_millis(50)));
}

/// A hand-off between two clients, which is pushed.
async fn handed_on(directory: &Path) {
    let (a, b) = (open(directory).await, open(directory).await);
    let (key, (sink, mut pushes)) = (key("k"), sink());
    let inbox = b.listen(sink).await.unwrap();
    claimed(&a, &key, 1).await;
    let waiting = claimed(&b, &key, 2).await;
    assert_eq!(waiting.position, 1);
    released(&a, &key, 1).await;
    grant(&mut pushes, waiting.arrival).await;
    drop(inbox);
    assert_eq!(fs::read_dir(directory.join("inbox")).unwrap().count(), 0);
}

#[tokio::test]
async fn missed_pushes_are_owned_up_to() {
    let place = Place::new();
    let (a, b) = (place.open().await, place.open().await);
    let (sink, mut pushes) = sink();
    let _inbox = b.listen(sink).await.unwrap();
    let keys: Vec<_> = (0..40).map(|n| key(&n.to_string())).collect();
    for key in &keys {
        claimed(&a, key, 1).await;
        claimed(&b, key, 2).await;
    }
    // Nothing reads the inbox while this thread waits for the other.
    std::thread::spawn(move || {
        let runtime = runtime();
        for key in keys {
            runtime.block_on(released(&a, &key, 1));
        }
    })
    .join()
    .unwrap();
    heard(&mut pushes, |push| *push == Push::Reset).await;
}

#[tokio::test]
async fn a_step_waits_for_the_lock_and_leaves_none_behind() {
    let place = Place::new();
    let store = place.open().await;
    let key = key("k");
    claimed(&store, &key, 1).await;
    // Another process, stopped in mid-step.
    let stopped = fs::File::open(place.at("records/k.rec")).unwrap();
    stopped.lock().unwrap();
    let early = timeout(Duration::from_millis(100), store.release(&key, &release(1))).await;
    assert!(early.is_err(), "dropped while it waits");
    stopped.unlock().unwrap();
    released(&store, &key, 1).await;
    // The step that was dropped may be about to see that nobody wants it.
    until("nobody keeps it", async || stopped.try_lock().is_ok()).await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_changes_nothing() {
    let Some(disk) = Mounted::new() else { return };
    let directory = disk.path();
    let store = open(directory).await;
    let [key, other] = ["k", "other"].map(key);
    let held = claimed(&store, &key, 1).await;
    let filler = directory.join("filler");
    fs::write(&filler, vec![0; 1 << 20]).expect_err("a full disk");

    let refused = store.claim(&other, &claim(&store, 2)).await;
    fails(refused, ErrorKind::Refused, &["the disk is full"]);
    let seen = store.inspect(&key).await.unwrap();
    assert_eq!(Some(seen.holders[0].token), held.token);
    assert!(seen.waiters.is_empty());
    assert!(!directory.join("records/other.rec").exists());

    let (url, access) = (disk.url(), Access::default());
    let report = examine(&url, &access).await.unwrap();
    assert!(report.promise.starts_with("Nothing"), "{report:?}");
    says(&report.findings[0].found, ["the disk is full"]);

    fs::remove_file(&filler).unwrap();
    let report = examine(&url, &access).await.unwrap();
    assert!(report.promise.starts_with("Exclusion"));
    let records = fs::read_dir(directory.join("records")).unwrap();
    assert_eq!(records.count(), 1, "the trial leaves nothing");
    released(&store, &key, 1).await;
    drop(store);
}

/// No descriptor, no socket, no session. Tries again where a test beside it has just started a
/// process: until that is another program it has all that is open here, and lives for it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_closed_store_leaves_only_records() {
    let left = |place: &Path| {
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let open = open.filter(|target| target.starts_with(place)).count();
        (open, fs::read_dir(place.join("sessions")).unwrap().count())
    };
    let mut last = None;
    for _ in 0..50 {
        let place = TempDir::new().unwrap();
        handed_on(place.path()).await;
        last = Some(left(place.path()));
        if last == Some((0, 0)) {
            return;
        }
    }
    panic!("descriptors and sessions: {last:?}");
}
