//! Retries while the store cannot be used: it is out of reach, it starts, or it is in quarantine.
//!
//! The library answers `Unavailable`, or `Refused` with a time to come back: asking again is up
//! to its caller. Here the command asks again, for as long as `-w` lets it. A server that answers
//! that it cannot do it now is asked again by the library, as long as the lock is waited for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, OptionFuture};
use leasehold::ErrorKind;
use leasehold::core::{Backoff, GRACE};
use leasehold::observe::{Fact, ObservedClaim, Observer, StoreRequest};
use leasehold_console::feed::send_if_other;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, sleep, timeout};

use crate::config::CommandSettings;
use crate::duration::spoken;
use crate::failure::Failure;
use crate::output::{Event, Printer};
use crate::signals::Signals;

/// The first pause between two tries, at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest one, also where the store says that it takes longer: it may be sooner, as when
/// another server of a quorum comes back.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How patiently the lock is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// How long the lock is waited for: zero is not at all, [`Duration::MAX`] for ever.
    pub(crate) wait: Duration,
    /// The longest outage that is waited through, if it is not as long as the lock is waited for.
    pub(crate) retry_for: Option<Duration>,
}

impl Patience {
    /// As it is set.
    pub(crate) fn of(set: &CommandSettings) -> Self {
        Self {
            wait: set.wait().value,
            retry_for: set.retry_for(),
        }
    }

    /// The same for what is waited for as long as it takes.
    pub(crate) fn for_ever(self) -> Self {
        let wait = Duration::MAX;
        Self { wait, ..self }
    }
}

/// How long a lock is waited for, and what was said about the store meanwhile.
#[derive(Debug)]
pub(crate) struct Retries<'a> {
    printer: &'a Printer,
    keys: Vec<String>,
    patience: Patience,
    /// When the time began.
    start: Instant,
    pauses: Backoff,
    outage: Option<Outage>,
    /// Whether it was said that the store cannot be used.
    pub(crate) interrupted: bool,
    /// What the store answers while the library waits: its observer, and what it hears.
    pub(crate) not_now: NotNow,
}

/// The store cannot be used.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// The reasons that were told, without their numbers.
    told: Vec<String>,
    last: Failure,
}

impl<'a> Retries<'a> {
    /// The time begins now.
    pub(crate) fn new(keys: &[String], patience: Patience, printer: &'a Printer) -> Self {
        // Those who wait for the same server should not all come back at once.
        let nanoseconds = clock_gettime(ClockId::Realtime).tv_nsec.unsigned_abs();
        let seed = (u64::from(std::process::id()) << 32) ^ nanoseconds;
        Self {
            printer,
            keys: keys.to_vec(),
            patience,
            start: Instant::now(),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed),
            outage: None,
            interrupted: false,
            not_now: NotNow::default(),
        }
    }

    /// The same for what is asked for next: the time begins now.
    pub(crate) fn begin_again(&mut self) {
        self.start = Instant::now();
        self.pauses.reset();
        (self.outage, self.interrupted) = (None, false);
    }

    /// What is left of the time. When it is over, the lock may still be free: it is asked for
    /// once, in any case.
    pub(crate) fn left(&self) -> Duration {
        match self.patience.wait {
            Duration::MAX => Duration::MAX,
            limit => limit.saturating_sub(self.start.elapsed()),
        }
    }

    /// How long a store that does not answer is waited for: until that time is over, and one
    /// allowance with it. And the failure of one that has not answered by then.
    pub(crate) fn time_limit(&self, wait: Duration) -> (Duration, Failure) {
        let left = match wait {
            Duration::ZERO | Duration::MAX => Duration::MAX,
            limit => limit.saturating_add(GRACE).saturating_sub(self.elapsed()),
        };
        let limit = spoken(wait);
        let message = format!("the store did not answer in the time limit of {limit}");
        // With a moment for what the library says itself at that time.
        let left = left.saturating_add(Duration::from_millis(50));
        (left, Failure::unanswered(message))
    }

    /// Whether the time was over before the store was known to be in trouble.
    pub(crate) fn are_over(&self) -> bool {
        self.left().is_zero() && !self.interrupted
    }

    /// Since the time began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Asks until there is an answer, through outages of the store as long as there is time; until a
    /// signal.
    pub(crate) async fn retry<T>(
        &mut self,
        signals: &mut Signals,
        mut ask: impl AsyncFnMut(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            let (limit, silent) = self.time_limit(self.patience.wait);
            let answer = tokio::select! {
                biased;
                // What we are bound to may have ended before.
                signal = signals.next() => return Err(self.ended_by(signal)),
                answer = timeout(limit, ask(self)) => answer.unwrap_or(Err(silent)),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.pause(failure, signals).await?,
            }
        }
    }

    /// Pauses after a failure, before the next try.
    ///
    /// # Errors
    /// The failure, where trying again does not help or there is no time left for it; a signal.
    pub(crate) async fn pause(
        &mut self,
        failure: Failure,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let retries = self.patience.retry_for.is_some() || !self.patience.wait.is_zero();
        if !failure.passing || !retries {
            return Err(failure);
        }
        let left = self.left_for_the_store();
        if left.is_zero() {
            // The end of the wait has cut the last try short: what failed before says more.
            let is_cut = !self.patience.wait.is_zero() && self.left().is_zero();
            let failure = self.outage().filter(|_| is_cut).unwrap_or(failure);
            return Err(self.gave_up(failure));
        }
        self.unusable(&failure);
        let shortest = self.pauses.pause();
        let after = failure.retry_after.unwrap_or_default();
        let pause = after.clamp(shortest, LONGEST_PAUSE);
        tokio::select! {
            biased;
            signal = signals.next() => Err(self.ended_by(signal)),
            () = sleep(pause), if pause < left => Ok(()),
            () = sleep(left) => Err(self.gave_up(failure)),
        }
    }

    /// Says that the store cannot be used, once for each reason.
    pub(crate) fn unusable(&mut self, failure: &Failure) {
        self.interrupted = true;
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: Instant::now(),
            told: Vec::new(),
            last: failure.clone(),
        });
        outage.last = failure.clone();
        // What is left of a quarantine is another number each time.
        let reason = failure.message.replace(|c: char| c.is_ascii_digit(), "");
        if outage.told.contains(&reason) {
            return;
        }
        outage.told.push(reason);
        let left = Some(self.left_for_the_store()).filter(|left| *left != Duration::MAX);
        self.printer
            .event(Event::store_unavailable(&self.keys, failure, left));
    }

    /// For how long the store is asked again from now on, while it cannot be used.
    fn left_for_the_store(&self) -> Duration {
        let Some(limit) = self.patience.retry_for else {
            return self.left();
        };
        let waiting = match self.patience.wait {
            // Only the outage is waited through, and not the holder.
            Duration::ZERO => Duration::MAX,
            _ => self.left(),
        };
        let outage = self.outage.as_ref().map(|outage| outage.since.elapsed());
        waiting.min(limit.saturating_sub(outage.unwrap_or_default()))
    }

    /// Awaits an answer of the store, until the outage, if there is one, has lasted as long as it may.
    pub(crate) async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            // Also where a busy machine comes to both too late.
            biased;
            answer = asked => answer,
            Some(failure) = self.over() => Err(failure),
        }
    }

    /// Completes when the outage, if there is one, has lasted as long as it may: with its failure.
    pub(crate) fn over(&self) -> impl Future<Output = Option<Failure>> + use<> {
        let left = self.left_for_the_store();
        // Where the wait for the lock is all that limits the outage, it is not over before that.
        let last = self.outage().filter(|_| self.patience.retry_for.is_some());
        OptionFuture::from(last.map(|last| sleep(left).map(|()| last)))
    }

    /// Tells what the store answers while the library waits, until the outage is over.
    pub(crate) async fn follow(&mut self, answers: &mut Receiver<Option<Failure>>) -> Failure {
        loop {
            tokio::select! {
                Some(failure) = self.over() => return failure,
                Ok(()) = answers.changed() => {
                    match answers.borrow_and_update().clone() {
                        Some(failure) => self.unusable(&failure),
                        None => self.usable(),
                    }
                }
            }
        }
    }

    /// The store has answered a question: it can be used, unless it takes no claim now.
    pub(crate) fn answered(&mut self) {
        if self.not_now.0.borrow().is_none() {
            self.usable();
        }
    }

    /// Why the store cannot be used, as far as is known.
    pub(crate) fn outage(&self) -> Option<Failure> {
        self.outage.as_ref().map(|outage| outage.last.clone())
    }

    /// Says that the store can be used, if it was told that it could not.
    pub(crate) fn usable(&mut self) {
        self.pauses.reset();
        if let Some(outage) = self.outage.take() {
            let after = outage.since.elapsed();
            self.printer
                .event(Event::store_available(&self.keys, after));
        }
    }

    /// Says that a signal has ended the waiting, and nothing else failed.
    pub(crate) fn ended_by(&self, signal: Signal) -> Failure {
        let event = Event::withdrawn(&self.keys, signal, self.elapsed());
        self.printer.event(event);
        Failure::ended_by(signal)
    }

    /// The same failure, at the end of the time.
    pub(crate) fn gave_up(&self, failure: Failure) -> Failure {
        let after = spoken(self.start.elapsed());
        Failure {
            message: format!("gave up after {after}: {}", failure.message),
            ..failure
        }
    }
}

/// What the store has answered last to a lock that is waited for: a failure that passes by itself, or
/// `None` for any other. The library asks again by itself then: nothing else tells the user why it
/// takes so long.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotNow(Arc<Sender<Option<Failure>>>);

impl NotNow {
    /// What is answered from now on.
    pub(crate) fn listen(&self) -> Receiver<Option<Failure>> {
        self.0.send_replace(None);
        self.0.subscribe()
    }
}

impl Observer for NotNow {
    fn observe(&self, _: &ObservedClaim, _: Fact) {}

    fn request(&self, request: StoreRequest<'_>) {
        let said = match (request.failed, request.error) {
            (None, _) => None,
            (Some(ErrorKind::Unavailable), Some(error)) if error.retry_after().is_some() => {
                let (failure, key) = (Failure::from(error.clone()), request.key);
                Some(Failure {
                    message: format!("cannot acquire {key:?}: {error}"),
                    ..failure
                })
            }
            _ => return,
        };
        if request.verb != "release" {
            send_if_other(&self.0, said);
        }
    }
}
