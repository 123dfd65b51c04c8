//! Who lives: a file that its client keeps locked.
//!
//! The kernel lets go of the lock with the last descriptor, however the client
//! ended, and a child that inherited the descriptor goes on living for it. A
//! process id could be somebody else's by the time it is looked at.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use leasehold_core::Inbox;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, retry_on_intr};

use super::directory::{Directory, INBOXES, Locked, SESSIONS};
use super::file;
use super::name::file_name;
use crate::error::{ErrorKind, StoreError};

/// The life of this client.
#[derive(Debug)]
pub(super) struct Session {
    directory: Arc<Directory>,
    inbox: Inbox,
    /// Locked. Taken out only to be closed before the others look.
    file: Option<OwnedFd>,
}

impl Session {
    pub(super) fn open(directory: Arc<Directory>, inbox: Inbox) -> Result<Self, StoreError> {
        let name = path(&inbox);
        let failed = |errno| directory.failed("write to", errno);
        let file = loop {
            let file = directory
                .file(&name, OFlags::RDWR | OFlags::CREATE)
                .map_err(failed)?;
            // Others look at a lock for a moment only, so this does not wait long.
            retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).map_err(failed)?;
            // Whoever sweeps may have come between, and have taken it for dead.
            if file::stands_at(&file, &directory, &name).map_err(failed)? {
                break file;
            }
        };
        let session = Self {
            directory,
            inbox,
            file: Some(file),
        };
        if is_dead(&session.directory, &session.inbox) {
            return Err(StoreError::new(
                ErrorKind::Refused,
                format!(
                    "the file system of {} keeps no locks",
                    session.directory.path().display()
                ),
            )
            .with_hint("name a directory on a local disk: local:/some/dir"));
        }
        Ok(session)
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// What a child must inherit to live for this client.
    pub(super) fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Whether that client is dead for certain.
    pub(super) fn sees_dead(&self, inbox: &Inbox) -> bool {
        *inbox != self.inbox && is_dead(&self.directory, inbox)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.file = None;
        // Removes the file, unless a child still lives for this client.
        is_dead(&self.directory, &self.inbox);
    }
}

/// Whether the client of that inbox is dead for certain, and if so, removes
/// what is left of it. Any doubt counts as life: then its lease ends the claim.
pub(super) fn is_dead(directory: &Directory, inbox: &Inbox) -> bool {
    is_dead_file(directory, &file_name(inbox.as_str()))
}

/// [`is_dead`] by the name of the file.
pub(super) fn is_dead_file(directory: &Directory, name: &str) -> bool {
    let path = format!("{SESSIONS}/{name}");
    let file = match directory.file(&path, OFlags::RDWR) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            file::remove(directory, &socket(name));
            return true;
        }
        Err(_) => return false,
    };
    // Shared, so that two who look at once do not take each other for the client.
    if retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockShared)).is_err() {
        return false;
    }
    // Only who has the standing file to himself may remove it.
    if let Ok(Some(locked)) = Locked::now(file)
        && locked.stands_at(directory, &path) == Ok(true)
    {
        file::remove(directory, &socket(name));
        file::remove(directory, &path);
    }
    true
}

fn path(inbox: &Inbox) -> String {
    format!("{SESSIONS}/{}", file_name(inbox.as_str()))
}

/// The socket of the client with that session file.
pub(super) fn socket(name: &str) -> String {
    format!("{INBOXES}/{name}.sock")
}
