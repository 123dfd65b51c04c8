//! Takes over a directory from earlier versions, and keeps it from them.
//!
//! They have their records under `keys/`, and see none of these: two versions would grant a key
//! twice. So a directory in which one of their clients lives is refused; else their records are put
//! aside, and a file named `keys` is in the way of those that come later.

use leasehold_store::StoreError;
use rustix::fs::{OFlags, renameat};
use rustix::io::Errno;

use super::clock;
use super::directory::{Directory, Locked, SESSIONS, refused};
use super::session::is_dead_file;

/// Where their records are, and where they are put.
const RECORDS: &str = "keys";
const ASIDE: &str = "keys.earlier";

pub(super) fn take_over(directory: &Directory) -> Result<(), StoreError> {
    let failed = |errno| directory.failed("write to", errno);
    if is_ours(directory)? {
        return Ok(());
    }
    // One at a time: two who look at a dead client at once may each take it for a living one.
    let _alone = Locked::wait_at(directory, clock::LOCK).map_err(failed)?;
    if is_ours(directory)? {
        return Ok(());
    }
    let shown = directory.path().join(RECORDS);
    let shown = shown.display();
    if one_lives(directory) {
        return Err(refused(
            format!("a client of an earlier version of leasehold uses {shown}"),
            "wait until it has ended, or name another directory with local:/some/dir",
        ));
    }
    renameat(directory, RECORDS, directory, ASIDE).map_err(|errno| {
        refused(
            format!("{shown} is of an earlier version of leasehold and cannot be put aside"),
            format!(
                "remove it, and {ASIDE} beside it; or name another directory with local:/some/dir"
            ),
        )
        .with_source(std::io::Error::from(errno))
    })?;
    tracing::warn!(
        "the records of an earlier version in {shown} were put aside, to {ASIDE} beside it: \
         minimum holds among them are over"
    );
    is_ours(directory).map(drop)
}

/// Puts the file in the way of earlier versions, unless a directory of theirs is there.
fn is_ours(directory: &Directory) -> Result<bool, StoreError> {
    match directory.file(RECORDS, OFlags::WRONLY | OFlags::CREATE) {
        Ok(_) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno) => Err(directory.failed("write to", errno)),
    }
}

/// Whether a client lives there. None of this version does, while theirs is a directory.
fn one_lives(directory: &Directory) -> bool {
    let sessions = directory.names(SESSIONS, "", usize::MAX);
    let mut names = sessions.unwrap_or_default().into_iter();
    names.any(|name| !is_dead_file(directory, &name))
}
