//! The child and its lease side by side, until the child has ended.

use rustix::process::Signal;
use tokio::signal::unix;
use tokio::time::{Instant, sleep};

use super::guard::Action;
use super::terminal::Terminal;
use super::{Change, Child, End, Guard, Start, program};
use crate::duration::millis;
use crate::exit;
use crate::failure::Failure;
use crate::held::{Held, Standing};
use crate::output::{Event, Measure, Printer};
use crate::signals::{self, Signals};
use crate::sys;

/// How it came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) end: End,
    /// The lease was lost, or so near its end that the child was told to stop.
    pub(crate) lost: bool,
    /// The last signal that went on to the child and asks a program to end.
    pub(crate) asked: Option<Signal>,
}

/// What is heard while the child runs.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    printer: &'a Printer,
    signals: &'a mut Signals,
    asked: Option<Signal>,
    children: unix::Signal,
    stops: unix::Signal,
    terminal: Option<Terminal>,
}

impl<'a> Supervision<'a> {
    /// Begins to listen, so that nothing that the child does is missed.
    pub(crate) fn begin(printer: &'a Printer, signals: &'a mut Signals) -> Result<Self, Failure> {
        Ok(Self {
            printer,
            signals,
            asked: None,
            children: signals::stream(Signal::CHILD).map_err(signals::refused)?,
            stops: signals::stream(Signal::TSTP).map_err(signals::refused)?,
            terminal: Terminal::open(),
        })
    }

    /// Starts the child and stays with it to its end.
    pub(crate) async fn run(
        mut self,
        start: Start<'_>,
        held: &Held,
        mut guard: Guard,
    ) -> Result<Ended, Failure> {
        let program = start.program;
        let child = Child::start(start, self.terminal.as_ref())
            .map_err(|error| program::failure(program, &error))?;
        let watched = self.watch(&child, held, &mut guard).await;
        if guard.lost() && guard.strikes() || watched.is_err() {
            // Before the child is reaped, while its group's number is certainly its own.
            child.signal(Signal::KILL);
        }
        let group = child.group();
        let end = child.reap().and_then(|end| watched.map(|()| end));
        if let Some(terminal) = &self.terminal {
            terminal.take_back(group);
            if matches!(end, Ok(End::Signalled(_))) && terminal.is_ours() {
                terminal.restore();
            }
        }
        let end = end.map_err(|error| {
            Failure::new(
                exit::SYSTEM,
                format!("cannot wait for the command: {error}"),
            )
        })?;
        Ok(Ended {
            end,
            lost: guard.lost(),
            asked: self.asked,
        })
    }

    /// Returns when the child has ended.
    async fn watch(
        &mut self,
        child: &Child,
        held: &Held,
        guard: &mut Guard,
    ) -> std::io::Result<()> {
        loop {
            let (now, standing) = (Instant::now(), held.standing());
            self.look(child, guard, now, standing);
            match child.change()? {
                Some(Change::Ended) => return Ok(()),
                Some(Change::Stopped(signal)) => {
                    if self.stopped(child, signal) {
                        // The lease may have ended meanwhile: that comes first.
                        self.look(child, guard, Instant::now(), held.standing());
                        self.resume(child);
                    }
                    continue;
                }
                None => {}
            }
            let pause = guard.sleep(now, standing.remaining, standing.standpoint);
            let known = guard.lost();
            tokio::select! {
                biased;
                _ = self.children.recv() => {}
                signal = self.signals.next() => {
                    if ![Signal::USR1, Signal::USR2].contains(&signal) {
                        self.asked = Some(signal);
                    }
                    child.signal(signal);
                }
                _ = self.stops.recv() => child.signal(Signal::TSTP),
                _ = held.lost(), if !known => {}
                () = sleep(pause) => {}
            }
        }
    }

    fn look(&self, child: &Child, guard: &mut Guard, now: Instant, standing: Standing<'_>) {
        if let Some(action) = guard.look(now, standing.remaining, standing.standpoint) {
            self.act(child, action, standing.key);
        }
    }

    fn act(&self, child: &Child, action: Action, key: &str) {
        let key = key.to_owned();
        let measure = match action {
            Action::Tell(..) => Measure::Term,
            Action::Kill(_) => Measure::Kill,
            Action::Warn(_) => Measure::Ignore,
        };
        match action {
            Action::Tell(..) => {
                child.signal(Signal::TERM);
                // A stopped program hears nothing.
                child.signal(Signal::CONT);
            }
            Action::Kill(_) => child.signal(Signal::KILL),
            Action::Warn(_) => {}
        }
        self.printer.event(&match action {
            Action::Tell(reason, left) if !left.is_zero() => Event::Expiring {
                key,
                reason,
                remaining_ms: millis(left),
                action: measure,
            },
            Action::Tell(reason, _) | Action::Kill(reason) | Action::Warn(reason) => Event::Lost {
                key,
                reason,
                action: measure,
            },
        });
    }

    /// The child was stopped. Answers whether it is to run on.
    ///
    /// At a terminal we stop with it, so that the shell takes over; the lease then ends when its
    /// time is over, as nobody renews it. Without one the child is somebody else's business, and
    /// its lease is kept.
    fn stopped(&self, child: &Child, signal: Option<i32>) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        let wants_terminal = [Signal::TTIN, Signal::TTOU]
            .map(|s| Some(s.as_raw()))
            .contains(&signal);
        if wants_terminal && terminal.is_ours() {
            return true;
        }
        let asked = signal == Some(Signal::TSTP.as_raw());
        if !(wants_terminal || asked || terminal.is_of(child.group())) {
            return false;
        }
        terminal.take_back(child.group());
        sys::stop_self();
        true
    }

    /// The child runs on, in front if we are.
    fn resume(&self, child: &Child) {
        if let Some(terminal) = &self.terminal
            && terminal.is_ours()
        {
            terminal.give(child.group());
        }
        child.signal(Signal::CONT);
    }
}
