//! The lines that a job writes. Whoever reads them may have stopped: they are written by a thread of
//! their own, since this one renews the lease, and ends the command with it.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::sys::{self, Blocked};

/// How many can wait to be written. What does not fit is left out.
const MOST: usize = 64;

/// How long a line is waited for, and at the end the last one.
const PATIENCE: Duration = Duration::from_millis(250);
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Writes lines to standard error, in their order.
#[derive(Debug)]
pub(super) struct LineWriter {
    lines: SyncSender<(String, Sender<()>)>,
    /// Ends when the last line is written.
    last: Mutex<Option<Receiver<()>>>,
}

impl LineWriter {
    /// Nothing where there can be no thread.
    pub(super) fn begin() -> Option<Self> {
        let (lines, taken) = mpsc::sync_channel::<(String, Sender<()>)>(MOST);
        let write = move || {
            // They are for the other thread.
            sys::block(Blocked::Everything);
            for (line, _written) in taken {
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
        };
        thread::Builder::new().spawn(write).ok()?;
        let last = Mutex::default();
        Some(Self { lines, last })
    }

    /// Writes a line. It is waited for, unless another one is still to be written.
    pub(super) fn write(&self, line: String) {
        let (written, ended) = mpsc::channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_behind = |last: &Receiver<()>| last.try_recv() == Err(TryRecvError::Empty);
        let waits = !last.as_ref().is_some_and(is_behind);
        if self.lines.try_send((line, written)).is_ok() {
            if waits {
                let _ = ended.recv_timeout(PATIENCE);
            }
            *last = Some(ended);
        }
    }

    /// Waits for the last line.
    pub(super) fn finish(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            let _ = last.recv_timeout(LAST_PATIENCE);
        }
    }
}
