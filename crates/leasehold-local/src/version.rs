//! Takes over a directory from earlier versions, and keeps it from them.
//!
//! They have their records under `keys/`, and see none of these: two versions would grant a key
//! twice. So a directory in which one of their clients lives is refused; else their records are put
//! aside, and a file named `keys` is in the way of those that come later.

use leasehold_store::StoreError;
use rustix::fs::{OFlags, renameat};
use rustix::io::Errno;

use super::directory::{Directory, SESSIONS, refused};
use super::session::is_dead_file;

/// Where their records are, and where they are put.
const RECORDS: &str = "keys";
const ASIDE: &str = "keys.earlier";

/// How often it begins again, where clients of an earlier version come meanwhile.
const TRIES: usize = 3;

pub(super) fn take_over(directory: &Directory) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        match directory.file(RECORDS, OFlags::WRONLY | OFlags::CREATE) {
            Ok(_) => return Ok(()),
            Err(Errno::ISDIR) if one_lives(directory) => break,
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(directory.failed("write to", errno)),
        }
        if renameat(directory, RECORDS, directory, ASIDE).is_err() {
            break;
        }
        let (shown, aside) = (directory.path().display(), ASIDE);
        tracing::warn!(
            "the records of an earlier version in {shown} were put aside, to {aside}: \
             minimum holds among them are over"
        );
    }
    let shown = directory.path().join(RECORDS);
    let shown = shown.display();
    Err(refused(
        format!("a client of an earlier version of leasehold uses {shown}"),
        format!(
            "wait until it has ended, then remove {shown}; or name another directory with local:/some/dir"
        ),
    ))
}

/// Whether a client lives there. None of this version does, while theirs is a directory.
fn one_lives(directory: &Directory) -> bool {
    let sessions = directory.names(SESSIONS, &[""], usize::MAX);
    let mut names = sessions.unwrap_or_default().into_iter();
    names.any(|name| !is_dead_file(directory, &name))
}
