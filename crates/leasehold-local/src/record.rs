//! The record of a key: a file of two halves, which the steps write by turns.
//!
//! ```text
//! {"leasehold":2,"half":2016}     and spaces, up to 64 bytes
//! the first half                  a frame, and room
//! the second half                 a frame, and room
//! ```
//!
//! A frame is a head of 24 bytes (number, length, checksum) and two lines of JSON that `cat` can
//! show: of which key the record is, and its queue. The whole frame with the higher number
//! counts. Whoever is killed while it writes a frame leaves the other one.

use leasehold_core::{Key, Queue, StoreTime};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The format written; a reader refuses a later one.
const FORMAT: u32 = 2;

/// What comes before the halves.
const PREAMBLE: usize = 64;

/// What comes before the lines of a frame: three numbers.
const HEAD: usize = 24;

/// What file systems give files room by: so much is a file at least.
const BLOCK: usize = 4096;

/// The room of a half in the smallest file.
pub(super) const SMALLEST: usize = (BLOCK - PREAMBLE) / 2;

/// By how much a queue can at least grow without a new file: a release adds the id that it
/// remembers.
const SLACK: usize = 1024;

/// The first line of a frame; the queue is the second.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) key: Key,
    /// The boot in which it was written: claims of another one are void.
    pub(super) boot: String,
    /// When an idle record may be removed, by the store's clock.
    pub(super) expires: StoreTime,
}

/// Where the frame that counts stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// The number of the frame.
    pub(super) number: u64,
    /// 0 or 1.
    half: usize,
    /// The size of a half.
    pub(super) room: usize,
}

impl At {
    /// Where the next frame goes.
    pub(super) fn next(self) -> Self {
        Self {
            number: self.number.wrapping_add(1),
            half: 1 - self.half,
            ..self
        }
    }

    /// In bytes from the beginning of the file.
    pub(super) fn offset(self) -> u64 {
        (PREAMBLE + self.half * self.room) as u64
    }
}

/// Why bytes are no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Cut short or changed.
    Torn,
    /// In a later format.
    Later(u32),
}

/// What a file says: of which key, the queue, and where in the file; in a file of the first format,
/// nowhere.
pub(super) type Read = (Header, Queue, Option<At>);

#[derive(Deserialize)]
struct Preamble {
    leasehold: u32,
    #[serde(default)]
    half: usize,
}

/// The format that a file says, by its first bytes.
pub(super) fn is_current(first: &[u8]) -> bool {
    first.starts_with(b"{\"leasehold\":2,")
}

/// Reads a whole file.
pub(super) fn decode(bytes: &[u8]) -> Result<Read, Flaw> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let preamble: Preamble = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
    match preamble.leasehold {
        FORMAT => {}
        1 => return first_format::decode(bytes),
        0 => return Err(Flaw::Torn),
        later => return Err(Flaw::Later(later)),
    }
    let room = preamble.half;
    let halves = bytes.get(PREAMBLE..).unwrap_or_default();
    let mut frames: Vec<_> = halves
        .chunks(room.max(1))
        .take(2)
        .enumerate()
        .filter_map(|(half, bytes)| {
            let (number, lines) = open(bytes)?;
            Some((At { number, half, room }, lines))
        })
        .collect();
    frames.sort_by_key(|(at, _)| at.number);
    let (at, lines) = frames.pop().ok_or(Flaw::Torn)?;
    let (header, queue) = read_lines(lines)?;
    Ok((header, queue, Some(at)))
}

/// The number and the lines of a whole frame.
fn open(half: &[u8]) -> Option<(u64, &[u8])> {
    let number = number_of(half)?;
    let length = u64::from_le_bytes(half.get(8..16)?.try_into().ok()?);
    let sum = u64::from_le_bytes(half.get(16..HEAD)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let lines = half.get(HEAD..)?.get(..length)?;
    (checksum(number, lines) == sum).then_some((number, lines))
}

/// The number of a frame, by its first bytes. The frame need not be whole.
pub(super) fn number_of(half: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(half.get(..8)?.try_into().ok()?))
}

fn read_lines(lines: &[u8]) -> Result<(Header, Queue), Flaw> {
    let end = lines.iter().position(|byte| *byte == b'\n');
    let (header, rest) = lines.split_at(end.ok_or(Flaw::Torn)?);
    let header = serde_json::from_slice(header).map_err(|_| Flaw::Torn)?;
    let queue = rest[1..].strip_suffix(b"\n").ok_or(Flaw::Torn)?;
    let queue = serde_json::from_slice(queue).map_err(|_| Flaw::Torn)?;
    Ok((header, queue))
}

/// The frame of that number.
pub(super) fn frame(number: u64, header: &Header, queue: &Queue) -> serde_json::Result<Vec<u8>> {
    frame_of(number, header, |bytes| serde_json::to_writer(bytes, queue))
}

/// A frame around a queue that is written down somehow.
pub(super) fn frame_of(
    number: u64,
    header: &Header,
    queue: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(SMALLEST);
    bytes.resize(HEAD, 0);
    serde_json::to_writer(&mut bytes, header)?;
    bytes.push(b'\n');
    queue(&mut bytes)?;
    bytes.push(b'\n');
    let (head, lines) = bytes.split_at_mut(HEAD);
    let numbers = [number, lines.len() as u64, checksum(number, lines)];
    for (place, number) in head.chunks_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Ok(bytes)
}

/// A file with that frame in its first half, and where it stands there. There is room for
/// more: the frames that only let go or hold on must need no new file.
pub(super) fn file(number: u64, frame: &[u8]) -> (Vec<u8>, At) {
    let room = match frame.len() {
        small if small + SLACK / 2 <= SMALLEST => SMALLEST,
        long => (long + SLACK).next_multiple_of(BLOCK),
    };
    let mut bytes = format!("{{\"leasehold\":{FORMAT},\"half\":{room}}}").into_bytes();
    bytes.resize(PREAMBLE - 1, b' ');
    bytes.push(b'\n');
    bytes.extend(frame);
    bytes.resize(PREAMBLE + 2 * room, 0);
    let half = 0;
    (bytes, At { number, half, room })
}

fn checksum(number: u64, lines: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&number.to_le_bytes());
    sum.update(lines);
    sum.digest()
}

/// The records of the first format: two lines of JSON, replaced as a whole at each step.
mod first_format {
    use super::{Deserialize, Flaw, Header, Key, Read, StoreTime, Xxh3};

    #[derive(Deserialize)]
    struct FirstLine {
        key: Key,
        boot: String,
        expires: StoreTime,
        checksum: String,
    }

    /// They may be followed by zeroes: room for a longer one.
    pub(super) fn decode(bytes: &[u8]) -> Result<Read, Flaw> {
        let used = bytes.iter().rposition(|byte| *byte != 0);
        let bytes = &bytes[..used.map_or(0, |last| last + 1)];
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.ok_or(Flaw::Torn)?);
        let line: FirstLine = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
        let body = rest[1..].strip_suffix(b"\n").ok_or(Flaw::Torn)?;
        if checksum(&line, body) != line.checksum {
            return Err(Flaw::Torn);
        }
        let queue = serde_json::from_slice(body).map_err(|_| Flaw::Torn)?;
        let header = Header {
            key: line.key,
            boot: line.boot,
            expires: line.expires,
        };
        Ok((header, queue, None))
    }

    fn checksum(line: &FirstLine, body: &[u8]) -> String {
        let mut sum = Xxh3::new();
        for part in [line.key.as_str().as_bytes(), line.boot.as_bytes(), body] {
            sum.update(&(part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        sum.update(&line.expires.0.to_le_bytes());
        format!("{:016x}", sum.digest())
    }
}
