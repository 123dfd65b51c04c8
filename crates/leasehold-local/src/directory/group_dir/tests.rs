//! Directories of the group that the tests run with: how they are made, and what is refused.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::process::Command;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use leasehold_store::Records;

use super::*;
use crate::directory::create_dir::make;
use crate::directory::{Makes, RECORDS};
use crate::record_file::RecordFile;
use crate::tests::{Place, claim, key, mode, options, refusal, set_mode, take};
use crate::{Inner, LocalOptions, LocalStore, step};

fn ours() -> Group {
    Group::of(rustix::process::getegid().as_raw())
}

/// A place with a directory that was made for our group.
fn shared() -> Place {
    let place = Place::new();
    assert!(make(&place.path, &ours()).unwrap());
    place
}

fn open(path: &Path) -> Result<Directory, StoreError> {
    Directory::open_for(path.to_owned(), None, Makes::Last)
}

fn open_for(path: &Path, group: &str) -> Result<Directory, StoreError> {
    Directory::open_for(path.to_owned(), Some(group), Makes::Last)
}

#[test]
fn what_is_made_has_the_modes_of_a_group() {
    let place = shared();
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
        let found = place.at(name);
        assert_eq!(mode(&found), expected, "{name}");
        assert_eq!(fs::metadata(&found).unwrap().gid(), ours().gid, "{name}");
    }
    assert_eq!(place.names("").len(), 8, "and nothing else");
    assert_eq!(open(&place.path).unwrap().group(), Some(&ours()));
    for group in [ours().text(), ours().gid.to_string()] {
        let opened = open_for(&place.path, &group).unwrap();
        assert_eq!(opened.group(), Some(&ours()));
    }
    assert!(!make(&place.path, &ours()).unwrap(), "it was there already");
}

#[test]
fn what_clients_make_in_it_is_for_the_group() {
    let place = shared();
    let store = place.store();
    drop(RecordFile::of_key(&store, &key("k")).try_lock());
    let session = store.session.inbox().as_str();
    assert_eq!(mode(&place.at("sessions").join(session)), OF_FILES);
    let flags = OFlags::RDWR | OFlags::CREATE;
    store.directory.file("records/made.rec", flags).unwrap();
    assert_eq!(mode(&place.at("records/made.rec")), OF_FILES);
    let socket = place.at("inbox/s.sock");
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
    let place = shared();
    let url = format!("local:{}", place.path.display());
    let store = LocalStore::open(LocalOptions::from_url(&url).unwrap());
    let again = LocalOptions::from_url(&store.await.unwrap().url()).unwrap();
    assert_eq!(again.group, Some(ours().text()));
    assert!(LocalStore::open(again).await.is_ok());
}

/// A service of names may have to be asked for its members, which can take seconds.
#[tokio::test]
async fn it_is_opened_where_that_holds_up_no_task() {
    let (shared, own) = (shared(), Place::new());
    for (place, waits) in [(shared, true), (own, false)] {
        // The clock is set.
        drop(place.store());
        let options = LocalOptions::default().directory(&*place.path);
        let mut open = Box::pin(LocalStore::open(options));
        let first = std::future::poll_fn(|context| Poll::Ready(open.as_mut().poll(context))).await;
        assert_eq!(first.is_pending(), waits);
        if waits {
            drop(open.await.unwrap());
        }
    }
}

#[test]
fn the_directory_of_one_user_is_not_shared_by_asking() {
    let place = Place::new();
    let ask = || open_for(&place.path, &ours().text());
    let hint = refusal(ask(), "there is no directory");
    assert!(hint.contains("leasehold init -S 'local:/"), "{hint}");
    assert!(!place.path.exists(), "nothing was made");
    place.directory();
    refusal(ask(), "was not made for the group");
    refusal(make(&place.path, &ours()), "is not empty");
    assert_eq!(mode(&place.path), 0o700, "left as it was");
}

#[test]
fn an_empty_directory_is_taken_and_one_half_made_is_finished() {
    let place = Place::new();
    fs::create_dir(&place.path).unwrap();
    set_mode(&place.path, 0o755);
    fs::write(place.at(".new-0000000000000000"), "").unwrap();
    assert!(make(&place.path, &ours()).unwrap());
    open(&place.path).unwrap();
    fs::remove_dir(place.at("inbox")).unwrap();
    fs::remove_file(place.at("clock.lock")).unwrap();
    set_mode(&place.path, 0o700);
    set_mode(&place.at("records"), 0o700);
    refusal(open(&place.path), "");
    assert!(!make(&place.path, &ours()).unwrap());
    open(&place.path).unwrap();
}

#[test]
fn a_directory_of_another_group_is_refused() {
    let place = shared();
    refusal(open_for(&place.path, "4000000123"), "not for 4000000123");
    // Who is not root cannot make it for a group of others at all.
    refusal(make(&place.path, &Group::of(ours().gid + 1)), "");
    for text in ["", "ops", "-1", "4294967295"] {
        fs::write(place.at(MARK), text).unwrap();
        refusal(open(&place.path), "does not say for which group");
    }
    fs::write(place.at(MARK), ours().gid.to_string()).unwrap();
    open(&place.path).unwrap();
    set_mode(&place.at(MARK), 0o660);
    refusal(open(&place.path), "");
}

/// Each is said with the mode that was found, and the command that is the hint mends it.
#[test]
fn odd_modes_are_refused_and_the_hint_mends_them() {
    let place = shared();
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
        set_mode(&place.at(name), odd);
        let hint = refusal(open(&place.path), &format!("has mode {odd:o}"));
        let (command, _) = hint.split_once(',').unwrap();
        let mended = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(mended.success(), "{command}");
        open(&place.path).unwrap();
    }
}

#[tokio::test]
async fn a_record_with_odd_rights_is_said() {
    let place = shared();
    let (store, key) = (LocalStore::of(place.store()), key("k"));
    let record = place.at("records/k.rec");
    fs::write(&record, "").unwrap();
    set_mode(&record, 0o666);
    let hint = refusal(Records::look(&store, &key).await, "k.rec has mode 666");
    // Any member could put a link in its place before somebody runs a command on it.
    let mends = hint.contains("its owner, can give it the mode 660");
    assert!(mends && !hint.contains("chmod"), "{hint}");
    fs::remove_file(&record).unwrap();
    symlink("/etc/hostname", &record).unwrap();
    let error = Records::look(&store, &key).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    fs::remove_file(&record).unwrap();
    assert!(Records::look(&store, &key).await.is_ok());
}

#[test]
fn a_part_that_is_missing_or_a_link_is_refused() {
    let place = shared();
    let (part, away) = (place.at("records"), place.above.path().join("away"));
    fs::rename(&part, &away).unwrap();
    refusal(open(&place.path), "records is missing");
    symlink(&away, &part).unwrap();
    refusal(open(&place.path), "records is no directory");
    // The directory itself may be found through a link of ours, and is not made through one.
    let link = place.above.path().join("link");
    symlink(&place.path, &link).unwrap();
    refusal(make(&link, &ours()), "is not a directory");
}

/// Others find another one in its place, and are granted what is held in this one.
#[tokio::test]
async fn nobody_goes_on_in_a_part_that_was_moved_away() {
    for part in ["records", "sessions"] {
        let (place, key) = (shared(), key("k"));
        let store = place.store();
        take(&store, &key, &claim(1));
        fs::rename(place.at(part), place.above.path().join("away")).unwrap();
        assert!(!make(&place.path, &ours()).unwrap(), "made again");
        let taken = step::take(&store, &[&key], &[claim(2)], false).await;
        refusal(taken, "was removed while in use");
        assert!(store.directory.has_gone());
        assert!(!place.store().directory.has_gone());
    }
}

/// Nobody is granted anything in another one. (Root may look into it whatever its mode is.)
#[tokio::test]
async fn who_is_in_goes_on_where_nobody_is_let_in_any_more() {
    let (place, key) = (shared(), key("k"));
    let store = place.store();
    take(&store, &key, &claim(1));
    set_mode(&place.path, 0);
    let taken = step::take(&store, &[&key], &[claim(2)], false).await;
    let has_gone = store.directory.has_gone();
    set_mode(&place.path, OF_TOP);
    assert!(taken.unwrap().is_ok() && !has_gone);
}

#[test]
fn who_could_replace_the_directory_is_told() {
    let place = shared();
    let inner = place.above.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let moved = inner.join("d");
    fs::rename(&place.path, &moved).unwrap();
    for odd in [0o775, 0o777] {
        set_mode(&inner, odd);
        let replaced = "could replace the directory";
        refusal(make(&inner.join("new"), &ours()), replaced);
        let hint = refusal(open(&moved), replaced);
        assert!(hint.contains("below directories of root"), "{hint}");
    }
    for right in [0o1777, 0o755] {
        set_mode(&inner, right);
        assert!(open(&moved).is_ok(), "{right:o}");
    }
}

/// Its maker was killed before it had its name.
#[test]
fn what_was_not_finished_is_passed_over_and_removed_when_it_is_old() {
    let place = shared();
    let half = place.at("records/.new-0123456789abcdef");
    fs::write(&half, "").unwrap();
    let directory = open(&place.path).unwrap();
    assert_eq!(directory.names(RECORDS, "", 10).unwrap(), [""; 0]);
    let sweep = || drop(Inner::open(&options(&place.path, Duration::ZERO)).unwrap());
    sweep();
    assert!(half.exists(), "somebody may be about to finish it");
    let file = fs::File::options().write(true).open(&half).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    sweep();
    assert!(!half.exists());
}
