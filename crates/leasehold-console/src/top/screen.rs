//! The terminal as a full screen, and as it was before.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The screen that `top` draws on. The terminal is as it was before when this is dropped, and when
/// anything panics.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    saved: Arc<SavedTerminal>,
}

/// How to leave the screen, which is done once.
struct SavedTerminal {
    tty: File,
    modes: Termios,
    entered: AtomicBool,
}

impl Screen {
    /// Takes the terminal behind `tty`: keys come one by one, and the screen is empty.
    pub(super) fn enter(tty: &impl AsFd) -> io::Result<Self> {
        let file = || Ok::<_, io::Error>(File::from(tty.as_fd().try_clone_to_owned()?));
        let modes = tcgetattr(tty)?;
        let mut raw = modes.clone();
        raw.make_raw();
        let saved = Arc::new(SavedTerminal {
            tty: file()?,
            modes,
            entered: AtomicBool::new(true),
        });
        let in_panic = Arc::downgrade(&saved);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Else the message would be on the screen that is left.
            if let Some(saved) = in_panic.upgrade() {
                saved.restore();
            }
            hook(panic);
        }));
        // From here on dropping it leads back.
        let mut screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(BufWriter::new(file()?)))?,
            saved,
        };
        tcsetattr(tty, OptionalActions::Drain, &raw)?;
        let backend = screen.terminal.backend_mut();
        execute!(
            backend,
            EnterAlternateScreen,
            EnableBracketedPaste,
            cursor::Hide
        )?;
        Ok(screen)
    }

    /// Draws what differs from what is there.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !self.saved.entered.load(Ordering::Relaxed) {
            return Err(io::Error::other("another part of leasehold has failed"));
        }
        self.terminal.draw(draw).map(drop)
    }

    /// Leaves the terminal as it was before.
    pub(super) fn leave(&mut self) {
        self.saved.restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

impl SavedTerminal {
    fn restore(&self) {
        if !self.entered.swap(false, Ordering::Relaxed) {
            return;
        }
        // A terminal that has gone needs nothing.
        let mut tty = &self.tty;
        let _ = execute!(
            tty,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = tty.flush();
        let _ = tcsetattr(tty, OptionalActions::Drain, &self.modes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// What was written to a terminal that was entered and left so; its modes are as before.
    fn written(leave: impl FnOnce(Screen)) -> String {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let tty = File::options().read(true).write(true).open(name).unwrap();
        let modes = || format!("{:?}", tcgetattr(&tty).unwrap());
        let before = modes();
        // Read while it is written: leaving waits until all was read.
        let mut reader = File::from(master);
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut buffer = [0; 1024];
            // Ends with an error when the terminal is closed.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                all.extend_from_slice(&buffer[..count]);
            }
            String::from_utf8(all).unwrap()
        });
        let screen = Screen::enter(&tty).unwrap();
        assert_ne!(modes(), before);
        leave(screen);
        assert_eq!(modes(), before);
        drop(tty);
        reading.join().unwrap()
    }

    /// One test, as a panic in any thread leaves all screens of the process.
    #[test]
    fn the_terminal_is_left_once_and_as_it_was() {
        let left = written(drop);
        assert!(left.starts_with("\x1b[?1049h"), "{left:?}");
        assert!(left.ends_with("\x1b[?1049l\x1b[?25h"), "{left:?}");
        assert_eq!(left.matches("\x1b[?1049l").count(), 1, "{left:?}");
        let left = written(|mut screen| {
            let panics = AssertUnwindSafe(|| panic!("as a test"));
            assert!(catch_unwind(panics).is_err());
            // The process goes on, as after a panic of a task: nothing is drawn any more.
            assert!(screen.draw(|_| {}).is_err());
        });
        assert_eq!(left.matches("\x1b[?1049l").count(), 1, "{left:?}");
        assert!(left.ends_with("\x1b[?25h"), "{left:?}");
    }
}
