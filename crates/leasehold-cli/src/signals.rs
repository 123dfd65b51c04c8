//! The signals that end a wait and go on to the guarded command.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::sys;

/// What a person or a supervisor sends. SIGKILL and SIGSTOP cannot be caught; a terminal sends
/// the news of its size by itself.
const HANDLED: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// How long what is being written when a signal comes may take.
pub(crate) const LAST_WRITE: Duration = Duration::from_secs(1);

/// Signals as events, from the moment this was made.
#[derive(Default)]
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
    /// Counts as SIGHUP when it completes.
    bound: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Signals {
    /// Begins to listen. What was ignored when we were started stays ignored, for the child too:
    /// so `nohup` works.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Self::default();
        signals.hear(&HANDLED)?;
        Ok(signals)
    }

    /// Has the end of something else count as SIGHUP.
    pub(crate) fn end_with(&mut self, bound: impl Future<Output = ()> + 'static) {
        self.bound = Some(Box::pin(bound));
    }

    /// Begins to listen to these, too, unless they are ignored: the runtime catches them from then
    /// on.
    pub(crate) fn hear(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for &signal in signals {
            let is_heard = self.heard.iter().any(|(heard, _)| *heard == signal);
            if !is_heard && !sys::is_ignored(signal) {
                self.heard.push((signal, stream(signal)?));
            }
        }
        Ok(())
    }

    /// The next signal that asks us to end. This process stops by itself meanwhile.
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            match self.next_of_all().await {
                Signal::TSTP | Signal::TTIN => sys::stop_self(),
                Signal::CONT => {}
                signal => return signal,
            }
        }
    }

    /// The next signal, of those that stop and go on, too.
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next_of_all(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.heard {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            let bound = self.bound.as_mut();
            let ended = bound.is_some_and(|bound| bound.as_mut().poll(context).is_ready());
            if ended {
                self.bound = None;
                return Poll::Ready(Signal::HUP);
            }
            Poll::Pending
        })
        .await
    }

    /// Awaits what is being written, whose reader may have stopped. Answers whether to go on: somebody
    /// reads, and no signal came.
    pub(crate) async fn while_writing(
        &mut self,
        writing: impl Future<Output = Result<bool, Failure>>,
    ) -> Result<bool, Failure> {
        let mut writing = pin!(writing);
        tokio::select! {
            biased;
            is_read = &mut writing => is_read,
            _ = self.next() => {
                let last = timeout(LAST_WRITE, writing).await;
                last.unwrap_or(Ok(false)).map(|_| false)
            }
        }
    }
}

/// One signal as a stream of events.
pub(crate) fn stream(signal: Signal) -> Result<unix::Signal, Failure> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
        .map_err(|error| Failure::system(format!("cannot listen to signals: {error}")))
}
