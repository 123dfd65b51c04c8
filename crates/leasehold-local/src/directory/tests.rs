//! The directory of one user: what is refused of it, and what is found in it from a time when
//! others could write to it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::process::Command;

use leasehold_store::ErrorKind;
use tempfile::TempDir;

use super::super::Inner;
use super::*;

/// Some user who is not us.
const OTHER: u32 = 4_242;

fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    (place, path)
}

/// A place with a store in it.
fn used() -> (TempDir, PathBuf) {
    let (place, path) = place();
    drop(open(&path).unwrap());
    (place, path)
}

/// As a client opens it.
fn open(path: &Path) -> Result<std::sync::Arc<Inner>, StoreError> {
    Inner::open(path.to_owned(), Duration::from_secs(60), None)
}

#[track_caller]
fn refusal(path: &Path) -> (String, String) {
    let error = open(path).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let hint = error.hint().unwrap().to_owned();
    (error.to_string(), hint)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whoever uses it with others must be able to go on.
#[test]
fn no_hint_takes_a_directory_away_from_others() {
    let (_place, path) = place();
    fs::create_dir(&path).unwrap();
    let cases = |modes: &[u32], chmod: bool| {
        for mode in modes {
            set_mode(&path, *mode);
            let (message, hint) = refusal(&path);
            assert!(message.contains("other users can write"), "{message}");
            let expected = match chmod {
                true => format!("chmod go-w {}, or", path.display()),
                false => below(&path),
            };
            assert!(hint.starts_with(&expected), "{mode:o}: {hint}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, *mode);
        }
    };
    cases(&[0o1777, 0o1770], false);
    cases(&[0o777, 0o2775], true);
    fs::write(path.join("report of a colleague"), "").unwrap();
    cases(&[0o1777, 0o777, 0o2775], false);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing was made");
}

#[test]
fn a_directory_of_the_system_is_left_as_it_is() {
    for path in ["/tmp", "/usr", "/etc", "/"].map(Path::new) {
        let open = fs::File::open(path).unwrap().into();
        let stat = fstat(&open).unwrap();
        let error = check_owner(path, &open, &stat).unwrap_err();
        assert!(
            error
                .hint()
                .unwrap()
                .starts_with("name a directory of your own below it")
        );
    }
}

#[test]
fn directories_on_the_way_are_made_for_the_default_only() {
    let place = tempfile::tempdir().unwrap();
    let (typo, path) = (
        place.path().join("it's a typo"),
        place.path().join("it's a typo/d"),
    );
    let (message, hint) = refusal(&path);
    assert!(
        message.contains(&format!("no directory {}", typo.display())),
        "{message}"
    );
    assert!(!typo.exists(), "nothing was made");
    // The hint makes what is missing, and no more.
    let (_, make) = hint.split_once(": ").unwrap();
    assert!(
        Command::new("sh")
            .args(["-c", make])
            .status()
            .unwrap()
            .success()
    );
    open(&path).unwrap();
    let by_default = place.path().join("home/.local/state/leasehold");
    Directory::open_for(by_default, None, Makes::All).unwrap();
}

/// A pipe is not waited for, a link not followed, and what another user owns not used.
#[test]
fn what_others_have_put_there_is_refused() {
    type Change = fn(&Path);
    let odd: [(&str, Change); 4] = [
        ("pipe", |path| {
            fs::remove_file(path)
                .or_else(|_| fs::remove_dir_all(path))
                .unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("link", |path| {
            let away = path.with_extension("away");
            fs::rename(path, &away).unwrap();
            symlink(&away, path).unwrap();
        }),
        ("other kind", |path| match path.is_dir() {
            true => {
                fs::remove_dir_all(path).unwrap();
                fs::write(path, "").unwrap();
            }
            false => {
                fs::remove_file(path).unwrap();
                symlink("/dev/zero", path).unwrap();
            }
        }),
        ("of another user", |path| {
            drop(lchown(path, Some(OTHER), None));
        }),
    ];
    for (kind, make) in odd {
        for name in ["clock", "keys", "records", "sessions", "inbox"] {
            let (_place, path) = used();
            make(&path.join(name));
            let owner = fs::symlink_metadata(path.join(name)).unwrap().uid();
            if kind == "of another user" && owner != OTHER {
                // Only root can give files away.
                continue;
            }
            let (message, _) = refusal(&path);
            let shown = path.join(name);
            assert!(
                message.contains(shown.to_str().unwrap()),
                "{kind}: {message}"
            );
        }
    }
}

#[test]
fn parts_that_others_can_write_to_are_refused() {
    let (_place, path) = used();
    for (mode, refused) in [(0o770, true), (0o1777, true), (0o755, false)] {
        set_mode(&path.join("sessions"), mode);
        assert_eq!(open(&path).is_err(), refused, "{mode:o}");
    }
}
