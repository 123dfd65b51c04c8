//! The probe: a process of the command's group that does nothing but tell what a terminal sends to it.
//!
//! While the command has the terminal, Ctrl-C reaches its group and neither leasehold nor whoever has
//! started it. What of that the command makes is not to be seen: it may end with a status of its own.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};

use super::{PROBE, this_program};
use crate::exit;
use crate::sys;

/// Ends the probe. Of several signals the system delivers the lowest first, so that what was sent
/// before is read before.
const OVER: Signal = Signal::ALARM;
/// What a terminal sends to a group, and what ends a program; and the end.
const HEARD: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, OVER];

/// A probe that has begun.
#[derive(Debug)]
pub(super) struct Probe {
    process: Child,
    handle: OwnedFd,
}

impl Probe {
    /// Begins one in that group, which is not its program yet, so that nothing that is sent is missed.
    /// Without one it is not known what the terminal has sent, which is no reason not to run. Only on
    /// Linux there is one.
    pub(super) fn begin(group: Pid) -> Option<Self> {
        if cfg!(not(target_os = "linux")) {
            return None;
        }
        let mut process = this_program(PROBE)
            .arg0("leasehold-probe")
            .arg(std::process::id().to_string())
            .process_group(group.as_raw_nonzero().get())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let said = process.stdout.as_mut();
        let has_begun = said.is_some_and(|said| said.read_exact(&mut [0]).is_ok());
        if let (Ok(handle), true) = (sys::pin(Pid::from_child(&process)), has_begun) {
            return Some(Self { process, handle });
        }
        let _ = process.kill().and_then(|()| process.wait());
        None
    }

    /// Ends it, after the command: answers the first signal that was sent to both.
    pub(super) fn finish(mut self) -> Option<i32> {
        let _ = sys::signal_pinned(&self.handle, OVER);
        // One that is stopped ends, too.
        let _ = sys::signal_pinned(&self.handle, Signal::CONT);
        let mut said = Vec::new();
        let _ = self.process.stdout.take()?.read_to_end(&mut said);
        // In a container it may have been reaped with the orphans.
        let _ = self.process.wait();
        said.first().map(|&signal| signal.into())
    }
}

/// Is the probe, to its end. Answers the exit status, which nobody reads; nothing where it was not
/// leasehold that has started it.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    sys::block(sys::ALL);
    let leasehold = arguments.next()?.to_str()?.parse().ok();
    let leasehold = leasehold.filter(|&pid| pid > 0).and_then(Pid::from_raw)?;
    sys::die_with(leasehold).ok()?;
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"leasehold-probe");
    let _ = std::env::set_current_dir("/");
    sys::close_from(3);
    let mut out = io::stdout();
    let mut say = |byte| out.write_all(&[byte]).and_then(|()| out.flush());
    if say(0).is_err() {
        return Some(exit::OUTPUT);
    }
    while let Some((signal, sender)) = sys::next_signal(&HEARD) {
        // What leasehold itself has passed on is known there.
        match (sender == Some(leasehold), signal == OVER.as_raw()) {
            (true, true) => break,
            (true, false) | (false, true) => {}
            (false, false) => {
                let _ = say(u8::try_from(signal).unwrap_or_default());
                break;
            }
        }
    }
    Some(exit::OK)
}
