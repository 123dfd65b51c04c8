//! The directory of one user: what is refused of it, and what is found in it from a time when
//! others could write to it.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::process::Command;

use super::*;
use crate::errors::below;
use crate::tests::{Place, mode, open, refusal, set_mode};

/// Some user who is not us.
const OTHER: u32 = 4_242;

/// A place with a store in it.
fn used() -> Place {
    let place = Place::new();
    drop(place.store());
    place
}

/// Whoever uses it with others must be able to go on.
#[test]
fn no_hint_takes_a_directory_away_from_others() {
    let place = Place::new();
    fs::create_dir(&place.path).unwrap();
    let cases = |modes: &[u32], chmod: bool| {
        for odd in modes {
            set_mode(&place.path, *odd);
            let hint = refusal(open(&place.path), "other users can write");
            let expected = match chmod {
                true => format!("chmod go-w {}, or", place.path.display()),
                false => below(&place.path),
            };
            assert!(hint.starts_with(&expected), "{odd:o}: {hint}");
            assert_eq!(mode(&place.path), *odd);
        }
    };
    cases(&[0o1777, 0o1770], false);
    cases(&[0o777, 0o770, 0o707, 0o2775], true);
    fs::write(place.at("report of a colleague"), "").unwrap();
    cases(&[0o1777, 0o777, 0o2775], false);
    assert_eq!(place.names("").len(), 1, "nothing was made");
}

#[test]
fn a_directory_of_the_system_is_left_as_it_is() {
    for path in ["/tmp", "/usr", "/etc", "/"].map(Path::new) {
        let open = fs::File::open(path).unwrap().into();
        let checked = user_dir::check_owner(path, &open, &fstat(&open).unwrap());
        let hint = refusal(checked, "");
        let below = hint.starts_with("name a directory of your own below it");
        assert!(below, "{hint}");
    }
}

#[test]
fn directories_on_the_way_are_made_for_the_default_only() {
    let place = Place::new();
    let typo = place.above.path().join("it's a typo");
    let path = typo.join("d");
    let hint = refusal(open(&path), &format!("no directory {}", typo.display()));
    assert!(!typo.exists(), "nothing was made");
    // The hint makes what is missing, and no more.
    let (_, make) = hint.split_once(": ").unwrap();
    let made = Command::new("sh").args(["-c", make]).status().unwrap();
    assert!(made.success());
    open(&path).unwrap();
    let by_default = place.above.path().join("home/.local/state/leasehold");
    Directory::open_for(by_default, None, Makes::All).unwrap();
}

/// A pipe is not waited for, a link not followed, and what another user owns not used.
#[test]
fn what_others_have_put_there_is_refused() {
    type Change = fn(&Path);
    let remove = |path: &Path| {
        let removed = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        removed.unwrap();
    };
    let odd: [(&str, Change); 4] = [
        ("pipe", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("link", |path| {
            fs::rename(path.with_extension("away"), path.with_extension("gone")).unwrap();
            symlink(path.with_extension("gone"), path).unwrap();
        }),
        ("other kind", |path| {
            match path.with_extension("away").is_dir() {
                true => fs::write(path, "").unwrap(),
                false => symlink("/dev/zero", path).unwrap(),
            }
        }),
        ("of another user", |path| {
            fs::rename(path.with_extension("away"), path).unwrap();
            drop(lchown(path, Some(OTHER), None));
        }),
    ];
    for (kind, make) in odd {
        for name in ["clock", "keys", "records", "sessions", "inbox"] {
            let place = used();
            let path = place.at(name);
            let away = path.with_extension("away");
            fs::rename(&path, &away).unwrap();
            make(&path);
            if away.exists() {
                remove(&away);
            }
            let owner = fs::symlink_metadata(&path).unwrap().uid();
            // Only root can give files away.
            if kind != "of another user" || owner == OTHER {
                refusal(open(&place.path), path.to_str().unwrap());
            }
        }
    }
}

#[test]
fn parts_that_others_can_write_to_are_refused() {
    let place = used();
    for (mode, refused) in [(0o770, true), (0o1777, true), (0o755, false)] {
        set_mode(&place.at("sessions"), mode);
        assert_eq!(open(&place.path).is_err(), refused, "{mode:o}");
    }
}

/// As where the directory was closed to this user meanwhile: nothing is to be removed.
#[test]
fn what_cannot_be_looked_at_is_not_said_to_be_of_others() {
    let place = used();
    let directory = place.directory();
    let error = directory.failed_at("records/k.rec", "write to", Errno::ACCESS);
    assert!(error.to_string().starts_with("cannot write to"), "{error}");
}

#[test]
fn what_only_this_user_can_change_is_not_said_to_be_open_to_others() {
    let place = used();
    let clock = place.at("clock");
    fs::remove_file(&clock).unwrap();
    fs::create_dir(&clock).unwrap();
    set_mode(&clock, 0o755);
    let hint = refusal(open(&place.path), "clock is not what leasehold has made");
    assert!(hint.contains("look at clock there and remove it"), "{hint}");
}
