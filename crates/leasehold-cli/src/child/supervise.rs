//! The child and its lease side by side, until the child has ended; if that is wanted, until all that
//! it has started has.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use leasehold::{Any, Loss, MultiLease};
use rustix::process::{Pid, Signal};
use tokio::signal::unix;
use tokio::time::{Instant, sleep};

use super::loss_policy::Action;
use super::terminal::Terminal;
use super::{Change, Child, End, LONGEST_END, LossPolicy, NamedProcess, Shim, Start};
use crate::duration::millis;
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::lease_status::{LeaseStatus, renewal_error};
use crate::output::{Event, Keys, LeaseEnd, Measure, Printer, Sequel};
use crate::signals::{self, Signals};
use crate::sys;

/// How soon it is looked again whether all that was killed is gone.
const ROUND: Duration = Duration::from_millis(5);

/// How it came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) end: End,
    /// The lease was lost, or so near its end that the child was told to stop.
    pub(crate) lost: bool,
    /// The last signal that went on to the child, or came to it from the terminal, and asks a program
    /// to end.
    pub(crate) asked: Option<Signal>,
    /// What the terminal has sent to the child, where our caller is to get it, too.
    pub(crate) typed: Option<Signal>,
}

impl Ended {
    /// How we end by it.
    pub(crate) fn status(&self) -> Status {
        let (code, signal) = self.end.status();
        let status = Status {
            code,
            signal,
            typed: self.typed,
        };
        match self.lost {
            true => status.lost(),
            false => status,
        }
    }

    /// Whether a signal to the child was meant for us, too. SIGHUP has many programs read their
    /// configuration again: it ends us if it ended the child.
    pub(crate) fn asks_us_to_end(&self) -> bool {
        match self.asked {
            Some(Signal::HUP) => self.end == End::Signalled(libc::SIGHUP),
            asked => asked.is_some(),
        }
    }
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
    typed: Option<Signal>,
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
            typed: None,
            refused: BTreeSet::new(),
            stops: signals::stream(Signal::TSTP).map_err(signals::refused)?,
            terminal: Terminal::open(),
        })
    }

    /// Starts the child, in front of the terminal if there is one for it.
    pub(crate) fn start(&self, shim: Shim, start: Start<'_>) -> io::Result<Child> {
        Child::start(shim, start, self.terminal.as_ref())
    }

    /// Stays with the child to its end; `with_children`, until nothing is left of what it has started.
    pub(crate) async fn run(
        mut self,
        mut child: Child,
        with_children: bool,
        held: &MultiLease<Any>,
        mut guard: LossPolicy,
    ) -> Result<Ended, Failure> {
        let mut watched = self.watch(&mut child, held, &mut guard).await;
        self.typed(&mut child);
        if with_children && watched.is_ok() && !guard.kills() {
            self.take_terminal_back(&child);
            if let Some(left) = child.outlast().filter(|_| !guard.lost()) {
                self.tell_who_is_left(&child, left, held);
            }
            watched = self.watch(&mut child, held, &mut guard).await;
        }
        // Before the child is reaped, while its number is certainly its own.
        if watched.is_err() {
            child.kill_without_shim().await;
        } else if guard.lost() && guard.strikes() {
            self.end_all(&child, held, &mut guard).await;
        }
        self.take_terminal_back(&child);
        let end = watched.and_then(|()| child.reap()).map_err(|error| {
            Failure::new(
                exit::SYSTEM,
                format!("cannot wait for the command: {error}"),
            )
        })?;
        Ok(Ended {
            end,
            lost: guard.lost(),
            asked: self.asked,
            typed: self
                .typed
                .filter(|&typed| self.is_for_our_caller(typed, end)),
        })
    }

    /// Takes note of what the terminal has sent to the child, which has ended, and not to us: as good as
    /// asked.
    fn typed(&mut self, child: &mut Child) {
        let typed = child.typed().or_else(|| self.infer_typed(child));
        let sent = [Signal::INT, Signal::QUIT, Signal::HUP];
        let sent = sent.into_iter().find(|sent| Some(sent.as_raw()) == typed);
        if let Some(signal) = sent.filter(|&signal| !sys::is_ignored(signal)) {
            self.typed = Some(signal);
            self.asked = Some(signal);
        }
    }

    /// Where nothing beside the child tells it: what has ended it in front of the terminal was typed.
    fn infer_typed(&self, child: &Child) -> Option<i32> {
        let (false, None) = (cfg!(target_os = "linux"), self.asked) else {
            return None;
        };
        let in_front = self.terminal.as_ref()?.is_of(child.group()?);
        match child.end()? {
            End::Signalled(signal) if in_front => Some(signal),
            _ => None,
        }
    }

    /// Whether our caller would have got the signal had the child not had the terminal. A terminal
    /// that another group has by now sends that group its signals; one that has gone has ended all.
    fn is_for_our_caller(&self, typed: Signal, end: End) -> bool {
        match typed {
            Signal::HUP => end == End::Signalled(libc::SIGHUP),
            _ => self.terminal.as_ref().is_some_and(Terminal::is_ours),
        }
    }

    /// Returns when the child has ended; after that, when nothing is left of what it had started, or
    /// the rest has to be killed.
    async fn watch(
        &mut self,
        child: &mut Child,
        held: &MultiLease<Any>,
        guard: &mut LossPolicy,
    ) -> io::Result<()> {
        loop {
            let (now, status) = self.look(child, guard, held);
            if guard.kills() {
                if child.end().is_some() {
                    return Ok(());
                }
                self.kill(child, guard, status.key);
            }
            match child.change()? {
                Some(Change::Ended | Change::Alone) => return Ok(()),
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
            let pause = guard.sleep(now, status.remaining, status.standpoint);
            let known = guard.lost();
            tokio::select! {
                biased;
                () = child.may_have_changed() => {}
                signal = self.signals.next() => {
                    let sequel = (!guard.lost()).then_some(Sequel::Kept);
                    self.forward(child, signal, status.key, sequel);
                }
                _ = self.stops.recv() => {
                    child.signal(Signal::TSTP);
                    if child.end().is_some() && self.terminal.is_some() {
                        // Nobody reports that these have stopped.
                        sys::stop_self();
                        self.look(child, guard, held);
                        child.signal(Signal::CONT);
                    }
                }
                _ = held.lost(), if !known => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Has the child get a signal that we got, or what it has left.
    fn forward(&mut self, child: &Child, signal: Signal, key: &str, then: Option<Sequel>) {
        if ![Signal::USR1, Signal::USR2].contains(&signal) {
            self.asked = Some(signal);
        }
        let keyboard = [Signal::INT, Signal::QUIT].contains(&signal);
        let signal = match keyboard && child.end().is_some() {
            // Shells start what runs in the background with these ignored.
            true => Signal::TERM,
            false => signal,
        };
        let refused = child.signal(signal);
        self.refused(refused, signal, key, then);
    }

    /// The child has ended, and not all that it has started.
    fn tell_who_is_left(&self, child: &Child, left: Vec<Pid>, held: &MultiLease<Any>) {
        let keys = held.parts().iter().map(|lease| lease.key().to_string());
        let keys: Vec<_> = keys.collect();
        let (status, signal) = child.end().map(End::status).unwrap_or_default();
        self.printer.event(&Event::LeftRunning {
            keys: Keys::from(&*keys),
            status,
            signal,
            processes: left.into_iter().map(NamedProcess::of).collect(),
        });
    }

    /// Takes the terminal back from the child, if it had it.
    fn take_terminal_back(&self, child: &Child) {
        let (Some(terminal), Some(group)) = (&self.terminal, child.group()) else {
            return;
        };
        terminal.take_back(group);
        if matches!(child.end(), Some(End::Signalled(_))) && terminal.is_ours() {
            terminal.restore();
        }
    }

    /// Kills all that is left of the child after its own end: a lease that is not lost is given
    /// back only then. What is not ours to kill is named, and waited for where that is safer.
    async fn end_all(&mut self, child: &Child, held: &MultiLease<Any>, guard: &mut LossPolicy) {
        let begun = Instant::now();
        let mut pause = ROUND;
        loop {
            let (_, status) = self.look(child, guard, held);
            let waits = match self.kill(child, guard, status.key) {
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
        guard: &mut LossPolicy,
        held: &'h MultiLease<Any>,
    ) -> (Instant, LeaseStatus<'h>) {
        let (now, status) = (Instant::now(), LeaseStatus::of(held));
        if let Some(action) = guard.look(now, status.remaining, status.standpoint) {
            let cause = renewal_error(held, status.key);
            self.act(child, guard, action, status.key, cause);
        }
        (now, status)
    }

    fn act(
        &mut self,
        child: &Child,
        guard: &LossPolicy,
        action: Action,
        key: &str,
        cause: Option<String>,
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
            cause: cause.filter(|_| matters),
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
    fn kill(&mut self, child: &Child, guard: &LossPolicy, key: &str) -> Left {
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
        let processes: Vec<_> = new.map(NamedProcess::of).collect();
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
        let in_front = child.group().is_some_and(|group| terminal.is_of(group));
        if !(wants_terminal || asked || in_front) {
            return false;
        }
        self.take_terminal_back(child);
        sys::stop_self();
        true
    }

    /// The child runs on, in front if we are.
    fn resume(&self, child: &Child) {
        if let (Some(terminal), Some(group)) = (&self.terminal, child.group())
            && terminal.is_ours()
        {
            terminal.give(group);
        }
        child.signal(Signal::CONT);
    }
}

/// What comes of a command that is not to be ended.
fn sequel(guard: &LossPolicy) -> Sequel {
    match guard.keeps() {
        true => Sequel::Kept,
        false => Sequel::MayOverlap,
    }
}
