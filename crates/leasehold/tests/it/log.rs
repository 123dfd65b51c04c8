//! Captures log messages of a test's thread.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

thread_local! {
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log of this thread, which is a test's own. One subscriber for the whole process: one of
/// a thread is not always asked by what another thread has reached before.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.write(text))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn start() -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let subscriber = tracing_subscriber::fmt().with_writer(|| Self);
            let subscriber = subscriber.with_env_filter("info,leasehold::observe=debug");
            subscriber.with_ansi(false).init();
        });
        Self
    }

    /// The lines with such a word.
    pub(crate) fn lines(&self, word: &str) -> Vec<String> {
        let text = LOGGED.with_borrow(|logged| String::from_utf8_lossy(logged).into_owned());
        let lines = text.lines().filter(|line| line.contains(word));
        lines.map(str::to_owned).collect()
    }
}
