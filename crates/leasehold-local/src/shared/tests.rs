//! Directories of the group that the tests run with: how they are made, and what is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::Key;
use leasehold_store::Records;
use tempfile::TempDir;

use super::super::make::make;
use super::super::place::Place;
use super::super::walk::Makes;
use super::super::{Inner, LocalOptions, LocalStore};
use super::*;

fn ours() -> Group {
    Group::of(rustix::process::getegid().as_raw())
}

/// A place, and a directory in it that was made for our group.
fn shared() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    assert!(make(&path, &ours()).unwrap());
    (place, path)
}

fn open(path: &Path) -> Result<Directory, StoreError> {
    Directory::open_for(path.to_owned(), None, Makes::Last)
}

fn open_for(path: &Path, group: &str) -> Result<Directory, StoreError> {
    Directory::open_for(path.to_owned(), Some(group), Makes::Last)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refusal(opened: Result<Directory, StoreError>) -> StoreError {
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn what_is_made_has_the_modes_of_a_group() {
    let (_place, path) = shared();
    for (name, expected) in [
        ("", OF_TOP),
        ("group", 0o640),
        ("clock", OF_FILES),
        ("clock.lock", OF_FILES),
        ("keys", OF_FILES),
        ("records", OF_PARTS),
        ("sessions", OF_PARTS),
        ("inbox", OF_PARTS),
        ("audit", OF_PARTS),
    ] {
        let found = path.join(name);
        assert_eq!(mode(&found), expected, "{name}");
        assert_eq!(fs::metadata(&found).unwrap().gid(), ours().gid, "{name}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 8, "and nothing else");
    for group in [None, Some(ours().text()), Some(ours().gid.to_string())] {
        let opened = Directory::open_for(path.clone(), group.as_deref(), Makes::Last).unwrap();
        assert_eq!(opened.group(), Some(&ours()));
    }
    assert!(!make(&path, &ours()).unwrap(), "it was there already");
}

#[test]
fn what_clients_make_in_it_is_for_the_group() {
    let (_place, path) = shared();
    let store = Inner::open_in(open(&path).unwrap(), Duration::from_secs(60), None).unwrap();
    drop(Place::of_key(&store, &Key::new("k").unwrap()).try_lock());
    let session = store.session.inbox().as_str().to_owned();
    assert_eq!(mode(&path.join("sessions").join(session)), OF_FILES);
    store
        .directory
        .file("records/made.rec", OFlags::RDWR | OFlags::CREATE)
        .unwrap();
    assert_eq!(mode(&path.join("records/made.rec")), OF_FILES);
    let socket = path.join("inbox/s.sock");
    let _listening = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    set_mode(&socket, 0o700);
    store.directory.share_socket("inbox/s.sock").unwrap();
    assert_eq!(mode(&socket), OF_FILES);
    let left = store.directory.names(RECORDS, "", 10).unwrap();
    assert_eq!(left, ["made.rec"], "nothing half made");
    // A link to what is no socket of the group gets no datagram.
    let sent_to = || store.directory.shared_socket("inbox/s.sock").unwrap();
    assert!(sent_to().is_ok());
    if lchown(&socket, None, Some(ours().gid + 1)).is_ok() {
        assert_eq!(sent_to().unwrap_err(), Errno::ACCESS);
    }
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "").unwrap();
    assert_eq!(sent_to().unwrap_err(), Errno::ACCESS);
}

#[tokio::test]
async fn its_address_names_the_group() {
    let (_place, path) = shared();
    let url = format!("local:{}", path.display());
    let store = LocalStore::open(LocalOptions::from_url(&url).unwrap())
        .await
        .unwrap();
    let again = LocalOptions::from_url(&store.url()).unwrap();
    assert_eq!(again.group, Some(ours().text()));
    assert!(LocalStore::open(again).await.is_ok());
}

#[test]
fn the_directory_of_one_user_is_not_shared_by_asking() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    let error = refusal(open_for(&path, &ours().text()));
    assert!(
        error.to_string().contains("there is no directory"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("leasehold init -S 'local:/"));
    assert!(!path.exists(), "nothing was made");
    Directory::open(path.clone()).unwrap();
    let error = refusal(open_for(&path, &ours().text()));
    assert!(
        error.to_string().contains("was not made for the group"),
        "{error}"
    );
    let error = make(&path, &ours()).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    assert_eq!(mode(&path), 0o700, "left as it was");
}

#[test]
fn an_empty_directory_is_taken_and_one_half_made_is_finished() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    fs::create_dir(&path).unwrap();
    set_mode(&path, 0o755);
    fs::write(path.join(".new-0000000000000000"), "").unwrap();
    assert!(make(&path, &ours()).unwrap());
    open(&path).unwrap();
    fs::remove_dir(path.join("inbox")).unwrap();
    fs::remove_file(path.join("clock.lock")).unwrap();
    set_mode(&path, 0o700);
    set_mode(&path.join("records"), 0o700);
    refusal(open(&path));
    assert!(!make(&path, &ours()).unwrap());
    open(&path).unwrap();
}

#[test]
fn a_directory_of_another_group_is_refused() {
    let (_place, path) = shared();
    let error = refusal(open_for(&path, "4000000123"));
    assert!(error.to_string().contains("not for 4000000123"), "{error}");
    let other = Group::of(ours().gid + 1);
    let error = make(&path, &other).unwrap_err();
    // Who is not root cannot make it for a group of others at all.
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    for text in ["", "ops", "-1", "4294967295"] {
        fs::write(path.join(MARK), text).unwrap();
        let error = refusal(open(&path));
        assert!(
            error.to_string().contains("does not say for which group"),
            "{error}"
        );
    }
    fs::write(path.join(MARK), ours().gid.to_string()).unwrap();
    open(&path).unwrap();
    set_mode(&path.join(MARK), 0o660);
    refusal(open(&path));
}

/// Each is said with the mode that was found, and the command that is the hint mends it.
#[test]
fn odd_modes_are_refused_and_the_hint_mends_them() {
    let (_place, path) = shared();
    for (name, odd) in [
        ("", 0o2770),
        ("", 0o2755),
        ("", 0o750),
        ("records", 0o2775),
        ("sessions", 0o770),
        ("inbox", 0o2750),
        ("audit", 0o2777),
        ("keys", 0o666),
    ] {
        let found = path.join(name);
        set_mode(&found, odd);
        let error = refusal(open(&path));
        let said = format!("has mode {odd:o}");
        assert!(error.to_string().contains(&said), "{error}");
        let (command, _) = error.hint().unwrap().split_once(',').unwrap();
        let mended = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(mended.success(), "{command}");
        open(&path).unwrap();
    }
}

#[tokio::test]
async fn a_record_with_odd_rights_is_said() {
    let (_place, path) = shared();
    let store = Inner::open_in(open(&path).unwrap(), Duration::from_secs(60), None).unwrap();
    let store = LocalStore::of(store);
    let key = Key::new("k").unwrap();
    let record = path.join("records/k.rec");
    let said = async || Records::look(&store, &key).await.unwrap_err();
    fs::write(&record, "").unwrap();
    set_mode(&record, 0o666);
    let error = said().await;
    assert!(error.to_string().contains("k.rec has mode 666"), "{error}");
    // Any member could put a link in its place before somebody runs a command on it.
    let hint = error.hint().unwrap();
    assert!(
        hint.contains("its owner, can give it the mode 660"),
        "{hint}"
    );
    assert!(!hint.contains("chmod"), "{hint}");
    fs::remove_file(&record).unwrap();
    symlink("/etc/hostname", &record).unwrap();
    assert_eq!(said().await.kind(), ErrorKind::Corrupt);
    fs::remove_file(&record).unwrap();
    assert!(Records::look(&store, &key).await.is_ok());
}

#[test]
fn a_part_that_is_missing_or_a_link_is_refused() {
    let (place, path) = shared();
    let part = path.join("records");
    fs::rename(&part, place.path().join("away")).unwrap();
    let error = refusal(open(&path));
    assert!(error.to_string().contains("records is missing"), "{error}");
    symlink(place.path().join("away"), &part).unwrap();
    let error = refusal(open(&path));
    assert!(
        error.to_string().contains("records is no directory"),
        "{error}"
    );
    // The directory itself may be found through a link of ours, and is not made through one.
    let link = place.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(
        make(&link, &ours())
            .unwrap_err()
            .to_string()
            .contains("is not a directory")
    );
}

#[test]
fn who_could_replace_the_directory_is_told() {
    let (place, path) = shared();
    let inner = place.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let moved = inner.join("d");
    fs::rename(&path, &moved).unwrap();
    for (odd, refused) in [
        (0o775, true),
        (0o777, true),
        (0o1777, false),
        (0o755, false),
    ] {
        set_mode(&inner, odd);
        let opened = open(&moved);
        assert_eq!(opened.is_err(), refused, "{odd:o}");
        if refused {
            let error = refusal(opened);
            assert!(
                error.to_string().contains("could replace the directory"),
                "{error}"
            );
            assert!(error.hint().unwrap().contains("below directories of root"));
        }
    }
}

/// Its maker was killed before it had its name.
#[test]
fn what_was_not_finished_is_passed_over_and_removed_when_it_is_old() {
    let (_place, path) = shared();
    let half = path.join("records/.new-0123456789abcdef");
    fs::write(&half, "").unwrap();
    let directory = open(&path).unwrap();
    assert_eq!(directory.names(RECORDS, "", 10).unwrap(), [""; 0]);
    let sweep = || drop(Inner::open_in(open(&path).unwrap(), Duration::ZERO, None).unwrap());
    sweep();
    assert!(half.exists(), "somebody may be about to finish it");
    let file = fs::File::options().write(true).open(&half).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    sweep();
    assert!(!half.exists());
}
