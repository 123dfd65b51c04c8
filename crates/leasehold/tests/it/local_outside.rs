//! Interference with the local store: its directory is removed or replaced, other users hold its
//! files, processes have another time since boot.
#![cfg(all(target_os = "linux", feature = "local"))]

use std::fs::{self, Permissions, TryLockError};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};

use crate::local_support::{self, *};
use leasehold_testkit::process::Process;

/// Some user who is not us.
const OTHER: u32 = 4_242;

// ---- a directory that is removed or replaced while it is in use ----

fn url(directory: &Path) -> String {
    format!("local:{}", directory.display())
}

async fn held(directory: &Path) -> (Client, Lease) {
    local_support::held(&url(directory)).await
}

fn remove(directory: &Path) {
    fs::remove_dir_all(directory).unwrap();
}

fn move_away(directory: &Path) {
    fs::rename(directory, directory.with_extension("old")).unwrap();
}

fn remove_the_records(directory: &Path) {
    for file in fs::read_dir(directory.join("records")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
}

fn remove_what_is_in_it(directory: &Path) {
    for part in ["records", "sessions", "inbox"] {
        fs::remove_dir_all(directory.join(part)).unwrap();
    }
}

/// Its first renewal says that it has lost the lease, not that there was no answer.
#[tokio::test]
async fn who_holds_in_a_directory_that_has_gone_has_lost() {
    for vanish in [remove, move_away, remove_the_records, remove_what_is_in_it] {
        let place = TempDir::new().unwrap();
        let directory = place.path().join("d");
        let (_client, lease) = held(&directory).await;
        vanish(&directory);
        fails(lease.renew().await, ErrorKind::Lost, &[]);
        assert_eq!(lease.state(), LeaseState::Lost(Loss::Gone));
    }
}

/// A renewal of the watchdog sees it too; and what is granted in the new directory
/// has a higher token.
#[tokio::test]
async fn who_holds_in_a_replaced_directory_has_lost() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("d");
    let settings = Settings::default().with_ttl(Duration::from_secs(3));
    let client = client_with(&url(&directory), settings).await;
    let lease = lock(&client, "k").await;
    move_away(&directory);
    let (_other, newer) = held(&directory).await;
    assert!(newer.token() > lease.token());
    assert_eq!(timeout(LIMIT, lease.lost()).await.unwrap(), Loss::Gone);
    // Whoever wants more is told what to do.
    let refused = client.mutex("k").unwrap().try_lock().await;
    let error = fails(refused, ErrorKind::Refused, &["removed while in use"]);
    hints(&error, "start again");
    // There is nothing to give back.
    assert!(lease.release().await.is_ok());
}

#[tokio::test]
async fn who_waits_in_a_directory_that_has_gone_is_told() {
    for vanish in [remove, move_away] {
        let place = TempDir::new().unwrap();
        let directory = place.path().join("d");
        let (holder, _lease) = held(&directory).await;
        let client = connect(url(&directory)).await.unwrap();
        let waits = waiting(&client, "k");
        in_line(&holder, "k", 1).await;
        vanish(&directory);
        let told = timeout(LIMIT, waits).await.expect("in time").unwrap();
        fails(told, ErrorKind::Refused, &[]);
    }
}

// ---- other users ----

/// A place that others can look into. `None`: only root can be another user.
fn open_place() -> Option<TempDir> {
    let place = TempDir::new().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let file = place.path().join("owned by another");
    fs::write(&file, "").unwrap();
    if lchown(&file, Some(OTHER), None).is_ok() {
        return Some(place);
    }
    eprintln!("left out: only root can be another user");
    None
}

/// A program of another user.
fn as_another(script: &str, directory: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={OTHER}"))
        .args(["--clear-groups", "sh", "-c", script, "sh"])
        .arg(directory);
    command
}

/// What it has locked, it can have locked for ever.
#[tokio::test]
async fn another_user_cannot_keep_a_client_from_starting() {
    let Some(place) = open_place() else { return };
    let directory = place.path().join("d");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    drop(held(&directory).await);
    // Until it is closed it holds the directory itself, too. Its file may be left behind: a program that
    // another test was just starting may have had it open.
    until("the client is closed", async || {
        let mut sessions = fs::read_dir(directory.join("sessions")).unwrap();
        let locked = |file: fs::File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        !sessions.any(|file| fs::File::open(file.unwrap().path()).is_ok_and(locked))
    })
    .await;
    // All that it can open, until its input ends. The client before may be about to close it.
    let lock_all = r#"
        n=3
        for file in "$1" "$1"/* "$1"/*/*; do
            if [ -r "$file" ]; then
                eval "exec $n<\"\$file\"" && flock -w 20 "$n" && n=$((n + 1))
            fi
        done
        echo "locked $((n - 3))"
        read -r _
    "#;
    let (other, _input) = Process::spawn_to_feed(as_another(lock_all, &directory));
    let said = other.prints("locked ").await;
    assert_eq!(said, "locked 1", "the directory, which it may read");
    // The machine's first start too, which writes down the clock.
    for _ in 0..2 {
        let opened = connect(url(&directory)).await;
        drop(opened.expect("nobody is waited for"));
        fs::remove_file(directory.join("clock")).unwrap();
    }
}

/// Also where the system does not see to it (`fs.protected_symlinks`).
#[tokio::test]
async fn symlinks_of_other_users_are_not_followed() {
    let Some(place) = open_place() else { return };
    let shared = place.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let ours = place.path().join("ours");
    fs::create_dir(&ours).unwrap();
    let link = |name: &str, to: PathBuf, owner| {
        let path = shared.join(name);
        symlink(to, &path).unwrap();
        lchown(&path, owner, None).unwrap();
        path
    };
    let theirs = link("theirs", ours.clone(), Some(OTHER));
    let through = link("through", "theirs/deep".into(), None);
    let said = format!("{} is a symbolic link of user {OTHER}", theirs.display());
    for trap in [theirs.clone(), theirs.join("new"), through.clone()] {
        says(refusal(&trap).await, [&said]);
    }
    assert_eq!(fs::read_dir(&ours).unwrap().count(), 0, "nothing was made");
    fs::remove_file(&through).unwrap();
    // Our own is followed, and so is one in a directory of that user.
    let own = link("own", "../ours".into(), None);
    let (_client, lease) = held(&own.join("new")).await;
    assert!(ours.join("new/records/k.rec").exists());
    let _ = lease.release().await.unwrap();
    let home = place.path().join("home");
    fs::create_dir(&home).unwrap();
    symlink(&ours, home.join("state")).unwrap();
    for path in [home.clone(), home.join("state")] {
        lchown(path, Some(OTHER), None).unwrap();
    }
    drop(held(&home.join("state/new")).await);
    // A circle has no end.
    symlink("circle", shared.join("circle")).unwrap();
    refusal(&shared.join("circle")).await;
}

// ---- clocks ----

/// As in a container that was moved from another machine (`unshare --time`).
#[tokio::test]
async fn processes_of_all_time_namespaces_exclude_each_other() {
    let apart = ["unshare", "--time", "--boottime", "100000"];
    if !is_allowed(&apart) {
        return;
    }
    let place = Place::new();
    let (_client, lease) = local_support::held(&place.1).await;
    place.start_under(&apart, "try").says("busy").await;
    let _ = lease.release().await.unwrap();
    place.start_under(&apart, "try").says("granted").await;
}
