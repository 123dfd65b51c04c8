//! redis-py's `Lock` in a Python process of its own: another library that takes the
//! locks that leasehold takes with `layout=classic`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::process::spawn_tied;
use crate::python::python;

/// A Python process with redis-py. Ends with its handle.
///
/// See [`python`] for which Python that is.
#[derive(Debug)]
pub struct RedisPy {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl RedisPy {
    /// Starts it, with the server on that port of this machine.
    ///
    /// # Panics
    ///
    /// If it cannot be started: no test passes because it could not be run.
    pub fn start(port: u16) -> Self {
        let mut command = python("redis-py");
        command.args(["-c", include_str!("redis_py.py"), &port.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_tied(command).expect("python3 can be started");
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut python = Self {
            child,
            requests,
            answers,
        };
        let ready = python.answer();
        assert!(ready.starts_with("ready "), "{ready}");
        python
    }

    /// Asks, and waits for the answer: see `redis_py.py` for what there is.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn ask(&mut self, request: &str) -> String {
        self.begin(request);
        self.answer()
    }

    /// Asks; [`RedisPy::answer`] has the answer.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn begin(&mut self, request: &str) {
        let requests = self.requests.as_mut().expect("it is open until the end");
        writeln!(requests, "{request}").expect("Python reads");
        requests.flush().expect("Python reads");
    }

    /// The answer to what was asked first.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("Python writes");
        assert!(read > 0, "Python has ended; its standard error says why");
        line.trim_end().to_owned()
    }
}

impl Drop for RedisPy {
    fn drop(&mut self) {
        // The end of its input ends it; it may be waiting for a lock.
        self.requests = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
