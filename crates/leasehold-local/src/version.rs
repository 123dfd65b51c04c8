//! Takes over a directory from earlier versions, and keeps it from them.
//!
//! They have their records under `keys/`, and see none of these: two versions would grant a key
//! twice. So a directory in which one of their clients lives is refused; else their records are put
//! aside, and a file named `keys` is in the way of those that come later.

use leasehold_store::StoreError;
use rustix::fs::{AtFlags, FileType, OFlags, renameat, statat};
use rustix::io::Errno;

use super::directory::{Directory, SESSIONS, refused};
use super::session::is_dead_file;

/// Where their records are, and where they are put.
const RECORDS: &str = "keys";
const ASIDE: &str = "keys.earlier";

/// How often it begins again, where other clients do the same at that time.
const TRIES: usize = 8;

pub(super) fn take_over(directory: &Directory) -> Result<(), StoreError> {
    let shown = directory.path().join(RECORDS);
    let shown = shown.display();
    for _ in 0..TRIES {
        match directory.file(RECORDS, OFlags::WRONLY | OFlags::CREATE) {
            Ok(_) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(directory.failed("write to", errno)),
        }
        // In this order: a client of this version lives only after theirs was put aside.
        if one_lives(directory) && is_theirs(directory) {
            return Err(refused(
                format!("a client of an earlier version of leasehold uses {shown}"),
                "wait until it has ended, or name another directory with local:/some/dir",
            ));
        }
        if renameat(directory, RECORDS, directory, ASIDE).is_ok() {
            tracing::warn!(
                "the records of an earlier version in {shown} were put aside, to {ASIDE} beside \
                 it: minimum holds among them are over"
            );
        }
    }
    Err(refused(
        format!("{shown} is of an earlier version of leasehold and cannot be put aside"),
        format!("remove it and {ASIDE} beside it, or name another directory with local:/some/dir"),
    ))
}

fn one_lives(directory: &Directory) -> bool {
    let sessions = directory.names(SESSIONS, &[""], usize::MAX);
    let mut names = sessions.unwrap_or_default().into_iter();
    names.any(|name| !is_dead_file(directory, &name))
}

fn is_theirs(directory: &Directory) -> bool {
    let stat = statat(directory, RECORDS, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
