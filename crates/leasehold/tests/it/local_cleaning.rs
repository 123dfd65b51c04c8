//! Programs that remove old files, and honour the locks of directories: systemd-tmpfiles.
#![cfg(all(target_os = "linux", feature = "local"))]

use crate::local_support::*;

/// Removes what is in a directory, as systemd-tmpfiles does with what is old: not what is below a
/// directory on which it has no exclusive lock.
fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if !entry.file_type().unwrap().is_dir() {
            fs::remove_file(path).unwrap();
            continue;
        }
        let locked = fs::File::open(&path).unwrap();
        if locked.try_lock().is_ok() {
            clean(&path);
            fs::remove_dir(path).unwrap();
        }
    }
}

/// The program itself, where it is: to it all files are old.
fn clean_by_systemd(directory: &Path) {
    let place = TempDir::new().unwrap();
    let (rules, all) = (place.path().join("rules.conf"), directory.display());
    fs::write(&rules, format!("d {all} - - - 0\n")).unwrap();
    let mut cleaner = Command::new("systemd-tmpfiles");
    match cleaner.arg("--clean").arg(&rules).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => eprintln!("left out: there is no systemd-tmpfiles here"),
    }
}

const CLEANERS: [fn(&Path); 2] = [clean, clean_by_systemd];

/// A second holder was granted: the session files of all clients had gone.
#[tokio::test]
async fn what_clients_use_is_not_removed_as_old() {
    for clean_up in CLEANERS {
        let place = TempDir::new().unwrap();
        let directory = place.path().join("locks");
        let url = format!("local:{}?audit=1000", directory.display());
        let (client, lease) = held(&url).await;
        let before = names(&directory);
        // The rule may be for the directory, or for one above it.
        for of in [place.path(), &directory] {
            clean_up(of);
            let other = connect(&url).await.unwrap();
            assert!(try_lock(&other, "k").await.is_none(), "the first lives");
            lease.renew().await.unwrap();
        }
        let left = names(&directory);
        let parts = |name: &&String| name.contains('/');
        assert!(before.iter().filter(parts).all(|name| left.contains(name)));
        let _ = lease.release().await.unwrap();
        drop(client);
    }
}

/// Nobody uses it, so that it is cleaned: what the test before sees is not by chance.
#[tokio::test]
async fn what_nobody_uses_is() {
    let place = TempDir::new().unwrap();
    let directory = place.path().join("locks");
    let (client, lease) = held(&format!("local:{}", directory.display())).await;
    let _ = lease.release().await.unwrap();
    drop(client);
    // A program that another test was just starting may have the descriptors for a moment.
    while directory.exists() {
        clean(place.path());
        yield_now().await;
    }
}

/// The names of all files in it and its parts.
fn names(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for part in ["", "records/", "sessions/", "inbox/", "audit/"] {
        let Ok(entries) = fs::read_dir(directory.join(part)) else {
            continue;
        };
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        names.extend(entries.map(|entry| format!("{part}{}", name(entry.unwrap()))));
    }
    names
}
