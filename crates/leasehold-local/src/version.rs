//! Takes over what earlier versions have left, and keeps versions apart.
//!
//! Each record says its format. A client refuses records of a later one. Those of an earlier one are
//! void once no client of an earlier version lives: each client writes the format of its records into
//! its session file, which was empty before there were such marks.
//!
//! The first versions have their records under `keys/`, and see none of those here: two versions
//! would grant a key twice. So a directory in which one of their clients lives is refused; else their
//! records are put aside, and a file named `keys` is in the way of those that come later.

use leasehold_store::StoreError;
use rustix::fs::{OFlags, renameat};
use rustix::io::Errno;

use super::directory::{Directory, Locked, SESSIONS, refused};
use super::record::FORMAT;
use super::session::is_dead_file;
use super::{clock, file};

/// Where their records are, and where they are put.
const RECORDS: &str = "keys";
const ASIDE: &str = "keys.earlier";

/// How often a client is looked at that seems to be of an earlier version: it may be dead, and just
/// be removed by somebody else.
const LOOKS: usize = 16;

/// What a client writes into its session file.
pub(super) fn mark() -> String {
    format!("{FORMAT}\n")
}

/// Whether a client of an earlier version lives. Any doubt counts as life.
pub(super) fn earlier_lives(directory: &Directory) -> bool {
    let is_earlier = |name: &String| {
        let path = format!("{SESSIONS}/{name}");
        let file = directory.file(&path, OFlags::RDONLY);
        let mark = file.and_then(|file| file::read(&file, 0, 16));
        let mark = mark.ok().and_then(|mark| String::from_utf8(mark).ok());
        let format = mark.and_then(|mark| mark.trim_end().parse().ok());
        let earlier = format.is_none_or(|format: u32| format < FORMAT);
        earlier && (0..LOOKS).all(|_| !is_dead_file(directory, name))
    };
    let sessions = directory.names(SESSIONS, "", usize::MAX);
    sessions.map_or(true, |names| names.iter().any(is_earlier))
}

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
    if earlier_lives(directory) {
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
