//! The record of a key: its queue, and the steps that were taken since.
//!
//! ```text
//! {"leasehold":6,"first":7,"at":128,"other":2112,"room":1984}     and spaces, up to 128 bytes
//! the half that counts, at `at`                                   frames, and room
//! the other half                                                  room
//! ```
//!
//! A frame is a head of 24 bytes (number, length, checksum) and lines of JSON that `cat` can show.
//! The first frame of a half is the queue as a whole. Those behind it, with the numbers that
//! follow, are a [`Change`] each: what was asked of the queue, and when. Who has read up to one
//! frame takes the same steps on its queue, and comes to the same.
//!
//! A half that is full is left: the queue as a whole goes into the other half, or into two larger
//! ones at the end of the file, and then the first line of the file is written, which says what
//! counts. A process that is killed while it writes leaves what was there before: a frame
//! counts once it is whole, and a half once the first line points to it. A file that begins with a
//! zero has no record yet.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;

use std::borrow::Cow;
use std::collections::BTreeSet;

use leasehold_core::{Command, Inbox, Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, StoreError, refused};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::remove_dead;

/// The format written; a reader refuses others. To be raised also when the core comes to another
/// queue by the same steps: `who_follows_comes_to_the_same` says when.
pub(super) const FORMAT: u32 = 6;

/// The format before, in which a break takes the key from all. It is read, and written as a whole in
/// the present format.
const LAST: u32 = 5;

/// The size of the first line.
const HEAD: usize = 128;

/// What comes before the lines of a frame: three numbers.
const FRAME_HEAD: usize = 24;

/// What file systems give files room by, and the size of the smallest file.
pub(super) const BLOCK: usize = 4096;

/// The room of a half in the smallest file.
const SMALLEST: usize = (BLOCK - HEAD) / 2;

/// By how much a queue can at least grow where it is: a release adds the id that it remembers.
const SLACK: usize = 1024;

/// No frame is longer, in bytes: some 200,000 who wait. A file may say that it is, or be, of any
/// size.
const LONGEST: usize = 64 << 20;

/// Reads so many bytes from there on, or as many as there are.
pub(super) type Source<'a> = dyn Fn(usize, usize) -> Result<Vec<u8>, Flaw> + 'a;

/// What the first line says: which half of the file counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Half {
    leasehold: u32,
    /// The number of its first frame.
    first: u64,
    /// Where it begins, in bytes from the beginning of the file.
    at: usize,
    /// Where the other half begins.
    other: usize,
    /// The size of each; none where there is no record yet.
    pub(super) room: usize,
}

impl Half {
    /// In a file of one block.
    pub(super) const SMALLEST: Self = Self {
        leasehold: FORMAT,
        first: 0,
        at: HEAD,
        other: HEAD + SMALLEST,
        room: SMALLEST,
    };

    /// Where the file has to grow to, that is so large now, for a queue of that length.
    pub(super) fn beyond(size: usize, length: usize) -> Self {
        if size < BLOCK && roomy(length) <= SMALLEST {
            return Self::SMALLEST;
        }
        let at = size.next_multiple_of(BLOCK).max(BLOCK);
        let room = (2 * length + SLACK).next_multiple_of(BLOCK);
        Self {
            at,
            other: at + room,
            room,
            ..Self::SMALLEST
        }
    }

    pub(super) fn other(self) -> Self {
        Self {
            leasehold: FORMAT,
            at: self.other,
            other: self.at,
            ..self
        }
    }

    pub(super) fn is_large(self) -> bool {
        self.room > SMALLEST
    }

    fn end(self) -> usize {
        self.at.saturating_add(self.room)
    }

    /// How long the file must be.
    pub(super) fn size(self) -> usize {
        self.at.max(self.other) + self.room
    }

    /// The lines of the frame that stands there, if it has that number and is whole.
    fn frame(self, source: &Source<'_>, at: usize, number: u64) -> Result<Option<Vec<u8>>, Flaw> {
        let Some(room) = self.end().checked_sub(at.saturating_add(FRAME_HEAD)) else {
            return Ok(None);
        };
        let head = source(at, FRAME_HEAD)?;
        let number_at = |at: usize| {
            let bytes = head.get(at * 8..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let length = number_at(1).and_then(|length| usize::try_from(length).ok());
        let Some(length) =
            length.filter(|length| number_at(0) == Some(number) && *length <= room.min(LONGEST))
        else {
            return Ok(None);
        };
        let lines = source(at + FRAME_HEAD, length)?;
        let whole = lines.len() == length && Some(checksum(number, &lines)) == number_at(2);
        Ok(whole.then_some(lines))
    }

    fn line(self) -> Vec<u8> {
        let mut line = serde_json::to_vec(&self).unwrap_or_default();
        line.resize(HEAD - 1, b' ');
        line.push(b'\n');
        line
    }
}

/// The room with which a queue of that length does not have to move again soon.
pub(super) fn roomy(length: usize) -> usize {
    length + length / 2
}

/// What was asked of a queue in one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Change<'a> {
    /// When, by the store's clock.
    pub(super) at: StoreTime,
    /// Whose claims were removed before.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) dead: BTreeSet<Inbox>,
    pub(super) command: Option<Cow<'a, Command>>,
    /// See [`Header::expires`].
    pub(super) expires: StoreTime,
}

/// What comes before a queue as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) key: Key,
    /// The boot in which it was written: claims of another one are void.
    pub(super) boot: String,
    /// When an idle record may be removed, by the store's clock.
    pub(super) expires: StoreTime,
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Flaw {
    /// Cut short or changed.
    Torn,
    /// In another format.
    Foreign(u32),
    Unreadable(Errno),
}

/// A record that was read, or is about to be written.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) header: Header,
    pub(super) queue: Queue,
    pub(super) half: Half,
    /// The first line of the file, which says that; none where there is no record yet.
    line: Vec<u8>,
    /// The number of the last frame.
    number: u64,
    /// Where it begins, and its head.
    last: (usize, Vec<u8>),
    /// Where it ends.
    end: usize,
}

/// What is to be written where, in this order.
pub(super) type Writes = Vec<(usize, Vec<u8>)>;

impl Record {
    /// Of a key that nobody has used yet.
    pub(super) fn new(key: &Key, boot: &str) -> Self {
        let header = Header {
            key: key.clone(),
            boot: boot.to_owned(),
            expires: StoreTime(0),
        };
        Self {
            header,
            queue: Queue::default(),
            half: Half::default(),
            line: Vec::new(),
            number: 0,
            last: (0, Vec::new()),
            end: 0,
        }
    }

    /// Reads a file. There is no record in one that is empty, or that has only got its room.
    pub(super) fn read(source: &Source<'_>) -> Result<Option<Self>, Flaw> {
        let head = source(0, HEAD)?;
        if head.first().is_none_or(|first| *first == 0) {
            return Ok(None);
        }
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or(&head);
        let half: Half = serde_json::from_slice(line).map_err(|_| Flaw::Torn)?;
        match half.leasehold {
            FORMAT | LAST => {}
            0 | 1 => return Err(Flaw::Torn),
            other => return Err(Flaw::Foreign(other)),
        }
        let first = half.frame(source, half.at, half.first)?;
        // The line has no checksum, and no frame says where the other half is.
        let is_sound = half.at.abs_diff(half.other) == half.room;
        let lines = first.filter(|_| is_sound).ok_or(Flaw::Torn)?;
        let middle = lines.iter().position(|byte| *byte == b'\n');
        let (header, queue) = lines.split_at(middle.ok_or(Flaw::Torn)?);
        let mut record = Self {
            header: serde_json::from_slice(header).map_err(|_| Flaw::Torn)?,
            queue: serde_json::from_slice(queue).map_err(|_| Flaw::Torn)?,
            half,
            line: head,
            number: half.first,
            last: (half.at, source(half.at, FRAME_HEAD)?),
            end: half.at + FRAME_HEAD + lines.len(),
        };
        record.follow(source)?;
        Ok(Some(record))
    }

    /// Whether the queue as a whole was not written again since this was read, nor an older copy of
    /// the file put back.
    pub(super) fn goes_on(&self, source: &Source<'_>) -> bool {
        let has = |at, bytes: &[u8]| source(at, bytes.len()).is_ok_and(|found| found == bytes);
        !self.line.is_empty() && has(0, &self.line) && has(self.last.0, &self.last.1)
    }

    /// Takes the steps that have been written since.
    pub(super) fn follow(&mut self, source: &Source<'_>) -> Result<(), Flaw> {
        while let Some(number) = self.number.checked_add(1)
            && let Some(lines) = self.half.frame(source, self.end, number)?
        {
            let change: Change<'_> = serde_json::from_slice(&lines).map_err(|_| Flaw::Torn)?;
            let possible = self.queue.check_clock(change.at);
            possible.map_err(|_| Flaw::Torn)?;
            remove_dead::apply_without(
                &mut self.queue,
                &change.dead,
                change.command.as_deref(),
                change.at,
            );
            self.header.expires = change.expires;
            self.number = number;
            self.last = (self.end, source(self.end, FRAME_HEAD)?);
            self.end += FRAME_HEAD + lines.len();
        }
        Ok(())
    }

    /// The next frame, with the step that has led to the queue as it is now, if there is room.
    pub(super) fn next(&mut self, change: &Change<'_>) -> Result<Option<Writes>, StoreError> {
        if self.half.leasehold != FORMAT {
            return Ok(None);
        }
        let number = self.number.wrapping_add(1);
        let bytes = frame(number, |bytes| serde_json::to_writer(bytes, change))?;
        let (at, end) = (self.end, self.end + bytes.len());
        if end > self.half.end() {
            return Ok(None);
        }
        (self.number, self.end) = (number, end);
        self.last = (at, bytes[..FRAME_HEAD].to_vec());
        Ok(Some(vec![(at, bytes)]))
    }

    /// The queue as a whole, with the number of the next frame.
    pub(super) fn whole(&self) -> Result<Vec<u8>, StoreError> {
        frame(self.number.wrapping_add(1), |bytes| {
            serde_json::to_writer(&mut *bytes, &self.header)?;
            bytes.push(b'\n');
            serde_json::to_writer(bytes, &self.queue)
        })
    }

    /// Puts that into another half.
    pub(super) fn move_to(&mut self, half: Half, whole: Vec<u8>) -> Writes {
        self.number = self.number.wrapping_add(1);
        let first = self.number;
        self.half = Half { first, ..half };
        self.line = self.half.line();
        self.last = (half.at, whole[..FRAME_HEAD].to_vec());
        self.end = half.at + whole.len();
        vec![(half.at, whole), (0, self.line.clone())]
    }
}

/// A frame around lines that are written down somehow.
fn frame(
    number: u64,
    lines: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::with_capacity(SMALLEST / 2);
    bytes.resize(FRAME_HEAD, 0);
    lines(&mut bytes).map_err(|error| {
        let message = "the queue cannot be serialised";
        StoreError::new(ErrorKind::Refused, message).with_source(error)
    })?;
    bytes.push(b'\n');
    if bytes.len() > LONGEST {
        let message = "more claims wait for this key than its record can hold";
        return Err(refused(message, "let fewer wait for one key"));
    }
    let (head, lines) = bytes.split_at_mut(FRAME_HEAD);
    let numbers = [number, lines.len() as u64, checksum(number, lines)];
    for (place, number) in head.chunks_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    Ok(bytes)
}

fn checksum(number: u64, lines: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&number.to_le_bytes());
    sum.update(lines);
    sum.digest()
}
