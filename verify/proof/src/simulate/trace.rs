//! What happened in a run: lines for people, and a digest of everything.

use std::fmt;
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

/// The record of a run.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) digest: Digest,
    /// Whether every line goes to the standard output too.
    pub(crate) shown: bool,
    lines: Vec<(Duration, String)>,
}

/// So many of the last lines are told with what was violated.
const TOLD: usize = 60;

impl Trace {
    /// Something happened.
    #[allow(clippy::print_stdout, reason = "what `--trace` is for")]
    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{:>12.6} {what}", at.as_secs_f64());
        self.digest.add(line.as_bytes());
        if self.shown {
            println!("{line}");
        }
        self.lines.push((at, line));
    }

    /// Bytes went over a wire: they count, without a line.
    pub(crate) fn carried(&mut self, at: Duration, bytes: &[u8]) {
        self.digest.add(&at.as_nanos().to_le_bytes());
        self.digest.add(bytes);
    }

    /// The last lines of what happened until then, which may be a time in whole microseconds.
    pub(crate) fn last(&self, until: Duration) -> Vec<String> {
        let is_told = |at: &Duration| at.as_micros() <= until.as_micros();
        let told = self.lines.iter().filter(|(at, _)| is_told(at));
        let told: Vec<_> = told.map(|(_, line)| line.clone()).collect();
        told[told.len().saturating_sub(TOLD)..].to_vec()
    }
}
