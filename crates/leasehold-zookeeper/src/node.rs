//! Names and contents of nodes.
//!
//! ```text
//! /CHROOT/keys/orders%2F42    the journal of a key: head, length of the base, the base compressed,
//!                             then the steps since: [time][dead][length][bytes]
//! /CHROOT/keys/orders%2F42/1f…  the number of the record, which its head has, too
//! /CHROOT/keys/orders%2F42/late-k3v…  ephemeral: a client that others get ahead of
//! /CHROOT/inboxes/k3v…        ephemeral: a client that listens; the key that it was rung for last
//! /CHROOT/clock               written to learn the time of the servers
//! ```
//!
//! A node that is made again counts its changes from zero. So a step asks for the child with the
//! record's number: nobody takes one record for another, whoever has removed the node.
//!
//! The time of the last step is the one that the server has kept as the time of the change. If it is
//! earlier than the one that stands there, the step is void: it counts as an entry, and does nothing.
//! Whoever writes the node next empties it.

use std::sync::Arc;

use leasehold_core::{Inbox, Key, StoreTime};
use leasehold_store::journal::{Entry, FORMAT, News, Position, damaged, other_format};
use leasehold_store::{StoreError, corrupt};
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use zookeeper_client::Stat;

pub(crate) const KEYS: &str = "/keys";
pub(crate) const INBOXES: &str = "/inboxes";
pub(crate) const CLOCK: &str = "/clock";

/// What stands before the format, and how long that and the number are.
const MAGIC: [u8; 4] = *b"lhzk";
const HEAD: usize = 16;

/// The largest content that is read, uncompressed.
const LARGEST: usize = 64 << 20;

/// What a name of a node cannot have, what begins an escape, and a dot: `.` and `..` are no names.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b'.');

pub(crate) fn path_of(key: &Key) -> String {
    format!("{KEYS}/{}", utf8_percent_encode(key.as_str(), ESCAPED))
}

/// The key of a node; none if the node is not ours.
pub(crate) fn key_of(name: &str) -> Option<Key> {
    let decoded = percent_decode_str(name).decode_utf8().ok()?;
    Key::new(&*decoded).ok()
}

/// The child that a key's node has as long as it is that record.
pub(crate) fn path_of_record(key: &Key, record: u64) -> String {
    format!("{}/{record:016x}", path_of(key))
}

pub(crate) fn path_of_inbox(inbox: &Inbox) -> String {
    format!("{INBOXES}/{}", inbox.as_str())
}

/// Reads the content of a node: its record; the queue before the steps, compressed, or nothing if they are
/// the first; and the steps.
fn read<'a>(key: &Key, bytes: &'a [u8]) -> Result<(u64, &'a [u8], &'a [u8]), StoreError> {
    let (head, rest) = bytes.split_first_chunk().ok_or_else(|| foreign(key))?;
    let (format, rest) = rest.split_first_chunk().ok_or_else(|| foreign(key))?;
    if *head != MAGIC {
        return Err(foreign(key));
    }
    match u32::from_le_bytes(*format) {
        FORMAT => {}
        other => return Err(other_format(key, other)),
    }
    let (record, rest) = rest.split_first_chunk().ok_or_else(|| damaged(key))?;
    let (base, steps) = part(rest).ok_or_else(|| damaged(key))?;
    Ok((u64::from_le_bytes(*record), base, steps))
}

fn write(record: u64, base: &[u8], steps: &[u8]) -> Vec<u8> {
    let mut bytes = [MAGIC, FORMAT.to_le_bytes()].concat();
    bytes.extend(record.to_le_bytes());
    bytes.extend(length_of(base));
    bytes.extend(base);
    bytes.extend(steps);
    bytes
}

/// How long the steps may get before there is a new base, if the last is shorter.
const STEPS: usize = 8 * 1024;

/// Adds a step to what a client has kept of a node, or to a new base, if there are `most` bytes.
pub(crate) fn add(
    record: u64,
    kept: Option<&[u8]>,
    step: &Entry,
    base: impl FnOnce() -> Result<Vec<u8>, StoreError>,
    most: usize,
) -> Result<Vec<u8>, StoreError> {
    let added = steps_of(std::slice::from_ref(step));
    if let Some(kept) = kept {
        let base = kept.get(HEAD..).and_then(part);
        let base = base.map_or(0, |(base, _)| base.len());
        let steps = kept.len() - base;
        if steps < STEPS.max(base) && kept.len() + added.len() <= most {
            return Ok([kept, &added].concat());
        }
    }
    Ok(write(record, &compress_to_vec_zlib(&base()?, 1), &added))
}

fn steps_of(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend(entry.at.0.to_le_bytes());
        bytes.extend(entry.dead.to_le_bytes());
        bytes.extend(length_of(&entry.bytes));
        bytes.extend(&entry.bytes);
    }
    bytes
}

fn length_of(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

/// A part with its length before it, and what follows.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

fn entry(steps: &mut &[u8]) -> Option<Entry> {
    let (at, rest) = steps.split_first_chunk()?;
    let (dead, rest) = rest.split_first_chunk()?;
    let (bytes, rest) = part(rest)?;
    *steps = rest;
    Some(Entry {
        at: StoreTime(u64::from_le_bytes(*at)),
        dead: u64::from_le_bytes(*dead),
        bytes: bytes.to_vec(),
    })
}

/// The time of a step: ZooKeeper keeps that of the change, in milliseconds.
pub(crate) fn time_of(stat: &Stat) -> StoreTime {
    StoreTime(stat.mtime.cast_unsigned().saturating_mul(1000))
}

/// Where a record ends.
pub(crate) fn end_of(record: u64, version: i32) -> Position {
    Position {
        record,
        offset: u64::from(version.cast_unsigned()),
    }
}

/// The version of a node that ends there.
pub(crate) fn version_of(end: Position) -> i32 {
    u32::try_from(end.offset).unwrap_or(u32::MAX).cast_signed()
}

/// What a client does not know of a node that was read: of one that has that version, and was changed
/// then.
pub(crate) fn news(
    key: &Key,
    bytes: &[u8],
    (version, changed): (i32, StoreTime),
    known: Option<Position>,
) -> Result<News, StoreError> {
    let (record, compressed, mut rest) = read(key, bytes)?;
    let end = end_of(record, version);
    let mut entries = Vec::new();
    // There is always a last step.
    while entries.is_empty() || !rest.is_empty() {
        entries.push(entry(&mut rest).ok_or_else(|| damaged(key))?);
    }
    if let Some(last) = entries.last_mut() {
        if last.at > changed {
            last.bytes.clear();
        }
        last.at = changed;
    }
    let kept = Arc::from(write(record, compressed, &steps_of(&entries)));
    let steps = entries.len() as u64;
    let behind = known.filter(|known| known.record == end.record);
    let behind = behind.and_then(|known| end.offset.checked_sub(known.offset));
    let mut base = None;
    match behind.filter(|behind| *behind <= steps) {
        Some(behind) => drop(entries.drain(..usize::try_from(steps - behind).unwrap_or_default())),
        None => {
            let plain = decompress_to_vec_zlib_with_limit(compressed, LARGEST);
            base = Some(plain.map_err(|_| damaged(key))?);
        }
    }
    entries.retain(|entry| !entry.bytes.is_empty());
    Ok(News {
        base,
        entries,
        end: Some(end),
        base_length: bytes.len() as u64,
        kept: Some(kept),
        ..News::default()
    })
}

fn foreign(key: &Key) -> StoreError {
    let message = format!("the node of {key:?} contains something else");
    corrupt(message, "choose another chroot in the URL, or another key")
}

#[cfg(test)]
mod tests {
    use leasehold_store::ErrorKind;

    use super::*;

    fn step(number: u64) -> Entry {
        Entry {
            at: StoreTime(number),
            dead: number,
            bytes: vec![b'x'; 700],
        }
    }

    fn end(version: u64) -> Position {
        Position {
            record: 7,
            offset: version,
        }
    }

    #[test]
    fn keys_are_names_of_nodes() {
        for (key, name) in [
            ("orders/42", "/keys/orders%2F42"),
            ("..", "/keys/%2E%2E"),
            ("50%", "/keys/50%25"),
            ("zürich", "/keys/z%C3%BCrich"),
            ("a b", "/keys/a b"),
        ] {
            let key = Key::new(key).unwrap();
            let path = path_of(&key);
            assert_eq!(path, name);
            assert_eq!(key_of(path.strip_prefix("/keys/").unwrap()), Some(key));
        }
        assert_eq!(key_of("%FF"), None);
    }

    /// Who is behind by less than there are steps gets those, others the base with all.
    #[test]
    fn steps_follow_the_base_until_there_are_many() {
        let key = Key::new("k").unwrap();
        let (mut kept, mut since_base) = (None::<Vec<u8>>, 0);
        for number in 0..60 {
            let base = || Ok(format!("before {number}").into_bytes());
            let content = add(7, kept.as_deref(), &step(number), base, 100_000).unwrap();
            let state = (i32::try_from(number).unwrap(), StoreTime(100));
            let read = |known| news(&key, &content, state, known).unwrap();
            let all = read(None);
            let first = number + 1 - all.entries.len() as u64;
            assert_eq!(all.base, Some(format!("before {first}").into_bytes()));
            assert_eq!(all.end, Some(end(number)));
            let last = all.entries.last().unwrap();
            assert_eq!((last.at, last.dead), (StoreTime(100), number));
            if number > first {
                let near = read(Some(end(number - 1)));
                assert_eq!((near.base, near.entries.len()), (None, 1));
                let far = read(Some(end(first.max(1) - 1)));
                assert_eq!(far.base, None, "{number}");
            }
            if first > 1 {
                assert_eq!(read(Some(end(first - 2))).base, all.base);
            }
            let other = Position {
                record: 8,
                ..end(number)
            };
            assert_eq!(read(Some(other)).base, all.base, "another node");
            since_base = since_base.max(all.entries.len());
            kept = all.kept.map(|kept| kept.to_vec());
        }
        assert!((10..20).contains(&since_base), "{since_base}");
    }

    /// A clock that stepped back shows an earlier time than a client has seen.
    #[test]
    fn a_step_that_was_taken_too_early_does_nothing() {
        let key = Key::new("k").unwrap();
        let first = add(7, None, &step(1), || Ok(Vec::new()), 10_000).unwrap();
        let mut seen = news(&key, &first, (0, StoreTime(1)), None).unwrap();
        for (number, at) in [(1, 9), (2, 9), (3, 8)] {
            let content = add(
                7,
                seen.kept.as_deref(),
                &step(at),
                || Ok(Vec::new()),
                10_000,
            );
            let content = content.unwrap();
            let read = |known| news(&key, &content, (number, StoreTime(8)), known).unwrap();
            let is_void = at > 8;
            let near = read(Some(end_of(7, number - 1)));
            assert_eq!(
                (near.base, near.entries.len()),
                (None, usize::from(!is_void))
            );
            assert_eq!(near.end, Some(end_of(7, number)));
            seen = read(None);
            assert_eq!(seen.entries.len(), if is_void { 1 } else { 2 });
        }
    }

    #[test]
    fn what_does_not_fit_begins_anew() {
        let kept = add(7, None, &step(1), || Ok(Vec::new()), 10_000).unwrap();
        let more = add(7, Some(&kept), &step(2), || Ok(Vec::new()), 1_000).unwrap();
        assert_eq!(more.len(), kept.len());
        let more = add(7, Some(&kept), &step(2), || Ok(Vec::new()), 10_000).unwrap();
        assert!(more.len() > kept.len());
    }

    #[test]
    fn what_is_cut_changed_or_not_ours_is_refused() {
        let key = Key::new("k").unwrap();
        let state = (0, StoreTime(1));
        let whole = add(7, None, &step(1), || Ok(b"base".to_vec()), 10_000).unwrap();
        let said = |bytes: &[u8]| {
            news(&key, bytes, state, None)
                .map(drop)
                .map_err(|e| e.kind())
        };
        assert_eq!(said(&whole), Ok(()));
        for length in 0..whole.len() {
            assert_eq!(said(&whole[..length]), Err(ErrorKind::Corrupt), "{length}");
        }
        let mut other = whole.clone();
        other[4] += 1;
        assert_eq!(said(&other), Err(ErrorKind::Unsupported));
        assert_eq!(said(b"{\"owner\": \"somebody\"}"), Err(ErrorKind::Corrupt));
        // A bit of the base.
        let mut changed = whole;
        changed[HEAD + 6] ^= 1;
        assert_eq!(said(&changed), Err(ErrorKind::Corrupt));
    }
}
