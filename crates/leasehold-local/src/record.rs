//! The record of a key: two lines of JSON that `cat` can show.

use leasehold_core::{Key, Queue, StoreTime};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The format written; a reader refuses a later one.
const FORMAT: u32 = 1;

/// What a file begins with that only keeps room for the first record.
pub(super) const RESERVED: &[u8] = b"reserved\n";

/// The first line; the queue is the second.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    leasehold: u32,
    pub(super) key: Key,
    /// The boot in which it was written: claims of another one are void.
    pub(super) boot: String,
    /// When an idle record may be removed, by the store's clock.
    pub(super) expires: StoreTime,
    checksum: String,
}

/// Why bytes are no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Cut short or changed.
    Torn,
    /// In a later format.
    Later(u32),
}

pub(super) fn encode(
    key: &Key,
    boot: &str,
    queue: &Queue,
    expires: StoreTime,
) -> serde_json::Result<Vec<u8>> {
    seal(key, boot, serde_json::to_vec(queue)?, expires)
}

/// A record around a queue that is written down already.
pub(super) fn seal(
    key: &Key,
    boot: &str,
    body: Vec<u8>,
    expires: StoreTime,
) -> serde_json::Result<Vec<u8>> {
    let mut header = Header {
        leasehold: FORMAT,
        key: key.clone(),
        boot: boot.to_owned(),
        expires,
        checksum: String::new(),
    };
    header.checksum = checksum(&header, &body);
    let mut bytes = serde_json::to_vec(&header)?;
    bytes.push(b'\n');
    bytes.extend(body);
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a record, which may be followed by zeroes: room for a longer one.
pub(super) fn decode(bytes: &[u8]) -> Result<(Header, Queue), Flaw> {
    #[derive(Deserialize)]
    struct Version {
        leasehold: u32,
    }
    let used = bytes.iter().rposition(|byte| *byte != 0);
    let bytes = &bytes[..used.map_or(0, |last| last + 1)];
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(Flaw::Torn)?;
    let (line, rest) = bytes.split_at(end);
    let version: Version = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
    match version.leasehold {
        FORMAT => {}
        0 => return Err(Flaw::Torn),
        later => return Err(Flaw::Later(later)),
    }
    let header: Header = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
    let body = rest[1..].strip_suffix(b"\n").ok_or(Flaw::Torn)?;
    if checksum(&header, body) != header.checksum {
        return Err(Flaw::Torn);
    }
    let queue = serde_json::from_slice(body).map_err(|_| Flaw::Torn)?;
    Ok((header, queue))
}

fn checksum(header: &Header, body: &[u8]) -> String {
    let mut sum = Xxh3::new();
    for part in [header.key.as_str().as_bytes(), header.boot.as_bytes(), body] {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    sum.update(&header.expires.0.to_le_bytes());
    format!("{:016x}", sum.digest())
}
