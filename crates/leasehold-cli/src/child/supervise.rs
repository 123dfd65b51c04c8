//! The child and its lease side by side, until the child has ended.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use leasehold::{Any, Loss, MultiLease};
use rustix::process::{Pid, Signal};
use tokio::signal::unix;
use tokio::time::{Instant, sleep};

use super::guard::Action;
use super::terminal::Terminal;
use super::{Change, Child, End, Guard, Refusal, Start, program};
use crate::duration::millis;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Event, LeaseEnd, Measure, Printer, Sequel};
use crate::signals::{self, Signals};
use crate::standing::{Standing, Trouble};
use crate::sys;

/// How soon it is looked again whether all that was killed is gone.
const ROUND: Duration = Duration::from_millis(5);

/// How long that which sleeps in the kernel is waited for after the child itself has ended.
const LONGEST_END: Duration = Duration::from_secs(5);

/// How it came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) end: End,
    /// The lease was lost, or so near its end that the child was told to stop.
    pub(crate) lost: bool,
    /// The last signal that went on to the child and asks a program to end.
    pub(crate) asked: Option<Signal>,
}

/// What is left of the child and of what it has started, after all were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Dying,
    /// Only what is another user's.
    Refused,
}

/// What is heard while the child runs.
#[derive(Debug)]
pub(crate) struct Supervision<'a> {
    printer: &'a Printer,
    signals: &'a mut Signals,
    asked: Option<Signal>,
    /// Who does not take signals from us, and was named.
    refused: BTreeSet<i32>,
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
            refused: BTreeSet::new(),
            stops: signals::stream(Signal::TSTP).map_err(signals::refused)?,
            terminal: Terminal::open(),
        })
    }

    /// Starts the child and stays with it to its end.
    pub(crate) async fn run(
        mut self,
        start: Start<'_>,
        held: &MultiLease<Any>,
        mut guard: Guard,
    ) -> Result<Ended, Failure> {
        let program = start.program;
        let mut child = Child::start(start, self.terminal.as_ref())
            .map_err(|error| program::failure(program, &error))?;
        let watched = self.watch(&mut child, held, &mut guard).await;
        // Before the child is reaped, while its number is certainly its own.
        if watched.is_err() {
            child.kill_without_shim().await;
        } else if guard.lost() && guard.strikes() {
            self.end_all(&child, held, &mut guard).await;
        }
        let group = child.group();
        let reaped = child.reap();
        let end = watched.and(reaped);
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
        child: &mut Child,
        held: &MultiLease<Any>,
        guard: &mut Guard,
    ) -> io::Result<()> {
        loop {
            let (now, standing) = self.look(child, guard, held);
            if guard.kills() {
                self.kill(child, guard, standing.key);
            }
            match child.change()? {
                Some(Change::Ended) => return Ok(()),
                Some(Change::Stopped(signal)) => {
                    if self.stopped(child, signal) {
                        // The lease may have ended meanwhile: that comes first.
                        self.look(child, guard, held);
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
                () = child.may_have_changed() => {}
                signal = self.signals.next() => {
                    if ![Signal::USR1, Signal::USR2].contains(&signal) {
                        self.asked = Some(signal);
                    }
                    let refused = child.signal(signal);
                    let sequel = (!guard.lost()).then_some(Sequel::Kept);
                    self.refused(refused, signal, standing.key, sequel);
                }
                _ = self.stops.recv() => drop(child.signal(Signal::TSTP)),
                _ = held.lost(), if !known => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Kills all that is left of the child after its own end: a lease that is not lost is given
    /// back only then. What is not ours to kill is named, and waited for where that is safer.
    async fn end_all(&mut self, child: &Child, held: &MultiLease<Any>, guard: &mut Guard) {
        let begun = Instant::now();
        let mut pause = ROUND;
        loop {
            let (_, standing) = self.look(child, guard, held);
            let waits = match self.kill(child, guard, standing.key) {
                Left::Nothing => false,
                Left::Dying => begun.elapsed() < LONGEST_END,
                Left::Refused => guard.keeps(),
            };
            if !waits {
                return;
            }
            tokio::select! {
                signal = self.signals.next() => {
                    self.asked = Some(signal);
                    return;
                }
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Looks at the lease, and does what is to be done about it. Answers what was seen, and when.
    fn look<'h>(
        &mut self,
        child: &Child,
        guard: &mut Guard,
        held: &'h MultiLease<Any>,
    ) -> (Instant, Standing<'h>) {
        let (now, standing) = (Instant::now(), Standing::of(held));
        if let Some(action) = guard.look(now, standing.remaining, standing.standpoint) {
            let trouble = Trouble::of(held, standing.key);
            self.act(child, guard, action, standing.key, trouble);
        }
        (now, standing)
    }

    fn act(
        &mut self,
        child: &Child,
        guard: &Guard,
        action: Action,
        key: &str,
        trouble: Option<Trouble>,
    ) {
        let (signal, measure, reason, left) = match action {
            Action::Tell(reason, left) => (Some(Signal::TERM), Measure::Term, reason, left),
            Action::Kill(reason) => (Some(Signal::KILL), Measure::Kill, reason, Duration::ZERO),
            Action::Warn(reason) => (None, Measure::Ignore, reason, Duration::ZERO),
        };
        let refused = signal.map_or(Vec::new(), |signal| child.signal_all(signal).refused);
        if signal == Some(Signal::TERM) {
            // A stopped program hears nothing.
            child.signal_all(Signal::CONT);
        }
        let action = match refused.is_empty() {
            true => measure,
            false => Measure::Refused,
        };
        let overdue = guard.keeps() && measure == Measure::Kill && action == Measure::Refused;
        let matters = match left {
            Duration::ZERO => reason == Loss::Unanswered,
            _ => reason != Loss::MaxHold,
        };
        let end = LeaseEnd {
            key: key.to_owned(),
            reason,
            remaining_ms: (!left.is_zero()).then(|| millis(left)),
            action,
            trouble: trouble.filter(|_| matters),
        };
        self.printer.event(&match left {
            Duration::ZERO if overdue => Event::Overdue {
                key: end.key,
                reason,
            },
            Duration::ZERO => Event::Lost(end),
            _ => Event::Expiring(end),
        });
        if let Some(signal) = signal {
            // Said once more when it matters more.
            self.refused.clear();
            let sequel = left.is_zero().then(|| sequel(guard));
            self.refused(refused, signal, key, sequel);
        }
    }

    /// Kills the child and all that it has started, as often as it takes.
    fn kill(&mut self, child: &Child, guard: &Guard, key: &str) -> Left {
        let reach = child.signal_all(Signal::KILL);
        let left = match (reach.reached, &*reach.refused) {
            (0, []) => Left::Nothing,
            (0, _) => Left::Refused,
            _ => Left::Dying,
        };
        self.refused(reach.refused, Signal::KILL, key, Some(sequel(guard)));
        left
    }

    /// Names those that the signal was refused for, each once.
    fn refused(
        &mut self,
        refused: impl IntoIterator<Item = Pid>,
        signal: Signal,
        key: &str,
        then: Option<Sequel>,
    ) {
        let refused = refused.into_iter();
        let new = refused.filter(|pid| self.refused.insert(pid.as_raw_nonzero().get()));
        let processes: Vec<_> = new.map(Refusal::of).collect();
        if !processes.is_empty() {
            self.printer.event(&Event::Refused {
                key: key.to_owned(),
                signal: signal.as_raw(),
                processes,
                then,
            });
        }
    }

    /// The child was stopped. Answers whether it is to run on.
    ///
    /// At a terminal we stop with it, so that the shell takes over; the lease then ends when its
    /// time is over, as nobody renews it. Without one the child is somebody else's business, and
    /// its lease is kept.
    fn stopped(&self, child: &Child, signal: i32) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        let wants_terminal = [libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        if wants_terminal && terminal.is_ours() {
            return true;
        }
        let asked = signal == libc::SIGTSTP;
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

/// What comes of a command that is not to be ended.
fn sequel(guard: &Guard) -> Sequel {
    match guard.keeps() {
        true => Sequel::Kept,
        false => Sequel::MayOverlap,
    }
}
