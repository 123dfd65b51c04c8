//! Going on after a crash: what a lock is known by, in a file that tells who is gone.
//!
//! The file is open in us and in all that our command starts, under a lock of the system
//! (`flock`) that ends with the last of them. So a lock that is free proves that nobody is left
//! who could rely on the lease that the file describes.

mod file;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Any, Client, LeaseParts, MultiLease};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::Printer;
use crate::sys;
use crate::user_file::UserFile;

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
        let directory = file::directory()?;
        let path = directory.join(file::name_of(name, store, request.key()));
        let failed = |error: io::Error| file::refused(&path, &error);
        file::prepare(&directory)?;
        let mut before = file::open(&path).map_err(failed)?;
        let patient_until = Instant::now() + DYING;
        while before.is_none() && Instant::now() < patient_until {
            sleep(AGAIN).await;
            before = file::open(&path).map_err(failed)?;
        }
        if let Some(before) = &before {
            file::private(&before.metadata, &path)?;
            let state = before.bytes().map_err(|error| error.to_string());
            match state.and_then(|state| parse(&state, name, store, request.key())) {
                Ok(state) => request.recover = state.map(|state| state.parts.into_any()),
                Err(why) => printer.warn(format!("{} is ignored: {why}", path.display())),
            }
        } else {
            printer.warn(format!(
                "the previous {name:?}, or a child of it, is still running; waiting for {}",
                request.key()
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
        match written.and_then(|state| file::replace(&self.path, &state)) {
            Ok(file) => Some(file),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

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
