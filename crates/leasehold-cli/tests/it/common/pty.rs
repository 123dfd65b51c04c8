//! A program at a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use leasehold_testkit::process::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, Termios, Winsize, tcflow, tcgetattr, tcsetwinsize};
use tokio::time::Instant;

/// A program that leads a session at a pseudo-terminal: what it shows, and what is typed.
pub(crate) struct Terminal {
    master: File,
    child: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
    screen: vt100::Parser,
}

impl Terminal {
    pub(crate) fn spawn(command: Command) -> Self {
        Self::sized(command, (200, 24))
    }

    /// The same on a terminal of so many columns and rows.
    pub(crate) fn sized(command: Command, (columns, rows): (u16, u16)) -> Self {
        let (master, child) = start(command, size(columns, rows));
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
            screen: vt100::Parser::new(nonzero(rows), nonzero(columns), 0),
        }
    }

    /// Makes the window larger or smaller.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        let screen = self.screen.screen_mut();
        screen.set_size(nonzero(rows), nonzero(columns));
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Takes nothing more that the program writes, as after Ctrl-S.
    pub(crate) fn stop_output(&self) {
        let name = ptsname(&self.master, Vec::new()).unwrap();
        let name = name.into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        tcflow(&slave, Action::OOff).unwrap();
    }

    /// How the terminal treats what is typed and shown.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.master).unwrap()
    }

    /// The screen as it is to be seen.
    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// Waits until what is on the screen is so; answers it.
    pub(crate) fn wait_screen(&mut self, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.screen().contents();
            if is_so(&shown) {
                return shown;
            }
            // A screen that is drawn again and again says something for ever.
            assert!(begun.elapsed() < PATIENCE, "not on the screen:\n{shown}");
            assert!(self.read(), "the end, with this on the screen:\n{shown}");
        }
    }

    /// Types; `\x03` is Ctrl-C, `\x1a` Ctrl-Z.
    pub(crate) fn types(&mut self, keys: &str) {
        let typed = self.master.write_all(keys.as_bytes());
        typed.expect("somebody listens");
    }

    /// Types that key again and again, until what is on the screen is so.
    pub(crate) fn types_until(&mut self, key: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.screen().contents()) {
            let shown = self.screen().contents();
            assert!(begun.elapsed() < PATIENCE, "not on the screen:\n{shown}");
            self.types(key);
            assert!(self.read(), "the end, with this on the screen:\n{shown}");
        }
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

    /// Types, and waits as [`wait_for`](Self::wait_for) does.
    pub(crate) fn enters(&mut self, keys: &str, shown: &str) -> String {
        self.types(keys);
        self.wait_for(shown)
    }

    /// Types, and waits until that text is on the screen; answers the screen.
    pub(crate) fn presses(&mut self, keys: &str, shown: &str) -> String {
        self.types(keys);
        self.wait_screen(|screen| screen.contains(shown))
    }

    /// Waits for the end; answers all that was not waited for.
    pub(crate) fn finish(mut self) -> (ExitStatus, String) {
        (self.end(), std::mem::take(&mut self.seen))
    }

    /// Waits for the end of the program and of its output.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        while self.read() {
            let shown = self.screen().contents();
            assert!(begun.elapsed() < PATIENCE, "no end:\n{shown}");
        }
        self.child.wait().expect("an end")
    }

    /// More output; false when there is none to come.
    fn read(&mut self) -> bool {
        match self.output.recv_timeout(PATIENCE) {
            Ok(bytes) => {
                self.seen += &String::from_utf8_lossy(&bytes);
                self.screen.process(&bytes);
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => {
                let shown = self.screen().contents();
                panic!(
                    "nothing within {PATIENCE:?} after {:?}:\n{shown}",
                    self.seen
                )
            }
        }
    }
}

/// The end of a program whose terminal goes away as soon as that text was shown.
pub(crate) fn end_without_terminal(command: Command, text: &str) -> ExitStatus {
    let (mut master, mut child) = start(command, size(200, 24));
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(text.as_bytes()) {
        master.read_exact(&mut byte).expect("it shows the text");
        seen.push(byte[0]);
    }
    drop(master);
    child.wait().expect("an end")
}

/// Starts a program that leads a session at a pseudo-terminal of its own, which is answered, too.
fn start(mut command: Command, size: Winsize) -> (File, Child) {
    // Else the program would keep its terminal.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("a pseudo-terminal");
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = File::options().read(true).write(true).open(name).unwrap();
    if command.get_envs().all(|(name, _)| name != "TERM") {
        command.env("TERM", "xterm");
    }
    command.stdin(slave.try_clone().unwrap());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    lead_session(&mut command);
    let child = command.spawn().expect("the program can be started");
    (File::from(master), child)
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn nonzero(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("a size")
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
