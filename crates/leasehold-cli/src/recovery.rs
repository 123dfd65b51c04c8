//! Going on after a crash: what a lock is known by, in a file that tells who is gone.
//!
//! The file is open in us and in all that our command starts, under a lock of the system
//! (`flock`) that ends with the last of them. So a lock that is free proves that nobody is left
//! who could rely on the lease that the file describes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Any, Client, LeaseParts, MultiLease};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::Printer;
use crate::sys;
use crate::user_file::{Draft, UserFile};

/// The longest name, in bytes: it becomes a part of a file's.
const LONGEST_NAME: usize = 64;

/// How long a process that was killed may take to be gone, with what dies with it: one that is
/// restarted at once does not mistake it for one that lives.
const DYING: Duration = Duration::from_millis(500);
/// How often it is looked at meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

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
    _before: Option<UserFile>,
}

impl Recovery {
    /// Has `request` go on with the lease of the process before, if that is provably gone.
    pub(crate) async fn begin(
        name: &str,
        client: &Client,
        request: &mut LockRequest,
        printer: &Printer,
    ) -> Result<Self, Failure> {
        check(name)?;
        if client.capabilities().exclusive_only {
            return Err(Failure::usage(
                "on this store a lease cannot be taken over, so --recover-as cannot work",
            )
            .hint("leave it out: after a crash the lock is free when its TTL is over"));
        }
        let store = client.store_url();
        let place = directory()?;
        let path = place.join(name_of(name, store, request.key()));
        let failed = |error: io::Error| refused(&path, &error);
        prepare(&place)?;
        let mut before = open(&path).map_err(failed)?;
        let patient_until = Instant::now() + DYING;
        while before.is_none() && Instant::now() < patient_until {
            sleep(AGAIN).await;
            before = open(&path).map_err(failed)?;
        }
        if let Some(before) = &before {
            private(&before.metadata, &path)?;
            let state = before.bytes().map_err(|error| error.to_string());
            match state.and_then(|state| parse(&state, name, store, request.key())) {
                Ok(state) => request.recover = state.map(|state| state.parts.into_any()),
                Err(why) => printer.warn(format!("{} is ignored: {why}", path.display())),
            }
        } else {
            printer.warn(format!(
                "the previous {name:?}, or a child of it, is still running: no lease is recovered"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            store: store.to_owned(),
            path,
            _before: before,
        })
    }

    /// Writes down what is held now, in a file that the command is to inherit. Without it all works
    /// but the recovery.
    pub(crate) fn keep(self, held: &MultiLease<Any>, printer: &Printer) -> Option<UserFile> {
        // Of an exclusive lease on one key.
        let [lease] = held.leases() else { return None };
        let parts = lease.parts().ok()?.downcast().ok()?;
        let state = State {
            name: self.name,
            store: self.store,
            host: sys::host(),
            boot: sys::boot(),
            parts,
        };
        let written = serde_json::to_vec(&state).map_err(io::Error::from);
        let written = written.and_then(|state| replace(&self.path, &state));
        let written = written.inspect_err(|error| {
            printer.warn(format!(
                "cannot write {}, so a restart after a crash will have to wait: {error}",
                self.path.display()
            ));
        });
        written.ok()
    }
}

/// The lock was given back: there is nothing to recover.
pub(crate) fn clear(kept: &UserFile, printer: &Printer) {
    // A claim that is gone is not found: a file that cannot be emptied does no harm.
    if let Err(error) = kept.file.set_len(0) {
        printer.warn(format!("cannot empty the state file: {error}"));
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

/// The state of the process before, which is gone; or why it cannot be gone on with.
fn parse(text: &[u8], name: &str, store: &str, key: &str) -> Result<Option<State>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let state: State =
        serde_json::from_slice(text).map_err(|_| "it is damaged, or not leasehold's")?;
    if (&*state.name, &*state.store, state.parts.key().as_str()) != (name, store, key) {
        return Err("it is of another lock".to_owned());
    }
    // The system's lock on the file sees this machine only, where it may be shared with others.
    // What ran before this machine was started is gone, too.
    let is_this_start = !state.boot.is_empty() && state.boot == sys::boot();
    if !is_this_start && state.host != sys::host() {
        return Err(format!("it was written on another machine, {}", state.host));
    }
    Ok(Some(state))
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

/// Makes the directory, and refuses one that others can look into.
fn prepare(directory: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    let seen = made.and_then(|()| fs::symlink_metadata(directory));
    let seen = seen.map_err(|error| refused(directory, &error))?;
    private(&seen, directory)
}

/// Refuses what others can read or write: whoever knows the claim can take the lock.
fn private(seen: &fs::Metadata, path: &Path) -> Result<(), Failure> {
    let ours = seen.uid() == rustix::process::geteuid().as_raw() && !seen.is_symlink();
    if ours && seen.mode() & 0o077 == 0 {
        return Ok(());
    }
    let message = format!("other users can access {}, or it is a link", path.display());
    // A group may share locks there: neither are its rights to be taken away, nor do its locks move.
    Err(Failure::system(message).hint(
        "it holds secrets: set XDG_STATE_HOME to a private directory; local: moves with it unless \
         you name its directory",
    ))
}

/// Why there can be no file.
fn refused(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot use {} for --recover-as: {error}", path.display());
    Failure::system(message).hint("set XDG_STATE_HOME to a directory that can be written to")
}

/// A name for one file of each name, store and key.
fn name_of(name: &str, store: &str, key: &str) -> String {
    // FNV-1a, which stays the same in all versions. What collides is seen from the content.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let parts = [name, "\0", store, "\0", key];
    for byte in parts.iter().flat_map(|part| part.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{name}.{hash:016x}.json")
}

/// Opens the file, made if need be, and locks it: then all who had it are gone. `None`: it is locked by
/// another.
fn open(path: &Path) -> io::Result<Option<UserFile>> {
    loop {
        let file = UserFile::open_or_make(path)?;
        if !file.try_lock()? {
            return Ok(None);
        }
        // It may have been replaced before it was locked.
        if file.is_there()? {
            return Ok(Some(file));
        }
    }
}

/// Puts a new file in the place of the old one, complete and locked before anybody can open it.
fn replace(path: &Path, content: &[u8]) -> io::Result<UserFile> {
    let new = Draft::new(path, 0o600, content)?;
    new.file.try_lock()?;
    new.replace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn each_name_store_and_key_has_its_file() {
        let name = name_of("billing", "local:", "k");
        assert_eq!(name, name_of("billing", "local:", "k"));
        assert!(name.starts_with("billing."), "{name}");
        assert_ne!(name, name_of("billing", "local:", "k2"));
        assert_ne!(name, name_of("billing", "local:k", ""));
        assert_ne!(name, name_of("mailing", "local:", "k"));
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

    /// What the state file of `name` for that store and key says.
    fn said(text: &[u8]) -> Result<Option<State>, String> {
        parse(text, "billing", "memory:", "k")
    }

    fn written(claim: &str) -> String {
        format!(
            r#"{{"name":"billing","store":"memory:","host":{:?},"boot":{:?},"parts":{{"key":"k",
            "claim":{claim:?},"version":0,"token":1,"mode":"Exclusive","handed_over":false}}}}"#,
            sys::host(),
            sys::boot()
        )
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = said(written("0123456789abcdef").as_bytes())
            .unwrap()
            .unwrap();
        assert_eq!(state.parts.claim().expose(), "0123456789abcdef");
        assert!(!format!("{state:?}").contains("0123456789abcdef"));
        assert!(said(b"").unwrap().is_none());
        assert!(said(written("\u{20ac}").as_bytes()).is_err());
    }

    proptest::proptest! {
        /// Torn, changed, or somebody else's: ignored with a reason, and gone on without.
        #[test]
        fn any_state_is_read_or_ignored(
            at in 0..200_usize,
            cut in 0..20_usize,
            put in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20),
        ) {
            let mut text = written("0123456789abcdef").into_bytes();
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, put);
            if let Err(why) = said(&text) {
                assert!(!why.contains("0123456789abcdef") && !why.contains('\n'), "{why}");
            }
        }
    }
}
