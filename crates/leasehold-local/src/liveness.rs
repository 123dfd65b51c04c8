//! Who lives: a file that its client keeps locked.
//!
//! The kernel lets go of the lock with the last descriptor, however the client
//! ended, and a child that was given the descriptor goes on living for it. Forked children
//! close it. A process id could be somebody else's by the time it is looked at.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use leasehold_core::Inbox;
use leasehold_store::StoreError;
use leasehold_store::fork::NotInherited;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};

use super::directory::{Directory, INBOXES, SESSIONS};
use super::machine::LOCKS;
use super::name::file_name;

/// Others look at a lock for a moment only, so this does not wait long.
const WAIT: FlockOperation = FlockOperation::LockExclusive;

/// The life of this client.
#[derive(Debug)]
pub(super) struct Session {
    directory: Arc<Directory>,
    inbox: Inbox,
    path: String,
    /// Taken out only to be closed before the others look.
    life: Option<Life>,
    renewing: Mutex<()>,
}

/// The locked file, and the one that took its place after somebody had removed
/// it. The first stays open: it may be lent.
#[derive(Debug)]
struct Life {
    not_inherited: NotInherited,
    file: OwnedFd,
    next: OnceLock<Box<Self>>,
}

impl Life {
    fn of(directory: &Directory, file: OwnedFd) -> Self {
        Self {
            not_inherited: NotInherited::new(file.as_fd(), directory.descriptor()),
            file,
            next: OnceLock::new(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |life| life.next.get().map(|next| &**next))
    }

    fn latest(&self) -> &Self {
        self.all().last().unwrap_or(self)
    }
}

impl Session {
    /// # Errors
    /// `Unavailable` if another process looks at its file just now, and this may not `wait`.
    pub(super) fn open(
        directory: Arc<Directory>,
        inbox: Inbox,
        wait: bool,
    ) -> Result<Self, StoreError> {
        let now = FlockOperation::NonBlockingLockExclusive;
        let lock = if wait { WAIT } else { now };
        let path = path(&file_name(inbox.as_str()));
        let file = directory.lock_file(&path, lock);
        let file = file.map_err(|errno| directory.failed("write to", errno))?;
        let session = Self {
            life: Some(Life::of(&directory, file)),
            directory,
            inbox,
            path,
            renewing: Mutex::default(),
        };
        match session.is_dead(&session.inbox) {
            true => Err(LOCKS.fails(session.directory.path(), "")),
            false => Ok(session),
        }
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// What a child must inherit to live for this client.
    pub(super) fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        let life = self.life.as_ref()?.latest();
        life.not_inherited.lend();
        Some(life.file.as_fd())
    }

    /// Whether that client is dead for certain.
    pub(super) fn sees_dead(&self, inbox: &Inbox) -> bool {
        *inbox != self.inbox && self.is_dead(inbox)
    }

    fn is_dead(&self, inbox: &Inbox) -> bool {
        is_dead_file(&self.directory, &file_name(inbox.as_str()))
    }

    /// Lives on after somebody has removed the file or moved it away, as programs do that tidy up:
    /// others take this client for dead without. Says whether it had to.
    ///
    /// # Errors
    /// If it cannot: what it is granted then is granted to others too.
    pub(super) fn go_on(&self) -> Result<bool, StoreError> {
        let removed = |life: &Life| self.directory.has(&life.file, &self.path) == Ok(false);
        let Some(life) = self.life.as_ref().filter(|life| removed(life.latest())) else {
            return Ok(false);
        };
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = life.latest();
        if !removed(latest) {
            return Ok(true);
        }
        self.directory.check_stands()?;
        // One that was put back is locked by this client itself: to wait for that lock would never end.
        let stands = |life: &&Life| self.directory.has(&life.file, &self.path) == Ok(true);
        let again = life.all().find(stands);
        let locked = match again {
            Some(again) => fcntl_dupfd_cloexec(&again.file, 3),
            None => {
                // The directory of these files may have been removed, too.
                self.directory.make_part(SESSIONS)?;
                self.directory.lock_file(&self.path, WAIT)
            }
        };
        let file = locked.map_err(|errno| self.directory.failed("write to", errno))?;
        let life = Box::new(Life::of(&self.directory, file));
        tracing::warn!(
            "the file of this client in {} was removed: its locks may be lost",
            self.directory.path().display()
        );
        Ok(latest.next.set(life).is_ok())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.life = None;
        // Removes the file, unless a child still lives for this client.
        self.is_dead(&self.inbox);
    }
}

/// Whether the client of that session file is dead for certain, and if so, removes
/// what is left of it. Any doubt counts as life: then its lease ends the claim.
pub(super) fn is_dead_file(directory: &Directory, name: &str) -> bool {
    let path = path(name);
    let file = match directory.file(&path, OFlags::RDWR) {
        Ok(file) => file,
        Err(Errno::NOENT) => {
            directory.remove(&socket(name));
            return true;
        }
        Err(_) => return false,
    };
    // Shared, so that two who look at once do not take each other for the client.
    if retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockShared)).is_err() {
        return false;
    }
    // Only who has the standing file to himself may remove it.
    if retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)).is_ok()
        && directory.has(&file, &path) == Ok(true)
    {
        directory.remove(&socket(name));
        directory.remove(&path);
    }
    true
}

/// Whether some client of that directory lives for certain.
pub(super) fn some_live(directory: &Directory) -> bool {
    let names = directory.names(SESSIONS, "", usize::MAX);
    let shared = FlockOperation::NonBlockingLockShared;
    let is_locked = |file| retry_on_intr(|| flock(&file, shared)) == Err(Errno::WOULDBLOCK);
    names.unwrap_or_default().iter().any(|name| {
        let file = directory.file(&path(name), OFlags::RDWR);
        file.is_ok_and(is_locked)
    })
}

fn path(name: &str) -> String {
    format!("{SESSIONS}/{name}")
}

/// The socket of the client with that session file.
pub(super) fn socket(name: &str) -> String {
    format!("{INBOXES}/{name}.sock")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use leasehold_core::{Claim, Command};
    use leasehold_store::ErrorKind;

    use super::*;
    use crate::Inner;
    use crate::tests::{Place, claim_for, key, take};

    #[test]
    fn a_client_does_not_open_at_once_while_another_looks_at_its_file() {
        let place = Place::new();
        let directory = place.directory();
        let inbox = Inbox::from_random(1);
        let looked_at = directory
            .lock_file(&path(&file_name(inbox.as_str())), WAIT)
            .unwrap();
        let open = || Session::open(directory.clone(), inbox.clone(), false);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Unavailable);
        drop(looked_at);
        open().unwrap();
    }

    /// How many wait after a claim of that client.
    fn waiting(store: &Arc<Inner>, number: u128) -> usize {
        let claim = Claim {
            inbox: Some(store.session.inbox().clone()),
            ..claim_for(number, Duration::from_secs(60))
        };
        let queue = take(store, &key("k"), &Command::Claim(claim));
        queue.look(store.clock.now()).waiters.len()
    }

    /// As by who removes what is old, and the directories that are empty then.
    #[test]
    fn a_client_whose_file_was_removed_with_its_directory_lives_on() {
        let place = Place::new();
        let (a, b) = (place.store(), place.store());
        fs::remove_dir_all(place.at("sessions")).unwrap();
        assert_eq!(waiting(&a, 1), 0);
        assert_eq!(waiting(&b, 2), 1, "the first lives");
        assert_eq!(waiting(&a, 3), 2, "and so does the second");
    }

    /// As by who puts all that is in the directory elsewhere.
    #[test]
    fn a_client_whose_file_was_moved_away_lives_on() {
        let place = Place::new();
        let (a, b) = (place.store(), place.store());
        fs::rename(place.at("sessions"), place.at("away")).unwrap();
        fs::create_dir(place.at("sessions")).unwrap();
        assert_eq!(waiting(&a, 1), 0);
        assert_eq!(waiting(&b, 2), 1, "the first lives");
        fs::remove_dir_all(place.at("sessions")).unwrap();
        fs::rename(place.at("away"), place.at("sessions")).unwrap();
        assert_eq!(waiting(&a, 3), 2, "what was put back is its own");
        assert_eq!(waiting(&b, 4), 3, "the first lives still");
    }
}
