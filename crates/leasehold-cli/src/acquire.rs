//! Getting the lock, and saying so: waiting, giving up, being interrupted.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Acquire, Client, ErrorKind, OnProgress, Progress, Wait};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

use crate::cli::WaitArgs;
use crate::duration::millis;
use crate::failure::Failure;
use crate::held::Held;
use crate::output::{Acknowledgements, Event, Keys, Printer};
use crate::signals::Signals;
use crate::sys;
use crate::view::{ClaimView, KeyView};
use crate::waiting::Live;
use crate::wanted::{Got, Wanted};

/// How long asking who holds may take, when it is only for a message.
const CURIOSITY: Duration = Duration::from_secs(1);
/// How often a live line is brought up to date.
const TICK: Duration = Duration::from_millis(250);

/// How it came out.
pub(crate) enum Outcome {
    /// We hold it.
    Granted(Held),
    /// Not in time.
    Conflict,
    /// A signal ended the waiting. The queue was left.
    Signalled(Signal),
}

/// How long to wait, and what is said when that was in vain.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    Wait(Wait),
    /// Not at all, as it is done once in so long: busy is nothing to worry about.
    Once {
        least: Duration,
    },
}

impl From<&WaitArgs> for Patience {
    fn from(asked: &WaitArgs) -> Self {
        Self::Wait(match asked.wait {
            _ if asked.no_wait => Wait::No,
            Some(Duration::ZERO) => Wait::No,
            Some(limit) => Wait::For(limit),
            None => Wait::Forever,
        })
    }
}

/// Asks for the lock and waits as long as was said.
pub(crate) async fn acquire(
    client: &Client,
    wanted: &Wanted,
    patience: Patience,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<Outcome, Failure> {
    let wait = match patience {
        Patience::Wait(wait) => wait,
        Patience::Once { .. } => Wait::No,
    };
    let mut scene = Scene {
        client,
        printer,
        wanted,
        start: Instant::now(),
        position: 0,
        rejoined: 0,
        announced: false,
        live: None,
    };
    let ended = scene.play(wait, signals).await;
    printer.show_live(None);
    Ok(match ended? {
        Ending::Got(Got { held, recovered }) => {
            printer.event(&Event::Acquired {
                keys: Keys::from(&*wanted.keys),
                tokens: held.tokens(),
                waited_ms: millis(held.waited()),
                acknowledged: held.acknowledged().map(Acknowledgements::from),
                recovered,
                announced: scene.announced,
            });
            Outcome::Granted(held)
        }
        Ending::Busy => {
            scene.busy(patience).await;
            Outcome::Conflict
        }
        Ending::Signalled(signal) => {
            printer.event(&Event::Withdrawn {
                keys: Keys::from(&*wanted.keys),
                signal: signal.as_raw(),
                waited_ms: millis(scene.start.elapsed()),
            });
            Outcome::Signalled(signal)
        }
    })
}

enum Ending {
    Got(Got),
    Busy,
    Signalled(Signal),
}

/// What is shown while the lock is asked for.
struct Scene<'a> {
    client: &'a Client,
    printer: &'a Printer,
    wanted: &'a Wanted,
    start: Instant,
    position: u64,
    rejoined: u32,
    /// Whether a line was written that says that we wait.
    announced: bool,
    live: Option<Live>,
}

/// Somebody is being asked who holds the key, while the waiting goes on.
type Asking<'a> = Pin<Box<dyn Future<Output = Option<KeyView>> + 'a>>;

impl<'a> Scene<'a> {
    async fn play(&mut self, wait: Wait, signals: &mut Signals) -> Result<Ending, Failure> {
        let (report, mut progress) = watch::channel((0, 0));
        let report: OnProgress = Arc::new(move |now: &Progress| {
            report.send_replace((now.position, now.rejoined));
        });
        let how = Acquire {
            wait,
            progress: Some(report),
        };
        let mut asking = pin!(self.wanted.acquire(self.client, how));
        let mut tick = interval(TICK);
        let mut who: Option<Asking<'a>> = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return match answer {
                    Ok(Some(got)) => Ok(Ending::Got(got)),
                    Ok(None) => Ok(Ending::Busy),
                    Err(error) if error.kind() == ErrorKind::Timeout => Ok(Ending::Busy),
                    Err(error) => Err(error.into()),
                },
                signal = signals.next() => return Ok(Ending::Signalled(signal)),
                Ok(()) = progress.changed() => {
                    let (position, rejoined) = *progress.borrow_and_update();
                    if self.position == 0 {
                        who = Some(look(self.client, &self.wanted.keys));
                    }
                    self.moved(position, rejoined);
                }
                seen = settled(&mut who) => {
                    who = None;
                    self.seen(seen);
                }
                _ = tick.tick(), if self.live.is_some() => {
                    let live = self.live.as_mut();
                    if live.is_some_and(|live| live.tick(self.start.elapsed())) && who.is_none() {
                        who = Some(look(self.client, &self.wanted.keys));
                    }
                }
            }
        }
    }

    fn moved(&mut self, position: u64, rejoined: u32) {
        self.position = position;
        if rejoined > self.rejoined {
            self.rejoined = rejoined;
            self.printer.event(&Event::Rejoined {
                keys: Keys::from(&*self.wanted.keys),
                times: rejoined,
            });
        }
        if let Some(live) = &mut self.live {
            live.moved(position, self.start.elapsed());
        }
    }

    /// It is known who holds, or that nobody could say.
    fn seen(&mut self, seen: Option<KeyView>) {
        let (key, holders) = self.blocking(seen);
        if let Some(live) = &mut self.live {
            live.held(&key, &holders, self.start.elapsed());
        } else if self.printer.is_live() {
            let mut live = Live::new(&key, self.position);
            live.held(&key, &holders, self.start.elapsed());
            self.printer.show_live(Some(live.bar()));
            self.live = Some(live);
        } else {
            self.announced = true;
            self.printer.event(&Event::Waiting {
                key,
                position: self.position,
                holders,
            });
        }
    }

    async fn busy(&self, patience: Patience) {
        let seen = look(self.client, &self.wanted.keys).await;
        if let (Patience::Once { least }, Some(seen)) = (patience, &seen) {
            self.printer.event(&Event::skipped(seen, least));
            return;
        }
        let waited = match patience {
            Patience::Wait(Wait::For(_)) => self.start.elapsed(),
            _ => Duration::ZERO,
        };
        let (key, holders) = self.blocking(seen);
        self.printer.event(&Event::Conflict {
            key,
            waited_ms: millis(waited),
            holders,
        });
    }

    /// The key that is in the way, and who holds it.
    fn blocking(&self, seen: Option<KeyView>) -> (String, Vec<ClaimView>) {
        match seen {
            Some(seen) => (seen.key, seen.holders),
            None => (self.wanted.key().to_owned(), Vec::new()),
        }
    }
}

/// Looks at the key; of several at the one that we wait for, or that is not free.
fn look<'a>(client: &'a Client, keys: &'a [String]) -> Asking<'a> {
    Box::pin(async move {
        let looks = join_all(keys.iter().map(|key| client.inspect(key)));
        let seen = timeout(CURIOSITY, looks).await.ok()?;
        let views = seen.iter().flatten().map(KeyView::from);
        let (pid, host) = (std::process::id(), sys::host());
        views.min_by_key(|view| {
            let ours = |claim: &ClaimView| {
                let owner = claim.owner.as_ref();
                owner.is_some_and(|owner| owner.pid == pid && owner.host == host)
            };
            let waits = view.waiters.iter().any(ours);
            let taken = view.holders.iter().any(|claim| !ours(claim)) || !view.waiters.is_empty();
            (!waits, !taken)
        })
    })
}

async fn settled(who: &mut Option<Asking<'_>>) -> Option<KeyView> {
    match who {
        Some(who) => who.await,
        None => pending().await,
    }
}
