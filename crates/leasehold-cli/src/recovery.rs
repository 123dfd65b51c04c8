//! Going on after a crash: what a lock is known by, in a file that tells who is gone.
//!
//! The file is open in us and in all that our command starts, under a lock of the system
//! (`flock`) that ends with the last of them. So a lock that is free proves that nobody is left
//! who could rely on the lease that the file describes.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use leasehold::{Client, LeaseParts};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::held::Held;
use crate::output::Printer;
use crate::wanted::Wanted;
use crate::{exit, sys};

/// The longest name, in bytes: it becomes a part of a file's.
const LONGEST_NAME: usize = 64;
/// More than any state has.
const LONGEST_STATE: u64 = 64 * 1024;

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    name: String,
    store: String,
    host: String,
    /// Which start of the machine.
    boot: String,
    /// Holds the secret of the claim.
    parts: LeaseParts,
}

/// What is known before the lock is asked for.
#[derive(Debug)]
pub(crate) struct Recovery {
    name: String,
    store: String,
    path: PathBuf,
    /// While we have it no other process of that name recovers the same lease.
    _before: Option<File>,
}

/// What is kept while the command runs.
#[derive(Debug)]
pub(crate) struct Kept {
    file: File,
}

impl Recovery {
    /// Has `wanted` go on with the lease of the process before, if that is provably gone.
    pub(crate) fn begin(
        name: &str,
        client: &Client,
        wanted: &mut Wanted,
        printer: &Printer,
    ) -> Result<Self, Failure> {
        check(name)?;
        let store = client.store_url();
        let directory = directory()?;
        let path = directory.join(file_name(name, store, wanted.key()));
        let failed = |error: io::Error| refused(&path, &error);
        prepare(&directory)?;
        let before = match open(&path).map_err(failed)? {
            Opened::Ours(mut file) => {
                permitted(&file, &path)?;
                match read(&mut file, name, store, wanted.key()) {
                    Ok(state) => wanted.recover = state.map(|state| state.parts),
                    Err(why) => printer.warn(format!("{} is ignored: {why}", path.display())),
                }
                Some(file)
            }
            Opened::Busy => {
                printer.warn(format!(
                    "the process before, {name}, or what it has started still runs: \
                     waiting in line for {}",
                    wanted.key()
                ));
                None
            }
        };
        Ok(Self {
            name: name.to_owned(),
            store: store.to_owned(),
            path,
            _before: before,
        })
    }

    /// Writes down what is held now. Without the file all works but the recovery.
    pub(crate) fn keep(self, held: &Held, printer: &Printer) -> Option<Kept> {
        let state = State {
            name: self.name,
            store: self.store,
            host: sys::host(),
            boot: sys::boot(),
            parts: held.parts()?,
        };
        match replace(&self.path, &state) {
            Ok(file) => Some(Kept { file }),
            Err(error) => {
                printer.warn(format!(
                    "cannot write {}, so a restart after a crash will have to wait: {error}",
                    self.path.display()
                ));
                None
            }
        }
    }
}

impl Kept {
    /// What the command is to inherit.
    pub(crate) fn lifeline(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The lock was given back: there is nothing to recover.
    pub(crate) fn clear(self, printer: &Printer) {
        // A claim that is gone is not found: a file that cannot be emptied does no harm.
        if let Err(error) = self.file.set_len(0) {
            printer.warn(format!("cannot empty the state file: {error}"));
        }
    }
}

fn check(name: &str) -> Result<(), Failure> {
    let odd = |c: char| c == '/' || c.is_control();
    if name.len() <= LONGEST_NAME && !name.starts_with('.') && !name.contains(odd) {
        return Ok(());
    }
    Err(
        Failure::usage("--recover-as needs a name that can be a file's").hint(format!(
            "choose at most {LONGEST_NAME} bytes without slashes, not beginning with a dot"
        )),
    )
}

/// Where the files are.
fn directory() -> Result<PathBuf, Failure> {
    let from = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let base = match from("XDG_STATE_HOME") {
        Some(base) => base,
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib"),
        None => from("HOME")
            .map(|home| home.join(".local/state"))
            .ok_or_else(|| {
                Failure::usage("--recover-as finds no place for its file")
                    .hint("set XDG_STATE_HOME or HOME to a directory")
            })?,
    };
    Ok(base.join("leasehold"))
}

fn prepare(directory: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    let seen = made.and_then(|()| fs::symlink_metadata(directory));
    private(
        &seen.map_err(|error| refused(directory, &error))?,
        directory,
    )
}

fn permitted(file: &File, path: &Path) -> Result<(), Failure> {
    let seen = file.metadata().map_err(|error| refused(path, &error))?;
    private(&seen, path)
}

/// Refuses what others can read or write: whoever knows the claim can take the lock.
fn private(seen: &fs::Metadata, path: &Path) -> Result<(), Failure> {
    let ours = seen.uid() == rustix::process::geteuid().as_raw() && !seen.is_symlink();
    if ours && seen.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Failure::new(
        exit::SYSTEM,
        format!("{} is not this user's alone", path.display()),
    )
    .hint("it holds secrets: take it from others with chown and chmod go="))
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        exit::SYSTEM,
        format!("cannot use {} for --recover-as: {error}", path.display()),
    )
    .hint("set XDG_STATE_HOME to a directory that can be written to")
}

/// A name for one file of each name, store and key.
fn file_name(name: &str, store: &str, key: &str) -> String {
    // FNV-1a, which stays the same in all versions. What collides is seen from the content.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in [name, "\0", store, "\0", key]
        .iter()
        .flat_map(|part| part.bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{name}.{hash:016x}.json")
}

enum Opened {
    /// The lock on it is ours: all who had it are gone.
    Ours(File),
    Busy,
}

fn open(path: &Path) -> io::Result<Opened> {
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Opened::Busy),
            Err(error) => return Err(error.into()),
        }
        // It may have been replaced before it was locked.
        let (opened, named) = (file.metadata()?, fs::symlink_metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
            return Ok(Opened::Ours(file));
        }
    }
}

/// The state of the process before, which is gone; or why it cannot be gone on with.
fn read(file: &mut File, name: &str, store: &str, key: &str) -> Result<Option<State>, String> {
    let mut text = Vec::new();
    let read = file.take(LONGEST_STATE).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Ok(None);
    }
    let state: State =
        serde_json::from_slice(&text).map_err(|_| "it is damaged, or not leasehold's")?;
    if (&*state.name, &*state.store, state.parts.key().as_str()) != (name, store, key) {
        return Err("it is of another lock".to_owned());
    }
    // The system's lock on the file sees this machine only, where it may be shared with others.
    // What ran before this machine was started is gone, too.
    if state.boot != sys::boot() && state.host != sys::host() {
        return Err(format!("it was written on another machine, {}", state.host));
    }
    Ok(Some(state))
}

/// Puts a new file in the place of the old one, complete and locked before anybody can open it.
fn replace(path: &Path, state: &State) -> io::Result<File> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR)?);
    let written = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(io::Error::from)
        .and_then(|()| file.write_all(&serde_json::to_vec(state)?))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // What is left of it helps nobody.
        let _ = fs::remove_file(&new);
    }
    written.map(|()| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_store_and_key_has_its_file() {
        let name = file_name("billing", "local:", "k");
        assert_eq!(name, file_name("billing", "local:", "k"));
        assert!(name.starts_with("billing."), "{name}");
        assert_ne!(name, file_name("billing", "local:", "k2"));
        assert_ne!(name, file_name("billing", "local:k", ""));
        assert_ne!(name, file_name("mailing", "local:", "k"));
    }

    #[test]
    fn names_are_those_of_files() {
        for good in ["billing", "billing@1", "ä b"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["a/b", ".hidden", "a\nb", &"n".repeat(65)] {
            assert_eq!(check(bad).unwrap_err().status, exit::USAGE, "{bad}");
        }
    }
}
