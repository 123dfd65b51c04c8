//! What a program writes, line by line as it comes.

use std::io::{BufRead, BufReader, Read};
use std::thread;

use tokio::sync::watch;

use super::{PATIENCE, Process};

/// One of the output streams of a [`Process`], as lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    pub(super) process: &'a Process,
    pub(super) stream: Stream,
}

impl Lines<'_> {
    /// Waits for a line that contains `text` and returns it. The next wait on this stream looks
    /// behind that line: two waits for the same text wait for two lines.
    ///
    /// # Panics
    ///
    /// When the stream ends without such a line, or there is none within [`PATIENCE`]; the message
    /// has all that was written.
    pub async fn wait_for(&self, text: &str) -> String {
        let mut captured = self.process.captured.subscribe();
        let settled = captured.wait_for(|captured| {
            let stream = &captured.0[self.stream as usize];
            stream.ended || stream.find(text).is_some()
        });
        let in_time = tokio::time::timeout(PATIENCE, settled).await.is_ok();

        let mut line = None;
        self.process.captured.send_if_modified(|captured| {
            let stream = &mut captured.0[self.stream as usize];
            if let Some(at) = stream.find(text) {
                line = Some(stream.lines[at].clone());
                stream.next = at + 1;
            }
            false
        });
        line.unwrap_or_else(|| {
            let Self { process, stream } = self;
            let when = if in_time {
                "before it ended".to_owned()
            } else {
                format!("in {PATIENCE:?}")
            };
            panic!(
                "{} wrote no {text:?} to {stream:?} {when}\n{process}",
                process.name
            )
        })
    }

    /// The lines written so far.
    pub fn so_far(&self) -> Vec<String> {
        let captured = self.process.captured.borrow();
        captured.0[self.stream as usize].lines.clone()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// By [`Stream`].
#[derive(Default)]
pub(super) struct Captured(pub(super) [Transcript; 2]);

#[derive(Default)]
pub(super) struct Transcript {
    lines: Vec<String>,
    /// Where the next wait starts to look.
    next: usize,
    pub(super) ended: bool,
}

impl Transcript {
    fn find(&self, text: &str) -> Option<usize> {
        (self.next..self.lines.len()).find(|&at| self.lines[at].contains(text))
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Reads `source` line by line into `captured`, in a thread that ends with the stream.
pub(super) fn capture(
    source: impl Read + Send + 'static,
    stream: Stream,
    captured: watch::Sender<Captured>,
) {
    thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source.read_until(b'\n', &mut line).is_ok_and(|it| it > 0) {
            let text = String::from_utf8_lossy(&line)
                .trim_end_matches('\n')
                .to_owned();
            captured.send_modify(|captured| captured.0[stream as usize].lines.push(text));
            line.clear();
        }
        captured.send_modify(|captured| captured.0[stream as usize].ended = true);
    });
}
