//! A program at a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use leasehold_testkit::process::PATIENCE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A program that leads a session at a pseudo-terminal: what it shows, and what is typed.
pub(crate) struct Terminal {
    master: File,
    child: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        command
            .env("TERM", "xterm")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        lead_session(&mut command);
        let child = command.spawn().expect("the program can be started");
        drop(command);

        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (send, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            master,
            child,
            output,
            seen: String::new(),
        }
    }

    /// Types; `\x03` is Ctrl-C, `\x1a` Ctrl-Z.
    pub(crate) fn types(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("somebody listens");
    }

    /// Waits until that text was shown, behind what was waited for before; answers all up to it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(self.read(), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Waits for the end; answers all that was not waited for.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        while self.read() {}
        let status = self.child.wait().expect("an end");
        (status, std::mem::take(&mut self.seen))
    }

    /// More output; false when there is none to come.
    fn read(&mut self) -> bool {
        match self.output.recv_timeout(PATIENCE) {
            Ok(bytes) => {
                self.seen += &String::from_utf8_lossy(&bytes);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => {
                panic!("nothing within {PATIENCE:?} after {:?}", self.seen)
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(
    unsafe_code,
    reason = "a session is led from between fork and exec only"
)]
fn lead_session(command: &mut Command) {
    let lead = || {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        Ok(())
    };
    // SAFETY: two system calls; no lock, no allocation.
    unsafe { command.pre_exec(lead) };
}
