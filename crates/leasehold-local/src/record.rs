//! The record of a key: two halves, which the steps write by turns.
//!
//! ```text
//! {"leasehold":2,"at":64,"half":2016}     and spaces, up to 64 bytes; or zeroes: no record yet
//! the first half, at 64                   a frame, and room
//! the second half                         a frame, and room
//! ```
//!
//! A frame is a head of 24 bytes (number, length, checksum) and two lines of JSON that `cat` can
//! show: of which key the record is, and its queue. The whole frame with the higher number
//! counts. Whoever is killed while it writes a frame leaves the other one.
//!
//! A queue that needs more gets two larger halves at the end of the file, to which the first line
//! points from then on.

use leasehold_core::{Key, Queue, StoreTime};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The format written; a reader refuses a later one.
const FORMAT: u32 = 2;

/// What comes before the first halves.
const PREAMBLE: usize = 64;

/// What comes before the lines of a frame: three numbers.
const HEAD: usize = 24;

/// What file systems give files room by, and the size of the smallest file.
pub(super) const BLOCK: usize = 4096;

/// The room of a half in the smallest file.
const SMALLEST: usize = (BLOCK - PREAMBLE) / 2;

/// By how much a queue can at least grow where it is: a release adds the id that it remembers.
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

/// Where a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Its number.
    pub(super) number: u64,
    /// Where the halves begin, in bytes from the beginning of the file.
    area: usize,
    /// 0 or 1.
    half: usize,
    /// The size of a half.
    room: usize,
}

impl At {
    /// The frame of that number, in a file of that size that has no room for it yet.
    pub(super) fn beyond(size: usize, number: u64, length: usize) -> Self {
        let (area, room) = match length {
            _ if size >= BLOCK => (size, (length + SLACK).next_multiple_of(BLOCK)),
            small if small <= SMALLEST => (PREAMBLE, SMALLEST),
            long => (BLOCK, (long + SLACK).next_multiple_of(BLOCK)),
        };
        let half = 0;
        Self {
            number,
            area,
            half,
            room,
        }
    }

    /// Where the next frame goes, if there is room for it.
    pub(super) fn next(self) -> Self {
        Self {
            number: self.number.wrapping_add(1),
            half: 1 - self.half,
            ..self
        }
    }

    /// The same frame in the smallest file, if it has the room and this one is larger.
    pub(super) fn smaller(self, length: usize) -> Option<Self> {
        let smallest = Self::beyond(0, self.number, length);
        (self.area > PREAMBLE && smallest.area == PREAMBLE).then_some(smallest)
    }

    pub(super) fn fits(self, length: usize) -> bool {
        length <= self.room
    }

    pub(super) fn is_in_area_of(self, other: Self) -> bool {
        self.area == other.area
    }

    /// In bytes from the beginning of the file.
    pub(super) fn offset(self) -> u64 {
        (self.area + self.half * self.room) as u64
    }

    /// How long the file must be.
    pub(super) fn size(self) -> usize {
        self.area + 2 * self.room
    }

    /// What the file begins with.
    pub(super) fn preamble(self) -> Vec<u8> {
        let Self { area, room, .. } = self;
        let line = format!("{{\"leasehold\":{FORMAT},\"at\":{area},\"half\":{room}}}");
        format!("{line:width$}\n", width = PREAMBLE - 1).into_bytes()
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

/// What a file says: of which key, the queue, and where in the file.
pub(super) type Read = (Header, Queue, At);

#[derive(Deserialize)]
struct Preamble {
    leasehold: u32,
    #[serde(default)]
    at: usize,
    #[serde(default)]
    half: usize,
}

/// Reads a whole file. There is no record in one that is empty, or that has only got its room.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<Read>, Flaw> {
    if bytes.first().is_none_or(|first| *first == 0) {
        return Ok(None);
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let preamble: Preamble = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
    match preamble.leasehold {
        FORMAT => {}
        0 | 1 => return Err(Flaw::Torn),
        later => return Err(Flaw::Later(later)),
    }
    let (area, room) = (preamble.at, preamble.half);
    let halves = bytes.get(area..).unwrap_or_default().chunks(room.max(1));
    let whole = halves.take(2).enumerate().filter_map(|(half, bytes)| {
        let (number, lines) = open(bytes)?;
        let at = At {
            number,
            area,
            half,
            room,
        };
        Some((at, lines))
    });
    let last = whole.max_by_key(|(at, _)| at.number);
    let (at, lines) = last.ok_or(Flaw::Torn)?;
    let (header, queue) = read_lines(lines)?;
    Ok(Some((header, queue, at)))
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

/// A file with that frame alone.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn file(number: u64, frame: &[u8]) -> Vec<u8> {
    let at = At::beyond(0, number, frame.len());
    let mut bytes = at.preamble();
    bytes.resize(at.area, 0);
    bytes.extend(frame);
    bytes.resize(at.size(), 0);
    bytes
}

fn checksum(number: u64, lines: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&number.to_le_bytes());
    sum.update(lines);
    sum.digest()
}
