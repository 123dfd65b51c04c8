//! The child and its lease side by side, until the child has ended; if that is wanted, until all that
//! it has started has.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use leasehold::{Any, Loss, MultiLease};
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

use super::loss_policy::Action;
use super::shim::Report;
use super::terminal::Terminal;
use super::{Child, LONGEST_END, LossPolicy, Probe, Reach, SHIM_KILLED, Shim, Start, program};
use crate::exit::Status;
use crate::failure::Failure;
use crate::lease_status::{LeaseStatus, lease_end};
use crate::named_process::NamedProcess;
use crate::output::{Event, LeaseEnd, Measure, Printer, Sequel};
use crate::signals::Signals;
use crate::sys;

/// How soon it is looked again whether all that was killed is gone.
const ROUND: Duration = Duration::from_millis(5);
/// The pause before a child goes on while others have the terminal, where nothing stops us with it:
/// it would be stopped again at once, and again. No event tells whose turn it is: `tcsetpgrp` sends
/// no signal, and where our group has no number in our PID namespace it is never seen to be ours.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(100);

/// How it came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// How we end by it.
    pub(crate) status: Status,
    /// The lease was lost, or so near its end that the child was told to stop.
    pub(crate) lost: bool,
    /// Whether we end, too: a signal to the child was meant for us, or no other run follows.
    pub(crate) ends_us: bool,
}

/// The child that runs, its lease, and what is heard meanwhile.
pub(crate) struct Supervision<'a> {
    printer: &'a Printer,
    signals: &'a mut Signals,
    held: &'a MultiLease<Any>,
    policy: LossPolicy,
    child: Child,
    /// The last signal that went on to the child, or came to it from the terminal, and asks a program
    /// to end.
    asked: Option<Signal>,
    /// What the terminal has sent to the child.
    typed: Option<Signal>,
    /// Who does not take signals from us, and was named.
    refused: BTreeSet<i32>,
    /// Whether it was said that the lease is lost.
    said_lost: bool,
    /// Why it was told to end, as that was said.
    told: Option<LeaseEnd<'a>>,
    terminal: Option<Terminal>,
    /// Whether it gets the terminal when it goes on: not if what stopped it came to our group, in
    /// which another may have it.
    wants_front: bool,
}

impl<'a> Supervision<'a> {
    /// Starts the child, in front of the terminal if there is one for it.
    pub(crate) fn start(
        shim: Shim,
        start: &Start<'_>,
        (held, policy): (&'a MultiLease<Any>, LossPolicy),
        signals: &'a mut Signals,
        printer: &'a Printer,
    ) -> Result<Self, Failure> {
        // Before that, so that nothing that the child does is missed.
        signals.hear(&[Signal::TSTP, Signal::TTIN, Signal::CONT])?;
        let terminal = Terminal::open();
        let program = start.program;
        // To come so far may have taken longer than the lease.
        let may_begin = || !policy.strikes() || !LeaseStatus::of(held).remaining.is_zero();
        let child = Child::start(shim, start, terminal.as_ref(), may_begin);
        Ok(Self {
            printer,
            signals,
            held,
            policy,
            child: child.map_err(|error| program::failure(program, &error))?,
            asked: None,
            typed: None,
            refused: BTreeSet::new(),
            said_lost: false,
            told: None,
            terminal,
            wants_front: true,
        })
    }

    /// Stays with the child to its end; `with_children`, until nothing is left of what it has started.
    pub(crate) async fn run(mut self, with_children: bool) -> Result<Ended, Failure> {
        let mut watched = self.watch().await;
        self.note_typed();
        if with_children && watched.is_ok() && !self.policy.kills() {
            self.take_terminal_back();
            if let Some(left) = self.child.outlast().filter(|_| !self.policy.lost()) {
                self.tell_who_is_left(left);
            }
            watched = self.watch().await;
        }
        // Before the child is reaped, while its number is certainly its own.
        if watched.is_err() {
            self.child.kill_without_shim().await;
        } else if self.policy.lost() && self.policy.strikes() {
            self.end_all().await;
        }
        self.take_terminal_back();
        self.tell_given_up();
        let end = watched
            .and_then(|()| self.child.reap())
            .map_err(|error| Failure::system(format!("cannot wait for the command: {error}")))?;
        // SIGHUP has many programs read their configuration again: what counts is whether it ended the
        // child.
        let hung_up = end.signal == Some(libc::SIGHUP);
        // Whether our caller would have got the signal had the child not had the terminal. A terminal
        // that another group has by now sends that group its signals; one that has gone has ended all.
        let is_for_our_caller = |typed: &Signal| match *typed {
            Signal::HUP => hung_up,
            _ => self.terminal.as_ref().is_some_and(Terminal::is_ours),
        };
        let lost = self.policy.lost();
        let status = Status {
            typed: self.typed.filter(is_for_our_caller),
            ..end
        };
        Ok(Ended {
            status: if lost { status.lost() } else { status },
            lost,
            ends_us: self.asked.is_some_and(|it| it != Signal::HUP || hung_up),
        })
    }

    /// Takes note of what the terminal has sent to the child, which has ended, and not to us: as good as
    /// asked.
    fn note_typed(&mut self) {
        let inferred = self.infer_typed();
        // First: what is typed between the end of the probe and that would reach nobody.
        self.take_terminal_back();
        let typed = self.child.probe.take().and_then(Probe::finish).or(inferred);
        let sent = [Signal::INT, Signal::QUIT, Signal::HUP];
        let sent = sent.into_iter().find(|sent| Some(sent.as_raw()) == typed);
        if let Some(signal) = sent.filter(|&signal| !sys::is_ignored(signal)) {
            self.typed = Some(signal);
            self.asked = Some(signal);
        }
    }

    /// Where nothing beside the child tells it: what has ended it in front of the terminal was typed.
    fn infer_typed(&self) -> Option<i32> {
        let (false, None) = (cfg!(target_os = "linux"), self.asked) else {
            return None;
        };
        let in_front = self.terminal.as_ref()?.is_of(self.child.group()?);
        self.child.end?.signal.filter(|_| in_front)
    }

    /// Returns when the child has ended; after that, when nothing is left of what it had started, or
    /// the rest has to be killed.
    async fn watch(&mut self) -> io::Result<()> {
        loop {
            let (now, status) = self.look();
            if self.policy.kills() {
                if self.child.end.is_some() {
                    return Ok(());
                }
                self.kill(status.key);
            }
            match self.child.change()? {
                Some(Report::Exited(_) | Report::Killed(_) | Report::Alone) => return Ok(()),
                Some(Report::Stopped(signal)) => {
                    if self.stopped(signal) {
                        if !self.terminal.as_ref().is_some_and(Terminal::is_ours) {
                            let (now, status) = self.look();
                            let pause = self.policy.sleep(now, status.remaining, status.state);
                            sleep(pause.min(BACKGROUND_PAUSE)).await;
                        }
                        // The lease may have ended meanwhile: that comes first.
                        self.look();
                        self.resume();
                    }
                    continue;
                }
                // Those came at its start.
                Some(_) => return Err(io::Error::other(SHIM_KILLED)),
                None => {}
            }
            let pause = self.policy.sleep(now, status.remaining, status.state);
            let known = self.policy.lost();
            tokio::select! {
                biased;
                // A failure shows when the change is read.
                _ = self.child.reports.readable() => {}
                signal = self.signals.next_of_all() => match signal {
                    // By SIGTTIN a command beside ours stops all of our group: ours would run on with
                    // a lease that nobody renews, and nobody ends it with that.
                    Signal::TSTP | Signal::TTIN => {
                        self.wants_front = false;
                        self.child.signal(Signal::TSTP);
                        if self.child.end.is_some() && self.terminal.is_some() {
                            // Nobody reports that these have stopped.
                            sys::stop_self();
                            self.look();
                            self.child.signal(Signal::CONT);
                        }
                    }
                    // At a terminal we have stopped with it, and it goes on with us.
                    Signal::CONT if self.terminal.is_some() => {}
                    Signal::CONT => {
                        // The lease may have ended meanwhile: that comes first.
                        self.look();
                        self.child.signal(signal);
                    }
                    _ => {
                        let sequel = (!self.policy.lost()).then_some(Sequel::Kept);
                        self.forward(signal, status.key, sequel);
                    }
                },
                _ = self.held.lost(), if !known => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Has the child get a signal that we got, or what it has left.
    fn forward(&mut self, signal: Signal, key: &str, then: Option<Sequel>) {
        let asks = ![Signal::USR1, Signal::USR2].contains(&signal);
        if asks {
            self.asked = Some(signal);
        }
        let keyboard = [Signal::INT, Signal::QUIT].contains(&signal);
        let signal = match keyboard && self.child.end.is_some() {
            // Shells start what runs in the background with these ignored.
            true => Signal::TERM,
            false => signal,
        };
        let refused = self.child.signal(signal);
        if asks {
            // A stopped program hears nothing.
            self.child.signal(Signal::CONT);
        }
        self.refused(&refused, signal, key, then);
    }

    /// The child has ended, and not all that it has started.
    fn tell_who_is_left(&self, left: Vec<Pid>) {
        let leases = self.held.leases().iter();
        let keys: Vec<_> = leases.map(|lease| lease.key().to_string()).collect();
        let ended = self.child.end.unwrap_or_default();
        let left: Vec<_> = left.into_iter().map(NamedProcess::of).collect();
        self.printer.event(Event::left_running(&keys, ended, &left));
    }

    /// Takes the terminal back from the child, if it had it.
    fn take_terminal_back(&self) {
        let (Some(terminal), Some(group)) = (&self.terminal, self.child.group()) else {
            return;
        };
        terminal.take_back(group);
        if self.child.end.is_some_and(|end| end.signal.is_some()) && terminal.is_ours() {
            terminal.restore();
        }
    }

    /// Kills all that is left of the child after its own end: a lease that is not lost is given
    /// back only then. What is not ours to kill is named, and waited for where that is safer.
    async fn end_all(&mut self) {
        let begun = Instant::now();
        let mut pause = ROUND;
        loop {
            let (_, status) = self.look();
            let left = self.kill(status.key);
            let waits = match left.reached {
                // Only what is another user's.
                0 => !left.refused.is_empty() && self.policy.keeps(),
                _ => begun.elapsed() < LONGEST_END,
            };
            if !waits {
                return;
            }
            tokio::select! {
                signal = self.signals.next_of_all() => match signal {
                    // All of it is to go, and nothing of it is stopped.
                    Signal::TSTP | Signal::TTIN | Signal::CONT => {}
                    _ => {
                        self.asked = Some(signal);
                        return;
                    }
                },
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Looks at the lease, and does what is to be done about it. Answers what was seen, and when.
    fn look(&mut self) -> (Instant, LeaseStatus<'a>) {
        let (now, status) = (Instant::now(), LeaseStatus::of(self.held));
        let action = self.policy.look(now, status.remaining, status.state);
        if let Some(action) = action {
            self.act(action);
        }
        (now, status)
    }

    fn act(&mut self, action: Action) {
        let (signal, measure, reason, left) = match action {
            Action::Tell(reason, left) => (Some(Signal::TERM), Measure::Term, reason, left),
            // It is being killed already, and was kept until it is gone; its lease was not.
            Action::Warn(_) if self.policy.kills() && self.said_lost => return,
            Action::Warn(reason) if !self.policy.kills() => {
                (None, Measure::Ignore, reason, Duration::ZERO)
            }
            Action::Kill(reason) | Action::Warn(reason) => {
                (Some(Signal::KILL), Measure::Kill, reason, Duration::ZERO)
            }
        };
        let refused = signal.map_or(Vec::new(), |signal| self.child.signal_all(signal).refused);
        if signal == Some(Signal::TERM) {
            // A stopped program hears nothing.
            self.child.signal_all(Signal::CONT);
        }
        let action = match refused.is_empty() {
            true => measure,
            false => Measure::Refused,
        };
        let overdue = self.policy.keeps() && measure == Measure::Kill && action == Measure::Refused;
        let end = lease_end(self.held, reason, action);
        let key = end.key;
        self.said_lost |= left.is_zero() && !overdue;
        let told = self.told.as_ref().map(|told| told.reason);
        let is_told = reason == Loss::MaxHold && told == Some(reason);
        self.printer.event(match left {
            Duration::ZERO if overdue => Event::overdue(key, reason),
            Duration::ZERO => Event::lost(&end, is_told),
            _ => Event::expiring(&end, left),
        });
        self.told = Some(end);
        if let Some(signal) = signal {
            // Said once more when it matters more.
            self.refused.clear();
            let sequel = left.is_zero().then(|| self.sequel());
            self.refused(&refused, signal, key, sequel);
        }
    }

    /// A child that was told to stop has done so before its lease has ended: that counts as lost.
    fn tell_given_up(&mut self) {
        let is_given_up = |told: &LeaseEnd<'_>| !self.said_lost && told.reason != Loss::MaxHold;
        if let Some(mut end) = self.told.take().filter(is_given_up) {
            end.action = Measure::None;
            self.printer.event(Event::lost(&end, true));
        }
    }

    /// Kills the child and all that it has started, as often as it takes. Answers what was left to kill.
    fn kill(&mut self, key: &str) -> Reach {
        let left = self.child.signal_all(Signal::KILL);
        self.refused(&left.refused, Signal::KILL, key, Some(self.sequel()));
        left
    }

    /// Names those that the signal was refused for, each once.
    fn refused(&mut self, refused: &[Pid], signal: Signal, key: &str, then: Option<Sequel>) {
        let new = refused.iter().copied();
        let new = new.filter(|pid| self.refused.insert(pid.as_raw_nonzero().get()));
        let processes: Vec<_> = new.map(NamedProcess::of).collect();
        if !processes.is_empty() {
            self.printer
                .event(Event::refused(key, signal, &processes, then));
        }
    }

    /// The child was stopped. Answers whether it is to run on.
    ///
    /// At a terminal we stop with it, so that the shell takes over; the lease then ends when its
    /// time is over, as nobody renews it. Without one the child is somebody else's business, and
    /// its lease is kept. Where another command of the same script has the terminal, no shell would
    /// take over: ours waits for its turn.
    fn stopped(&mut self, signal: i32) -> bool {
        let Some(terminal) = &self.terminal else {
            return false;
        };
        let wants_terminal = [libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        let group = self.child.group();
        let in_front = group.is_some_and(|group| terminal.is_of(group));
        self.wants_front |= wants_terminal || in_front;
        if wants_terminal && terminal.is_of_our_job() {
            return true;
        }
        let asked = signal == libc::SIGTSTP;
        if !(wants_terminal || asked || in_front) {
            return false;
        }
        self.take_terminal_back();
        match signal {
            // For SIGTTOU, too, which stays blocked here.
            _ if wants_terminal => sys::stop_group(Signal::TTIN),
            _ if asked && in_front => sys::stop_group(Signal::TSTP),
            _ => sys::stop_self(),
        }
        true
    }

    /// The child runs on, in front if we are and it wants that.
    fn resume(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.child.group())
            && self.wants_front
            && terminal.is_ours()
        {
            terminal.give(group);
        }
        self.child.signal(Signal::CONT);
    }

    /// What comes of a command that is not to be ended.
    fn sequel(&self) -> Sequel {
        match self.policy.keeps() {
            true => Sequel::Kept,
            false => Sequel::MayOverlap,
        }
    }
}
