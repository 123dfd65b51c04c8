//! What a lock protects: a number in a file, read on entering and written on leaving.
//!
//! Whoever overlaps with another overwrites what the other counted: the number is then lower than
//! the number of acquisitions, which the runner compares.

use std::fs::OpenOptions;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use memmap2::MmapRaw;

use crate::{Arguments, Failure, now};

/// Bytes from one key's record to the next.
const SLOT: usize = 64;

/// The file, which all processes of a measurement have mapped. The runner has made it.
pub(crate) struct Records(MmapRaw);

/// What was read on entering.
pub(crate) struct Inside {
    count: u64,
    pub(crate) entered: u64,
    /// How long ago another left.
    pub(crate) handed_over: Option<u64>,
}

impl Records {
    pub(crate) fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&arguments.record)?;
        Ok(Self(MmapRaw::map_raw(&file)?))
    }

    /// The count, who left last (one more than its number), and when.
    fn slot(&self, slot: usize) -> &[AtomicU64; 3] {
        assert!((slot + 1) * SLOT <= self.0.len(), "the file has that slot");
        // SAFETY: it lies within the map, which lives as long as `self`, is aligned, and is
        // used through atomics by everybody.
        unsafe { &*self.0.as_mut_ptr().add(slot * SLOT).cast() }
    }

    pub(crate) fn enter(&self, slot: usize, who: usize) -> Inside {
        let [count, last, left] = self.slot(slot).each_ref().map(|it| it.load(Acquire));
        let entered = now();
        let other = last != 0 && last != who as u64 + 1;
        Inside {
            count,
            entered,
            handed_over: other.then(|| entered.saturating_sub(left)),
        }
    }

    /// Returns how long it was held.
    pub(crate) fn leave(&self, slot: usize, who: usize, inside: &Inside) -> u64 {
        let [count, last, left] = self.slot(slot);
        let now = now();
        last.store(who as u64 + 1, Release);
        left.store(now, Release);
        count.store(inside.count + 1, Release);
        now - inside.entered
    }
}
