//! What happened in a run: lines for people, and a digest of everything.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// FNV-1a with 64 bits (Fowler, Noll, Vo): two runs that differ in a byte differ here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// The record of a run. A clone writes into the same.
#[derive(Clone, Default)]
pub(crate) struct Trace(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    digest: Digest,
    shown: bool,
    lines: Vec<String>,
}

/// So many of the last lines are told with what was violated.
const TOLD: usize = 60;

impl Trace {
    /// Writes every line to the standard output too.
    pub(crate) fn show(&self) {
        self.0.borrow_mut().shown = true;
    }

    /// Something happened.
    #[allow(clippy::print_stdout, reason = "what `--trace` is for")]
    pub(crate) fn note(&self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{:>12.6} {what}", at.as_secs_f64());
        let mut inner = self.0.borrow_mut();
        inner.digest.add(line.as_bytes());
        if inner.shown {
            println!("{line}");
        }
        inner.lines.push(line);
    }

    /// Bytes went over a wire: they count, without a line.
    pub(crate) fn carried(&self, at: Duration, bytes: &[u8]) {
        let mut inner = self.0.borrow_mut();
        inner.digest.add(&at.as_nanos().to_le_bytes());
        inner.digest.add(bytes);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.0.borrow().digest.value()
    }

    /// The last lines.
    pub(crate) fn last(&self) -> Vec<String> {
        let inner = self.0.borrow();
        let from = inner.lines.len().saturating_sub(TOLD);
        inner.lines[from..].to_vec()
    }
}
