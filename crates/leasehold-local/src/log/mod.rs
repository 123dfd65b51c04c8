//! The audit log: files of JSON lines.
//!
//! ```text
//! audit/current.jsonl      where entries are added
//! audit/<micros>.jsonl     a full one, by the time at which the next was begun
//! ```
//!
//! An entry is written after the record that it tells of, under the lock of that key: it is never
//! untrue, and a process that is killed in between leaves it out.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{AuditEntry, Key, StoreTime};
use leasehold_store::sync::{Mutex, lock};
use leasehold_store::{AuditLimit, AuditLog, AuditRecord, StoreError};
use rustix::fs::{AtFlags, OFlags, fstat, statat};
use rustix::io::{Errno, retry_on_intr, write};

use super::acquire_record::blocking;
use super::directory::{AUDIT, Directory, inode_of};
use super::record_file::size_of;
use super::{Inner, file};

const ENDING: &str = ".jsonl";
const CURRENT: &str = "current";

/// A file is full when it has about so large a part of what is to be kept.
const PARTS: u64 = 4;
/// About how long a line is, and how long at most.
const LINE: u64 = 256;
const LONGEST_LINE: usize = 8 * 1024;
/// What the size of a file is kept within.
const SIZES: std::ops::RangeInclusive<u64> = 64 * 1024..=16 * 1024 * 1024;

/// How much is read at once; more than the longest line.
const PAGE: usize = 256 * 1024;

/// A log that is written.
#[derive(Debug)]
pub(super) struct Log {
    directory: Arc<Directory>,
    limit: AuditLimit,
    /// Taken by whoever writes, so that one of this client begins a new file.
    turn: Mutex<()>,
    fails: AtomicBool,
    /// The files before the one that this client has ended last, as long as none of them was removed.
    ended: Mutex<Vec<u64>>,
}

fn path(name: &str) -> String {
    format!("{AUDIT}/{name}{ENDING}")
}

fn full(end: u64) -> String {
    path(&format!("{end:020}"))
}

impl Log {
    pub(super) fn open(directory: &Arc<Directory>, limit: AuditLimit) -> Result<Self, StoreError> {
        directory.make_part(AUDIT)?;
        Ok(Self {
            directory: Arc::clone(directory),
            limit,
            turn: Mutex::default(),
            fails: AtomicBool::default(),
            ended: Mutex::default(),
        })
    }

    /// Adds entries. The step is taken by now: what cannot be written is said once.
    pub(super) fn add(&self, key: &Key, entries: Vec<AuditEntry>) {
        let Some(at) = entries.first().map(|entry| entry.at) else {
            return;
        };
        let mut lines = Vec::new();
        for entry in entries {
            let key = key.clone();
            serde_json::to_writer(&mut lines, &AuditRecord::new(key, entry)).ok();
            lines.push(b'\n');
        }
        let added = self.write(&lines, at);
        let failed = self.fails.swap(added.is_err(), Ordering::Relaxed);
        if let (Err(errno), false) = (added, failed) {
            let doing = "write the audit log of";
            let error = self.directory.failed_at(&path(CURRENT), doing, errno);
            tracing::warn!(%error, "the audit log has a gap");
        }
    }

    fn write(&self, lines: &[u8], at: StoreTime) -> Result<(), Errno> {
        let _turn = lock(&self.turn);
        let open = || {
            let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
            self.directory.file(&path(CURRENT), flags)
        };
        let mut file = match open() {
            // The log was removed with its directory.
            Err(Errno::NOENT) => {
                self.directory.make_part(AUDIT).ok();
                open()?
            }
            file => file?,
        };
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or_default();
        let is_full = match self.limit {
            AuditLimit::Entries(entries) => {
                let full = entries.saturating_mul(LINE) / PARTS;
                size > full.clamp(*SIZES.start(), *SIZES.end())
            }
            AuditLimit::Age(age) => {
                let first = file::read(&file, 0, LONGEST_LINE)?;
                // A line that was cut off says nothing.
                let mut lines = first.split(|byte| *byte == b'\n');
                let first = lines.find_map(|line| serde_json::from_slice::<AuditRecord>(line).ok());
                let begun = first.map_or(at, |first| first.entry.at);
                size > *SIZES.end() || at.since(begun) * PARTS as u32 > age
            }
        };
        if is_full {
            self.begin_another(at)?;
            file = open()?;
        }
        // One that was cut off, as by a full disk, must not swallow the next.
        let size = size_of(&fstat(&file)?);
        let cut = size > 0 && file::read(&file, size - 1, 1)? != b"\n";
        let lines = [&b"\n"[..usize::from(cut)], lines].concat();
        match retry_on_intr(|| write(&file, &lines))? {
            written if written < lines.len() => Err(Errno::NOSPC),
            _ => Ok(()),
        }
    }

    /// Ends the current file.
    fn begin_another(&self, at: StoreTime) -> Result<(), Errno> {
        let names = self.directory.names(AUDIT, ENDING, usize::MAX);
        let names = names.unwrap_or_default();
        let mut ended: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
        ended.sort_unstable();
        // Behind all others, unless one has the last number that there is.
        let next = ended.last().and_then(|newest| newest.checked_add(1));
        let new = full(next.unwrap_or(0).max(at.0));
        match self.directory.rename(&path(CURRENT), &new) {
            // Another process has found it full at the same time, and has ended it.
            Err(Errno::NOENT | Errno::EXIST) => return Ok(()),
            renamed => renamed?,
        }
        *lock(&self.ended) = ended;
        Ok(())
    }

    /// Whether a file was ended, so that others may have to be removed.
    pub(super) fn has_ended(&self) -> bool {
        !lock(&self.ended).is_empty()
    }

    /// Removes the files of which nothing is to be kept, when another was ended. It may have to read
    /// all that is kept, so it is called under no lock, and where it holds nobody up.
    pub(super) fn remove_old(&self, at: StoreTime) {
        let (ended, mut kept) = (std::mem::take(&mut *lock(&self.ended)), 0);
        for end in ended.into_iter().rev() {
            let stays = match self.limit {
                AuditLimit::Entries(entries) => kept < entries,
                // Named by a clock that was ahead in an earlier boot, or behind such a name.
                AuditLimit::Age(age) if StoreTime(end) > at + age => {
                    let written = self.directory.last_written(&full(end));
                    written.is_some_and(|written| at.since(StoreTime(0) + written) < age)
                }
                AuditLimit::Age(age) => at.since(StoreTime(end)) < age,
            };
            if !stays {
                self.directory.remove(&full(end));
            } else if matches!(self.limit, AuditLimit::Entries(_))
                && let Ok(file) = self.directory.file(&full(end), OFlags::RDONLY)
            {
                let lines = BufReader::with_capacity(PAGE, File::from(file));
                kept += lines.split(b'\n').map_while(Result::ok).count() as u64;
            }
        }
    }
}

/// The file that was read last, by its inode, and how far. It stays open: file systems give the inode of
/// one that was removed to the next.
type Position = Option<((u64, u64), usize, Arc<OwnedFd>)>;

/// A log that is read.
pub(super) struct FileLog {
    pub(super) inner: Arc<Inner>,
    pub(super) since: StoreTime,
    pub(super) read: Position,
    /// Whether all was read that there was: that is said before what was written since is read.
    pub(super) is_at_end: bool,
}

/// The lines behind what was read, of one file, and whether they are the last; `None`: there are none.
/// It may find none and more to come, where files change meanwhile.
fn next_lines(
    directory: &Directory,
    since: StoreTime,
    read: &mut Position,
) -> Result<Option<(Vec<u8>, bool)>, Errno> {
    let mut names = match directory.names(AUDIT, ENDING, usize::MAX) {
        Err(Errno::NOENT) => return Ok(None),
        names => names?,
    };
    // Digits come before letters.
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let ended = name.parse().map(StoreTime);
        if ended.is_ok_and(|ended| ended + Duration::from_secs(1) < since) {
            continue;
        }
        let name = path(&name);
        let (at, there) = directory.at(&name);
        match statat(at, there, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => files.push((inode_of(&stat), name)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    // One that was removed since was older than all that are there.
    let last = read.as_ref().and_then(|(inode, at, _)| {
        let place = files.iter().position(|(other, _)| other == inode)?;
        Some((place, *at))
    });
    let (place, at) = last.unwrap_or((0, 0));
    for (number, (inode, name)) in files.iter().enumerate().skip(place) {
        let at = if number == place { at } else { 0 };
        // One after the other: a log can have more than a process may open.
        let file = match directory.file(name, OFlags::RDONLY) {
            Ok(file) if inode_of(&fstat(&file)?) == *inode => file,
            // It has another name by now, or was removed.
            Ok(_) | Err(Errno::NOENT) => return Ok(Some((Vec::new(), false))),
            Err(errno) => return Err(errno),
        };
        let mut lines = file::read(&file, at, PAGE)?;
        let is_last = lines.len() < PAGE && number + 1 == files.len();
        // A line that is being written is read when it is whole. None is as long as a page: what
        // seems to be is passed over in pieces.
        let piece = lines.len() / PAGE * PAGE;
        let whole = lines.iter().rposition(|byte| *byte == b'\n');
        lines.truncate(whole.map_or(piece, |last| last + 1));
        if !lines.is_empty() {
            *read = Some((*inode, at + lines.len(), Arc::new(file)));
            return Ok(Some((lines, is_last)));
        }
    }
    Ok(None)
}

#[async_trait]
impl AuditLog for FileLog {
    async fn next_page(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        while !std::mem::take(&mut self.is_at_end) {
            let (inner, since, mut read) = (self.inner.clone(), self.since, self.read.clone());
            let page = blocking(move || {
                inner.directory.check_stands()?;
                let lines = next_lines(&inner.directory, since, &mut read);
                let failed = |errno| inner.directory.failed("read the audit log of", errno);
                Ok((lines.map_err(failed)?, read))
            });
            let (lines, read) = page.await?;
            self.read = read;
            let Some((lines, is_last)) = lines else {
                break;
            };
            self.is_at_end = is_last;
            let mut records = Vec::new();
            for line in lines.split(|byte| *byte == b'\n') {
                match serde_json::from_slice::<AuditRecord>(line) {
                    Ok(record) => records.push(record),
                    Err(_) if !line.is_empty() => {
                        tracing::warn!("skipped a line of the audit log that cannot be read");
                    }
                    _ => {}
                }
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
